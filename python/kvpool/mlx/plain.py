"""The pool-tracked cache of a layer with full attention, in full precision."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx_lm.models.cache import create_attention_mask

from kvpool.memory import BlockPoolAllocator
from kvpool.memory.ownership import PRIVATE
from kvpool.mlx.attaching import without_placeholders
from kvpool.mlx.growth import (
    DEFAULT_STEP,
    check_step,
    grown,
    growth,
    room_after_trim,
    same_layout,
    shortened,
)
from kvpool.mlx.ledger import Group
from kvpool.mlx.tracked import TrackedCache, format_of

if TYPE_CHECKING:
    from kvpool.mlx.batch import PoolBackedBatchKVCache
    from kvpool.mlx.quantized import PoolBackedQuantizedKVCache

_ALL = slice(None)


class PoolBackedKVCache(TrackedCache):
    """A drop-in for mlx_lm's ``KVCache`` whose growth is charged to a pool.

    Keys and values lie in contiguous arrays that grow by whole steps, as often as mlx_lm's own do
    and with the same values. What the arrays have room for is charged to the pool: one block of
    each stream for every ``block_size`` tokens, for each batch row.

    Parameters
    ----------
    pool : BlockPoolAllocator
        The pool to charge.
    owner : hashable, optional
        Whom the blocks are checked out to. -1 (default) takes a fresh private owner.
    step : int, optional
        Tokens by which the arrays grow; ``max(block_size, 256)`` unless given.

    Attributes
    ----------
    offset : int
        Tokens stored.

    Raises
    ------
    ValueError
        If `step` is less than 1, or `owner` is None.
    OwnerAlreadyActiveError
        If `owner` has another live cache on this pool. The layers of one request come from
        `build_pooled_caches`.

    Examples
    --------
    >>> import mlx.core as mx
    >>> from kvpool.memory import BlockPoolAllocator
    >>> pool = BlockPoolAllocator()
    >>> cache = PoolBackedKVCache(pool)
    >>> keys, values = cache.update_and_fetch(mx.ones((1, 2, 5, 8)), mx.ones((1, 2, 5, 8)))
    >>> keys.shape, pool.stats.blocks_in_use()
    ((1, 2, 5, 8), 32)
    >>> cache.release()
    >>> cache.empty(), pool.stats.blocks_in_use()
    (True, 0)
    """

    offset: int
    step: int

    def __init__(
        self, pool: BlockPoolAllocator, owner: Hashable = PRIVATE, step: int | None = None
    ) -> None:
        check_step(step)
        self._begin(Group.of(pool, owner), step)

    @classmethod
    def _new(cls, group: Group, step: int | None = None) -> PoolBackedKVCache:
        new = cls.__new__(cls)
        new._begin(group, step)
        return new

    def _begin(self, group: Group, step: int | None) -> None:
        self._join(group)
        self.step = step or max(group.pool.config.block_size, DEFAULT_STEP)
        self._forget()

    def _forget(self) -> None:
        self._keys: mx.array | None = None
        self._values: mx.array | None = None
        self.offset = 0
        self._limit = -1

    # -- Appending -----------------------------------------------------------------------------

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append tokens and return all so far.

        Parameters
        ----------
        keys, values : mx.array
            Shapes (B, n_kv_heads, S, head_dim); keys and values may differ in head_dim. S = 0
            changes nothing.

        Returns
        -------
        keys, values : mx.array
            Shapes (B, n_kv_heads, offset, head_dim).

        Raises
        ------
        ValueError
            If the shapes or dtypes do not agree with each other and with what is stored.
        BlockPoolExhaustedError
            If the pool can't give the blocks that this step needs in all layers of the request.
            Nothing has changed then, in any layer.
        """
        start = self.offset
        if (
            start < self._limit
            and keys.shape == self._k_token
            and values.shape == self._v_token
            and keys.dtype == self._k_dtype
            and values.dtype == self._v_dtype
        ):
            end = start + 1
        else:
            n_new = self._admit(keys, values)
            if n_new == 0:
                return (keys, values) if self._keys is None else self.keys_and_values()
            end = start + n_new
        all_keys: Any = self._keys
        all_values: Any = self._values
        # Indices without an ellipsis cost MLX half the time.
        new = (_ALL, _ALL, slice(start, end))
        all_keys[new] = keys
        all_values[new] = values
        self.offset = end
        stored = (_ALL, _ALL, slice(0, end))
        return all_keys[stored], all_values[stored]

    def _admit(self, keys: mx.array, values: mx.array) -> int:
        """Check a step, secure its blocks and see that the arrays have room; returns its tokens."""
        shape, v_shape = keys.shape, values.shape
        if len(shape) != 4 or len(v_shape) != 4 or shape[:3] != v_shape[:3]:
            raise ValueError(
                "[PoolBackedKVCache.update_and_fetch] keys and values must have shapes "
                f"(B, n_kv_heads, S, head_dim), alike but for head_dim; got {shape} and {v_shape}"
            )
        for what, stored, given in (("keys", self._keys, keys), ("values", self._values, values)):
            if stored is None:
                continue
            n_rows, n_heads, _, head_dim = stored.shape
            if given.shape != (n_rows, n_heads, shape[2], head_dim) or given.dtype != stored.dtype:
                raise ValueError(
                    f"[PoolBackedKVCache.update_and_fetch] {what} of shape "
                    f"({n_rows}, {n_heads}, S, {head_dim}) and {stored.dtype} are stored; got "
                    f"{given.shape} and {given.dtype}"
                )
        n_new = shape[2]
        if n_new == 0:
            return 0
        start, room = self.offset, min(self._room())
        if start > room:
            raise ValueError(
                f"[PoolBackedKVCache.update_and_fetch] offset is {start}, but the arrays hold "
                f"{room} tokens"
            )
        self._group.secure(self, n_new, shape[0], format_of(keys.dtype))
        self._grow(keys, values)
        self._remember_token(keys, values)
        return n_new

    def _grow(self, keys: mx.array, values: mx.array) -> None:
        k_room, v_room = self._room()
        n_new = keys.shape[2]
        kept, room = growth(min(k_room, v_room), self.offset, n_new, self.step, k_room == v_room)
        if room > min(k_room, v_room):
            self._keys = grown(self._keys, keys, kept, room)
            self._values = grown(self._values, values, kept, room)

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """Return the stored keys and values, shapes (B, n_kv_heads, offset, head_dim).

        Raises
        ------
        ValueError
            If nothing is stored.
        """
        if self._keys is None or self._values is None:
            raise ValueError("[PoolBackedKVCache.keys_and_values] the cache is empty")
        stored = (_ALL, _ALL, slice(0, self.offset))
        return self._keys[stored], self._values[stored]

    # -- Books ---------------------------------------------------------------------------------

    def _position(self) -> int:
        return self.offset

    def _n_rows(self) -> int:
        return 0 if self._keys is None else self._keys.shape[0]

    def _room(self) -> tuple[int, int]:
        return (
            0 if self._keys is None else self._keys.shape[2],
            0 if self._values is None else self._values.shape[2],
        )

    def _room_after(self, n_new: int) -> tuple[int, int]:
        keys, values = self._room()
        if self.offset + n_new <= min(keys, values):
            return keys, values
        _, room = growth(min(keys, values), self.offset, n_new, self.step, keys == values)
        return room, room

    def _label(self) -> str:
        return "" if self._keys is None else format_of(self._keys.dtype)

    def _adopt(self, other: Any) -> None:
        """Take over what one of mlx_lm's own caches of this kind holds."""
        self._keys, self._values, self.offset = other.keys, other.values, other.offset
        self._charge_new()

    # -- What mlx_lm asks of a cache -----------------------------------------------------------

    @property
    def keys(self) -> mx.array | None:
        """The array of keys, with room for more than `offset` tokens; None while empty.

        Assigning an array charges the pool for the room that it has.
        """
        return self._keys

    @keys.setter
    def keys(self, keys: mx.array | None) -> None:
        before, self._keys = self._keys, keys
        if not same_layout(before, keys):
            try:
                self._settle()
            except BaseException:
                self._keys = before
                raise

    @property
    def values(self) -> mx.array | None:
        """The array of values, like `keys`."""
        return self._values

    @values.setter
    def values(self, values: mx.array | None) -> None:
        before, self._values = self._values, values
        if not same_layout(before, values):
            try:
                self._settle()
            except BaseException:
                self._values = before
                raise

    def size(self) -> int:
        """Return the number of tokens stored."""
        return self.offset

    def empty(self) -> bool:
        """Return whether nothing is stored."""
        return self._keys is None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, with the room they have."""
        return sum(array.nbytes for array in (self._keys, self._values) if array is not None)

    @property
    def state(self) -> tuple[mx.array | None, mx.array | None]:
        """Keys and values, cut to `offset` tokens; a pair of None while empty.

        The setter takes such a pair, or the triple (keys, values, offset) of mlx_lm's own cache.
        """
        if self._keys is None or self._values is None:
            return self._keys, self._values
        if self.offset == self._keys.shape[2] == self._values.shape[2]:
            return self._keys, self._values
        return self.keys_and_values()

    @state.setter
    def state(self, state: Sequence[Any]) -> None:
        self._change(lambda: self._load(state, ""))

    def _load(self, state: Any, meta_state: Any) -> None:
        if len(state) not in (2, 3):
            raise ValueError(
                "[PoolBackedKVCache.state] a pair (keys, values) or a triple (keys, values, "
                f"offset) is needed, got {len(state)} items"
            )
        if "_keys" not in self.__dict__:
            self.step = max(self._group.pool.config.block_size, DEFAULT_STEP)
            self._forget()
        self.meta_state = meta_state
        keys, values = (own_buffer(array) for array in without_placeholders(list(state[:2])))
        if (keys is None) != (values is None) or (
            keys is not None and values is not None and keys.shape[:3] != values.shape[:3]
        ):
            raise ValueError(
                "[PoolBackedKVCache.state] keys and values must have shapes (B, n_kv_heads, S, "
                f"head_dim), alike but for head_dim; got {shape_of(keys)} and {shape_of(values)}"
            )
        room = 0 if keys is None else keys.shape[2]
        offset = room if len(state) == 2 else int(state[2])
        if not 0 <= offset <= room:
            raise ValueError(
                f"[PoolBackedKVCache.state] offset must be within 0…{room}, got {offset}"
            )
        self._keys, self._values, self.offset = keys, values, offset

    @property
    def meta_state(self) -> str:
        """Always empty. Anything else that is assigned is a ValueError."""
        return ""

    @meta_state.setter
    def meta_state(self, meta_state: Any) -> None:
        if meta_state:
            raise ValueError(f"[PoolBackedKVCache.meta_state] must be empty, got {meta_state!r}")

    def is_trimmable(self) -> bool:
        """Return True: the newest tokens can always be dropped."""
        return True

    def trim(self, n: int) -> int:
        """Drop the newest `n` tokens, or all there are; returns how many went.

        Whole growth steps that fall free leave the arrays, and their blocks go back; a rewind by a
        few tokens leaves one step in place (see `growth.room_after_trim`). A negative number drops
        nothing.
        """
        n = min(max(n, 0), self.offset)
        if n == 0:
            return 0
        self._change(lambda: self._cut(n))
        return n

    def _cut(self, n: int) -> None:
        self.offset -= n
        if self._keys is not None and self._values is not None:
            room = room_after_trim(min(self._room()), self.offset, n, self.step)
            if room < max(self._room()):
                self._keys = shortened(self._keys, room) if room else None
                self._values = shortened(self._values, room) if room else None

    def make_mask(self, *args: Any, **kwargs: Any) -> Any:
        """Return the attention mask that mlx_lm makes for its own cache at this offset."""
        if args:
            self._group.announce(args[0])
        return create_attention_mask(*args, offset=self.offset, **kwargs)

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> PoolBackedQuantizedKVCache:
        """Return a quantised cache of the same tokens, charged to the same owner.

        This cache keeps its own arrays and blocks until it is dropped or released.

        Raises
        ------
        ValueError
            If the arrays can't be quantised this way; the text names what can be.
        BlockPoolExhaustedError
            If the pool can't hold both.
        """
        from kvpool.mlx.quantized import PoolBackedQuantizedKVCache

        return PoolBackedQuantizedKVCache._from_plain(self, group_size, bits)

    @classmethod
    def merge(cls, caches: Sequence[Any]) -> PoolBackedBatchKVCache:
        """Return a batch cache with the tokens of each of `caches` in a row.

        Raises
        ------
        ValueError
            See `PoolBackedBatchKVCache.merge`.
        """
        from kvpool.mlx.batch import PoolBackedBatchKVCache

        return PoolBackedBatchKVCache.merge(caches)


def own_buffer(array: mx.array | None) -> mx.array | None:
    """Return an array that is not a view of a longer one, which would keep that one in memory."""
    return None if array is None else mx.contiguous(array)


def shape_of(array: mx.array | None) -> tuple[int, ...] | None:
    """Return the shape of an array, for messages."""
    return None if array is None else tuple(array.shape)
