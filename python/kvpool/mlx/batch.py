"""The pool-tracked cache of a batch of requests: rows of different lengths, one owner a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.base import create_causal_mask
from mlx_lm.models.cache import KVCache, dynamic_roll

from kvpool.memory import BlockPoolAllocator
from kvpool.memory.ownership import Account
from kvpool.mlx.attaching import without_placeholders
from kvpool.mlx.growth import DEFAULT_STEP, grown, growth, room_after_trim, shortened
from kvpool.mlx.ledger import Group
from kvpool.mlx.lines import Demand, Line
from kvpool.mlx.plain import PoolBackedKVCache
from kvpool.mlx.rows import merged_rows, row_indices, rows_to_merge
from kvpool.mlx.tracked import TrackedCache, format_of
from kvpool.mlx.versions import STATE_HOLDS_NUMBERS

_ALL = slice(None)


class PoolBackedBatchKVCache(TrackedCache):
    """A pool-tracked drop-in for mlx_lm's ``BatchKVCache``.

    Rows are justified to the right: row i has ``left_padding[i]`` unused slots in front. The room
    that the arrays have is charged to each row's own owner, padding included, since it is held.

    `PoolBackedKVCache.merge` makes these, with a fresh private owner for each row; the merged
    caches stay as they are. In the books a row's tokens lie at the front of its blocks, and the
    blocks of rows with padding may be told as full up to ``block_size - 1`` tokens late.

    Parameters
    ----------
    pool : BlockPoolAllocator
        The pool to charge.
    left_padding : sequence of int
        Padding in front of each row of the prompts to come.

    Attributes
    ----------
    offset : mx.array
        Tokens of each row, shape (B,), int32; negative while padding is still to come.
    left_padding : mx.array
        Unused slots in front of each row, shape (B,), int32.
    """

    _clock = "slots of a batch"

    def __init__(self, pool: BlockPoolAllocator, left_padding: Sequence[int]) -> None:
        group = Group(pool, [Account(pool) for _ in left_padding])
        self._begin(group, left_padding)

    def _begin(self, group: Group, left_padding: Sequence[int], step: int | None = None) -> None:
        self._join(group)
        self.step = step or max(group.pool.config.block_size, DEFAULT_STEP)
        self._lines = [Line(account) for account in group.accounts]
        self._start(left_padding)

    def _start(self, left_padding: Sequence[int]) -> None:
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self._idx = 0
        self._padding = list(left_padding)  # as left_padding, without asking MLX
        self.left_padding = mx.array(self._padding, mx.int32)
        self.offset = mx.array([-p for p in self._padding], mx.int32)
        self._right_padding: list[int] | None = None
        self._limit = -1

    def _forget(self) -> None:
        self._start([0] * len(self._lines))

    # -- Appending -----------------------------------------------------------------------------

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append tokens to every row and return all so far.

        Parameters
        ----------
        keys, values : mx.array
            Shapes (B, n_kv_heads, S, head_dim); keys and values may differ in head_dim. S = 0
            changes nothing.

        Returns
        -------
        keys, values : mx.array
            Shapes (B, n_kv_heads, n, head_dim), padding included.

        Raises
        ------
        ValueError
            If the shapes or dtypes do not agree with each other and with what is stored.
        BlockPoolExhaustedError
            If the pool can't give the blocks that this step needs in all layers and rows. Nothing
            has changed then, in any layer.
        """
        start, n_new = self._idx, 1
        if start >= self._limit or not self._is_token(keys, values):
            self._check(keys, values)
            n_new = keys.shape[2]
            if n_new == 0:
                return (keys, values) if self.keys is None else self.keys_and_values()
            self._group.secure(self, n_new, keys.shape[0], format_of(keys.dtype))
            self._grow(keys, values)
        end = start + n_new
        all_keys: Any = self.keys
        all_values: Any = self.values
        new = (_ALL, _ALL, slice(start, end))
        all_keys[new] = keys
        all_values[new] = values
        self._idx = end
        self.offset = self.offset + n_new
        stored = (_ALL, _ALL, slice(0, end))
        return all_keys[stored], all_values[stored]

    def _grow(self, keys: mx.array, values: mx.array) -> None:
        room = self._room()[0]
        kept, after = growth(room, self._idx, keys.shape[2], self.step)
        if after > room:
            self.keys = grown(self.keys, keys, kept, after)
            self.values = grown(self.values, values, kept, after)

    def _check(self, keys: mx.array, values: mx.array) -> None:
        shape, v_shape = keys.shape, values.shape
        fits = shape[:3] == v_shape[:3] and shape[0] == len(self._lines)
        if fits and self.keys is not None and self.values is not None:
            stored, v_stored = self.keys.shape, self.values.shape
            fits = (
                (shape[1], shape[3], v_shape[3]) == (stored[1], stored[3], v_stored[3])
                and keys.dtype == self.keys.dtype
                and values.dtype == self.values.dtype
            )
        if not fits:
            raise ValueError(
                f"[PoolBackedBatchKVCache.update_and_fetch] keys {shape} and values {v_shape} of "
                f"{keys.dtype} do not go with {len(self._lines)} rows and "
                f"{'nothing' if self.keys is None else self.keys.shape} stored"
            )
        self._remember_token(keys, values)

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """Return the stored keys and values, shapes (B, n_kv_heads, n, head_dim).

        Raises
        ------
        ValueError
            If nothing is stored.
        """
        if self.keys is None or self.values is None:
            raise ValueError("[PoolBackedBatchKVCache.keys_and_values] the cache is empty")
        stored = (_ALL, _ALL, slice(0, self._idx))
        return self.keys[stored], self.values[stored]

    # -- Books ---------------------------------------------------------------------------------

    def _position(self) -> int:
        return self._idx

    def _n_rows(self) -> int:
        return len(self._lines)

    def _room(self) -> tuple[int, int]:
        if self.keys is None or self.values is None:
            return 0, 0
        return self.keys.shape[2], self.values.shape[2]

    def _room_after(self, n_new: int) -> tuple[int, int]:
        _, room = growth(self._room()[0], self._idx, n_new, self.step)
        return room, room

    def _label(self) -> str:
        return "" if self.keys is None else format_of(self.keys.dtype)

    def _mark(self, n_new: int) -> None:
        used = self._idx + n_new
        for line, padding in zip(self._lines, self._padding, strict=True):
            line.mark(max(used - padding, 0))

    # -- The batch protocol --------------------------------------------------------------------

    def prepare(
        self,
        *,
        left_padding: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
        right_padding: Sequence[int] | None = None,
    ) -> None:
        """Tell the padding of the prompts to come; see mlx_lm's ``BatchKVCache``.

        Raises
        ------
        ValueError
            If left padding is told and something is stored, or a list has not one item a row.
        """
        for padding in (left_padding, right_padding):
            if padding is not None and len(padding) != len(self._lines):
                raise ValueError(
                    f"[PoolBackedBatchKVCache.prepare] {len(self._lines)} numbers are needed, one "
                    f"for each row; got {padding!r}"
                )
        if left_padding is not None:
            if self.keys is not None:
                raise ValueError(
                    "[PoolBackedBatchKVCache.prepare] left padding can be told only while nothing "
                    f"is stored; {self._idx} tokens are"
                )
            self._pad(list(left_padding))
            self.offset = self.offset - mx.array(list(left_padding), mx.int32)
        if right_padding is not None and max(right_padding, default=0) > 0:
            self._right_padding = list(right_padding)

    def _pad(self, more: list[int]) -> None:
        self._padding = [p + m for p, m in zip(self._padding, more, strict=True)]
        self.left_padding = self.left_padding + mx.array(more, mx.int32)

    def finalize(self) -> None:
        """Move the right padding that `prepare` told of to the left."""
        padding, self._right_padding = self._right_padding, None
        if padding is None:
            return
        if self.keys is not None and self.values is not None:
            shifts = mx.array(padding, mx.int32)
            self.keys = dynamic_roll(self.keys, shifts[:, None], axis=2)
            self.values = dynamic_roll(self.values, shifts[:, None], axis=2)
        self.offset = self.offset - mx.array(padding, mx.int32)
        self._pad(padding)
        self._mark(0)

    def filter(self, batch_indices: Any) -> None:
        """Keep the rows of these indices, in this order; the blocks of the others go back.

        Padding that all remaining rows share is taken out. With nothing stored that means padding
        of prompts still to come, which will be padded to the longest that is left.

        Parameters
        ----------
        batch_indices : sequence of int or mx.array
            Distinct rows; none at all leaves an empty batch.

        Raises
        ------
        ValueError
            If there is no such row, or one is named twice.
        """
        kept = row_indices(batch_indices, len(self._lines))
        padding = [self._padding[row] for row in kept]
        shared = min(padding, default=0)
        if not kept:
            self.keys = self.values = None
            self._idx = 0
        if self.keys is not None and self.values is not None:
            rows = mx.array(kept)
            shared = min(shared, self._idx)
            self.keys = self.keys[..., shared:, :][rows]
            self.values = self.values[..., shared:, :][rows]
            self._idx -= shared
        rows_left = mx.array(kept, mx.int32)
        self.left_padding = self.left_padding[rows_left] - shared
        self.offset = self.offset[rows_left]
        if self.keys is None:
            self.offset = self.offset + shared
        self._padding = [p - shared for p in padding]
        if self._right_padding is not None:
            self._right_padding = [self._right_padding[row] for row in kept]
        self._lines = [self._lines[row] for row in kept]
        self._settle()

    def extend(self, other: Any) -> None:
        """Take over the rows of another batch, behind the rows there are.

        A batch of ours is left without rows: its blocks come along, under their owners.

        Raises
        ------
        ValueError
            If `other` is this batch, or has keys or values of other shapes.
        BlockPoolExhaustedError
            If the pool can't give what all rows need to be equally long. Nothing has changed then,
            in any layer.
        """
        if other is self:
            raise ValueError("[PoolBackedBatchKVCache.extend] a batch can't be extended by itself")
        other = self._as_ours(other)
        self._group.secure_extension(self, other)
        idx = max(self._idx, other._idx)
        room = self._joint_room(other)
        like = self.keys if self.keys is not None else other.keys
        if like is not None:
            v_like = self.values if self.values is not None else other.values
            self.keys = mx.concatenate(
                [_justified(c, c.keys, like, idx, room) for c in (self, other)]
            )
            self.values = mx.concatenate(
                [_justified(c, c.values, v_like, idx, room) for c in (self, other)]
            )
        self.left_padding = mx.concatenate(
            [c.left_padding + (idx - c._idx if like is not None else 0) for c in (self, other)]
        )
        self.offset = mx.concatenate([self.offset, other.offset])
        self._padding = [
            p + (idx - c._idx if like is not None else 0) for c in (self, other) for p in c._padding
        ]
        self._idx = idx
        self._lines = self._lines + other._lines
        other._lines = []
        other._forget()
        self._balance()

    def _as_ours(self, other: Any) -> PoolBackedBatchKVCache:
        """Return `other`, or mlx_lm's own batch as one of ours that is not charged yet."""
        if isinstance(other, PoolBackedBatchKVCache):
            ours = other
        else:
            padding = other.left_padding.tolist()
            ours = PoolBackedBatchKVCache(self.pool, padding)
            ours.keys, ours.values, ours._idx = other.keys, other.values, other._idx
            ours.offset = other.offset
        for mine, its in ((self.keys, ours.keys), (self.values, ours.values)):
            if mine is None or its is None:
                continue
            same = mine.shape[1] == its.shape[1] and mine.shape[3] == its.shape[3]
            if not same or mine.dtype != its.dtype:
                raise ValueError(
                    f"[PoolBackedBatchKVCache.extend] rows of {its.shape} and {its.dtype} do not "
                    f"go with {mine.shape} and {mine.dtype}"
                )
        return ours

    def _joint_room(self, other: PoolBackedBatchKVCache) -> int:
        return max(self._room()[0], other._room()[0], self._idx, other._idx)

    def _extension(self, other: Any) -> Demand:
        n_blocks = self._to_blocks(self._joint_room(other))
        label = self._label() or other._label()
        return Demand(self._lines + other._lines, (n_blocks, n_blocks), label)

    def extract(self, idx: int) -> PoolBackedKVCache:
        """Return row `idx` as a cache of its own, with a charge and a private owner of its own.

        The layers of one row, extracted one after the other, share that owner.
        """
        (row,) = row_indices([idx], len(self._lines))
        group = self._group.derived(("extract", row), self._slot, [self._lines[row].account])
        cache = PoolBackedKVCache._new(group, self.step)
        if self.keys is not None and self.values is not None:
            stored = (slice(row, row + 1), _ALL, slice(self._padding[row], self._idx))
            cache._keys = mx.contiguous(self.keys[stored])
            cache._values = mx.contiguous(self.values[stored])
            cache.offset = self._idx - self._padding[row]
            cache._charge_new()
        return cache

    @classmethod
    def merge(cls, caches: Sequence[Any]) -> PoolBackedBatchKVCache:
        """Return a batch with the tokens of each of `caches` in a row.

        The layers of the same caches, merged one after the other, share one private owner a row.

        Parameters
        ----------
        caches : sequence
            Caches of one row, ours or mlx_lm's own; at least one of ours, which brings the pool.

        Raises
        ------
        ValueError
            If none is ours, if they are of several pools, or if their arrays do not go together.
        BlockPoolExhaustedError
            If the pool can't hold the batch beside the caches that it is made of.
        """
        first, group = rows_to_merge(cls.__name__, caches, (PoolBackedKVCache, KVCache))
        lengths = [cache.size() for cache in caches]
        length = max(lengths)
        padding = [length - n for n in lengths]
        batch = cls.__new__(cls)
        batch._begin(group, padding if length else [0] * len(caches), first.step)
        if length == 0:
            return batch
        batch.keys = merged_rows([c.keys for c in caches], lengths, padding)
        batch.values = merged_rows([c.values for c in caches], lengths, padding)
        batch.offset = batch.offset + length
        batch._idx = length
        batch._charge_new()
        return batch

    # -- What mlx_lm asks of a cache -----------------------------------------------------------

    def size(self) -> int:
        """Return the slots in use of each row, padding included."""
        return self._idx

    def empty(self) -> bool:
        """Return whether nothing is stored."""
        return self.keys is None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, with the room they have."""
        return sum(array.nbytes for array in (self.keys, self.values) if array is not None)

    @property
    def state(self) -> Any:
        """Arrays and numbers, as the installed mlx_lm's own cache has them."""
        if STATE_HOLDS_NUMBERS:
            return self.keys, self.values, self.offset, self.left_padding, self._idx
        if self.keys is None:
            return self.keys, self.values, self.offset, self.left_padding
        return *self.keys_and_values(), self.offset, self.left_padding

    @state.setter
    def state(self, state: Any) -> None:
        self._change(lambda: self._load(state, ""))

    @property
    def meta_state(self) -> str:
        """Always empty. Anything else that is assigned is a ValueError."""
        return ""

    @meta_state.setter
    def meta_state(self, meta_state: Any) -> None:
        if meta_state:
            raise ValueError(
                f"[PoolBackedBatchKVCache.meta_state] must be empty, got {meta_state!r}"
            )

    def _load(self, state: Any, meta_state: Any) -> None:
        self.meta_state = meta_state
        keys, values, offset, left_padding, *idx = without_placeholders(list(state))
        padding = left_padding.tolist()
        if "step" not in self.__dict__:
            self.step = max(self._group.pool.config.block_size, DEFAULT_STEP)
        self._rows_as_loaded(len(padding))
        self._start(padding)
        self.keys, self.values = keys, values
        self.offset, self.left_padding = offset, left_padding
        room = min(self._room())
        self._idx = int(idx[0]) if idx else room
        if not 0 <= self._idx <= room:
            raise ValueError(
                f"[PoolBackedBatchKVCache.state] the index must be within 0…{room}, got {self._idx}"
            )

    def is_trimmable(self) -> bool:
        """Return True: the newest tokens can always be dropped."""
        return True

    def trim(self, n: int) -> int:
        """Drop the newest `n` slots of every row; see `PoolBackedKVCache.trim`."""
        n = min(max(n, 0), self._idx)
        if n == 0:
            return 0
        self._change(lambda: self._cut(n))
        return n

    def _cut(self, n: int) -> None:
        self._idx -= n
        self.offset = self.offset - n
        if self.keys is not None and self.values is not None:
            room = room_after_trim(self._room()[0], self._idx, n, self.step)
            if room < self._room()[0]:
                self.keys = shortened(self.keys, room) if room else None
                self.values = shortened(self.values, room) if room else None

    def make_mask(self, N: int, return_array: bool = False, **kwargs: Any) -> Any:  # noqa: N803
        """Return the mask of `N` tokens to come, shape (B, 1, N, n + N), bool."""
        self._group.announce(N)
        return create_causal_mask(N, offset=self._idx, left_padding=self.left_padding, **kwargs)


def _justified(
    cache: PoolBackedBatchKVCache, array: mx.array | None, like: Any, idx: int, room: int
) -> mx.array:
    """Return an array of a batch moved right, so that its rows end at `idx`, with `room` slots."""
    if array is None:
        return mx.zeros((len(cache._padding), like.shape[1], room, like.shape[3]), like.dtype)
    left = idx - cache._idx
    right = room - array.shape[2] - left
    if right < 0:
        array = array[..., :right, :]
        right = 0
    if left or right:
        array = mx.pad(array, [(0, 0), (0, 0), (left, right), (0, 0)])
    return array
