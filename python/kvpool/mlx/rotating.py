"""The pool-tracked caches of a layer with a sliding window, for one request and for a batch.

mlx_lm's code keeps the window; what its arrays hold is charged, which is at most the window, and
during a prompt up to one chunk more. As long as nothing has left the window the newest tokens can
be dropped; afterwards a trim drops nothing, since the tokens that should come back are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as stock

from kvpool.memory.ownership import Account
from kvpool.mlx.growth import DEFAULT_STEP
from kvpool.mlx.ledger import Group
from kvpool.mlx.lines import UNBOUNDED, Demand, Line
from kvpool.mlx.rows import row_indices, rows_to_merge
from kvpool.mlx.tracked import TrackedStockCache, non_negative


class _Window(TrackedStockCache):
    """What both caches have in common. `_seen` tokens are counted differently."""

    max_size: int
    step: int
    _idx: int

    def _seen(self) -> int:
        """Tokens that were appended, as mlx_lm's code counts them when it grows the arrays."""
        raise NotImplementedError

    def _ordered(self) -> int:
        """Rows that are left when the arrays are put in order of time."""
        raise NotImplementedError

    def _position(self) -> int:
        return self._seen()

    def _room_after(self, n_new: int) -> tuple[int, int]:
        room, _ = self._room()
        if n_new != 1:
            ordered = self._ordered()
            if room:
                ordered = min(ordered, self.max_size - 1)
            return ordered + n_new, ordered + n_new
        if room == 0 or (self._seen() >= room and room < self.max_size):
            room += min(self.step, self.max_size - self._seen())
        return min(room, self.max_size), min(room, self.max_size)

    def _slack_after(self, n_new: int) -> int:
        room, _ = self._room_after(n_new)
        if room > self.max_size:
            return 0
        if room == self.max_size:
            return UNBOUNDED
        return non_negative(room - self._seen() - n_new)

    def _append(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        n_new = keys.shape[2]
        self._check(keys, values)
        if n_new == 0 and self.keys is None:
            return keys, values
        if n_new == 0:
            return self._held(self._seen())
        self._begin_step(keys)
        result = self._stock_update(keys, values)
        if self._blocks() != tuple(len(held) for held in self._lines[0].blocks):
            limit = self._limit
            self._balance()
            self._limit = limit
        return result

    def _stock_update(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        result: tuple[mx.array, mx.array] = self._stock.update_and_fetch(  # type: ignore[attr-defined]
            self, keys, values
        )
        return result

    def trim(self, n: int) -> int:
        """Drop the newest `n` tokens, or all there are; returns how many went.

        Once tokens have left the window, nothing is dropped. The arrays keep their room.
        """
        n = min(non_negative(n), self._seen())
        if n == 0 or self._seen() >= self.max_size:
            return 0
        trimmed: int = self._stock.trim(self, n)  # type: ignore[attr-defined]
        self._settle()
        return trimmed

    def _mark(self, n_new: int) -> None:
        used = min(self._seen() + n_new, self._room_after(n_new)[0] if n_new else self._room()[0])
        for line in self._lines:
            line.mark(used)

    def make_mask(self, N: int, *args: Any, **kwargs: Any) -> Any:  # noqa: N803
        """Return the mask that mlx_lm makes for its own cache of this kind."""
        self._group.announce(N)
        return self._stock.make_mask(self, N, *args, **kwargs)  # type: ignore[attr-defined]


class PoolBackedRotatingKVCache(_Window, stock.RotatingKVCache):  # type: ignore[misc]
    """A pool-tracked drop-in for mlx_lm's ``RotatingKVCache``.

    `build_pooled_caches` makes these for the layers that have a sliding window.

    Attributes
    ----------
    offset : int
        Tokens appended so far, of which the window holds the newest `max_size`.
    max_size : int
        The window, in tokens.
    keep : int
        Tokens at the start that never leave the window.
    """

    _stock = stock.RotatingKVCache
    offset: int
    keep: int

    @classmethod
    def _new(
        cls, group: Group, max_size: int, keep: int = 0, step: int | None = None
    ) -> PoolBackedRotatingKVCache:
        new = cls.__new__(cls)
        stock.RotatingKVCache.__init__(new, max_size, keep)
        new.step = step or max(group.pool.config.block_size, DEFAULT_STEP)
        new._join(group)
        return new

    def _forget(self) -> None:
        stock.RotatingKVCache.__init__(self, self.max_size, self.keep)
        self._limit = -1

    def _seen(self) -> int:
        return int(self.offset)

    def _ordered(self) -> int:
        room = self._room()[0]
        return room if self._idx < self.offset else min(self._idx, room)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append tokens and return what attention may look at; see mlx_lm's cache of this kind.

        S = 0 changes nothing.

        Raises
        ------
        ValueError
            If the shapes or dtypes do not agree with each other and with what is stored.
        BlockPoolExhaustedError
            If the pool can't give the blocks that this step needs in all layers of the request.
            Nothing has changed then, in any layer.
        """
        if self.offset < self._limit and self._is_token(keys, values):
            return self._put_token(keys, values)
        return self._append(keys, values)

    def _put_token(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write a token into arrays that have room for it, or are full and go round."""
        start = self.keep if self._idx == self.max_size else self._idx
        new = (slice(None), slice(None), slice(start, start + 1))
        self.keys[new] = keys
        self.values[new] = values
        self._idx = start + 1
        self.offset += 1
        if self.offset >= self.keys.shape[2]:
            return self.keys, self.values
        return self._held(self.offset)

    @classmethod
    def merge(cls, caches: Sequence[Any]) -> PoolBackedBatchRotatingKVCache:
        """Return a batch cache with the tokens of each of `caches` in a row.

        Raises
        ------
        ValueError
            See `PoolBackedBatchRotatingKVCache.merge`.
        """
        return PoolBackedBatchRotatingKVCache.merge(caches)


class PoolBackedBatchRotatingKVCache(_Window, stock.BatchRotatingKVCache):  # type: ignore[misc]
    """A pool-tracked drop-in for mlx_lm's ``BatchRotatingKVCache``.

    Each row is charged to an owner of its own. In the books padding counts as used.
    """

    _stock = stock.BatchRotatingKVCache
    _clock = "tokens of a batch"
    _lengths: mx.array | None

    def _begin(self, group: Group, step: int | None) -> None:
        self._join(group)
        self.step = step or max(group.pool.config.block_size, DEFAULT_STEP)
        self._lines = [Line(account) for account in group.accounts]

    def _forget(self) -> None:
        stock.BatchRotatingKVCache.__init__(self, self.max_size, [])
        self.left_padding = mx.zeros((len(self._lines),), mx.int32)
        self.offset = mx.zeros((len(self._lines),), mx.int32)
        self._limit = -1

    def _seen(self) -> int:
        return int(self._offset)

    def _n_rows(self) -> int:
        return len(self._lines)

    def _ordered(self) -> int:
        room = self._room()[0]
        return room if self.rotated else min(self._idx, room)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """As `PoolBackedRotatingKVCache.update_and_fetch`, for every row."""
        if self._offset < self._limit and self._is_token(keys, values):
            return self._stock_update(keys, values)
        if keys.shape[0] != len(self._lines):
            raise ValueError(
                f"[PoolBackedBatchRotatingKVCache.update_and_fetch] {len(self._lines)} rows are "
                f"needed, got keys {keys.shape}"
            )
        return self._append(keys, values)

    def filter(self, batch_indices: Any) -> None:
        """Keep the rows of these indices; see `PoolBackedBatchKVCache.filter`."""
        kept = row_indices(batch_indices, len(self._lines))
        lines = [self._lines[row] for row in kept]
        stock.BatchRotatingKVCache.filter(self, mx.array(kept, mx.int32))
        if self._lengths is not None:
            self._lengths = self._lengths[mx.array(kept, mx.int32)]
        self._lines = lines
        if not kept:
            self._forget()
        self._settle()

    def extend(self, other: Any) -> None:
        """Take over the rows of another batch; see `PoolBackedBatchKVCache.extend`."""
        if other is self:
            raise ValueError(
                "[PoolBackedBatchRotatingKVCache.extend] a batch can't be extended by itself"
            )
        if not isinstance(other, PoolBackedBatchRotatingKVCache):
            ours = PoolBackedBatchRotatingKVCache.__new__(PoolBackedBatchRotatingKVCache)
            n_rows = int(other.offset.shape[0])
            ours._begin(Group(self.pool, [Account(self.pool) for _ in range(n_rows)]), self.step)
            ours.__dict__.update({k: v for k, v in other.__dict__.items() if k != "step"})
            other = ours
        if other.max_size != self.max_size:
            raise ValueError(
                "[PoolBackedBatchRotatingKVCache.extend] windows must be equal, got "
                f"{self.max_size} and {other.max_size} tokens"
            )
        self._group.secure_extension(self, other)
        stock.BatchRotatingKVCache.extend(self, other)
        self._lines = self._lines + other._lines
        other._lines = []
        other._forget()
        self._balance()

    def _extension(self, other: Any) -> Demand:
        n_blocks = self._to_blocks(max(self._room()[0], other._room()[0]))
        label = self._label() or other._label()
        return Demand(self._lines + other._lines, (n_blocks, n_blocks), label)

    def extract(self, idx: int) -> PoolBackedRotatingKVCache:
        """Return row `idx` as a cache of its own; see `PoolBackedBatchKVCache.extract`."""
        (row,) = row_indices([idx], len(self._lines))
        group = self._group.derived(("extract", row), self._slot, [self._lines[row].account])
        cache = PoolBackedRotatingKVCache._new(group, self.max_size, step=self.step)
        if self.keys is not None:
            taken = stock.BatchRotatingKVCache.extract(self, row)
            cache.__dict__.update(taken.__dict__)
            cache._charge_new()
        return cache

    @classmethod
    def merge(cls, caches: Sequence[Any]) -> PoolBackedBatchRotatingKVCache:
        """Return a batch with the tokens of each of `caches` in a row.

        Raises
        ------
        ValueError
            As `PoolBackedBatchKVCache.merge`, and if the windows differ.
        BlockPoolExhaustedError
            If the pool can't hold the batch beside the caches that it is made of.
        """
        first, group = rows_to_merge(cls.__name__, caches, (stock.RotatingKVCache,))
        merged = stock.BatchRotatingKVCache.merge(caches)
        batch = cls.__new__(cls)
        batch._begin(group, first.step)
        batch.__dict__.update(merged.__dict__)
        batch._charge_new()
        return batch

    def _load(self, state: Any, meta_state: Any) -> None:
        stock.BatchRotatingKVCache.__init__(self, 0, [])
        if "step" not in self.__dict__:
            self.step = max(self._group.pool.config.block_size, DEFAULT_STEP)
        super()._load(state, meta_state)
        self._rows_as_loaded(int(self.offset.shape[0]))
