"""The pool-tracked cache of a layer with full attention, quantised as mlx_lm quantises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.cache import create_attention_mask

from kvpool.mlx.attaching import without_placeholders
from kvpool.mlx.growth import DEFAULT_STEP, growth, room_after_trim, shortened
from kvpool.mlx.ledger import Group
from kvpool.mlx.tracked import TrackedCache
from kvpool.mlx.versions import STATE_HOLDS_NUMBERS

if TYPE_CHECKING:
    from kvpool.mlx.plain import PoolBackedKVCache

GROUP_SIZES = (32, 64, 128)
BITS = (2, 3, 4, 5, 6, 8)
_WORD_BITS = 32

Packed = Sequence[mx.array]
"""Codes (uint32), scales and biases, as ``mx.quantize`` returns them."""


def check_quantization(group_size: int, bits: int, head_dims: Sequence[int] = ()) -> None:
    """Check that rows of `head_dims` elements can be quantised.

    Raises
    ------
    ValueError
        If they can't; the text names the values that can be used.
    """
    if bits not in BITS:
        raise ValueError(f"bits must be one of {BITS}, got {bits!r}")
    fitting = [g for g in GROUP_SIZES if all(dim % g == 0 for dim in head_dims)]
    if group_size in fitting:
        return
    if not head_dims:
        raise ValueError(f"group_size must be one of {GROUP_SIZES}, got {group_size!r}")
    dims = " and ".join(str(dim) for dim in sorted(set(head_dims)))
    allowed = f"one of {tuple(fitting)}" if fitting else f"no size of {GROUP_SIZES} does"
    raise ValueError(f"group_size must divide head_dim {dims} ({allowed}), got {group_size!r}")


class PoolBackedQuantizedKVCache(TrackedCache):
    """A pool-tracked drop-in for mlx_lm's ``QuantizedKVCache``.

    `PoolBackedKVCache.to_quantized` makes these. The blocks carry a format such as ``"int4"``, and
    are counted in tokens, as for other caches.

    Attributes
    ----------
    keys, values : tuple of mx.array or None
        Codes, scales and biases, each of shape (B, n_kv_heads, room, …).
    offset : int
        Tokens stored.
    group_size, bits : int
        How the rows are quantised.
    """

    keys: Packed | None
    values: Packed | None
    offset: int
    group_size: int
    bits: int
    step: int

    @classmethod
    def _new(
        cls, group: Group, group_size: int, bits: int, step: int | None = None
    ) -> PoolBackedQuantizedKVCache:
        check_quantization(group_size, bits)
        new = cls.__new__(cls)
        new._join(group)
        new.step = step or max(group.pool.config.block_size, DEFAULT_STEP)
        new.group_size = group_size
        new.bits = bits
        new._forget()
        return new

    @classmethod
    def _from_plain(
        cls, plain: PoolBackedKVCache, group_size: int, bits: int
    ) -> PoolBackedQuantizedKVCache:
        keys, values = plain.keys, plain.values
        if keys is not None and values is not None:
            check_quantization(group_size, bits, (keys.shape[3], values.shape[3]))
        new = cls._new(plain._group, group_size, bits, plain.step)
        if keys is not None and values is not None:
            new.keys = mx.quantize(keys, group_size=group_size, bits=bits)
            new.values = mx.quantize(values, group_size=group_size, bits=bits)
            new.offset = plain.offset
            new._settle()
        return new

    def _forget(self) -> None:
        self.keys = None
        self.values = None
        self.offset = 0
        self._limit = -1

    # -- Appending -----------------------------------------------------------------------------

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Packed, Packed]:
        """Quantise and append tokens; return all so far.

        Parameters
        ----------
        keys, values : mx.array
            Shapes (B, n_kv_heads, S, head_dim); keys and values may differ in head_dim.

        Returns
        -------
        keys, values : tuple of mx.array
            Codes, scales and biases of `offset` tokens.

        Raises
        ------
        ValueError
            If the shapes do not agree with each other and with what is stored, or if `group_size`
            does not divide head_dim.
        BlockPoolExhaustedError
            If the pool can't give the blocks that this step needs in all layers of the request.
        """
        shape, v_shape = keys.shape, values.shape
        start = self.offset
        end = start + shape[2]
        if not self._fits(keys, values):
            raise ValueError(
                "[PoolBackedQuantizedKVCache.update_and_fetch] keys and values of shapes "
                f"{shape} and {v_shape} and {keys.dtype} do not go with each other or with what "
                "is stored"
            )
        if shape[2] == 0:
            if self.keys is None:
                return self._parts(keys, 0), self._parts(values, 0)
            return self.keys_and_values()
        if shape[2] != 1 or end > self._limit:
            check_quantization(self.group_size, self.bits, (shape[3], v_shape[3]))
            self._group.secure(self, shape[2], shape[0], self._format())
            self._grow(keys, values)
        all_keys: Any = self.keys
        all_values: Any = self.values
        new = (slice(None), slice(None), slice(start, end))
        for stored, part in zip(all_keys, self._quantize(keys), strict=True):
            stored[new] = part
        for stored, part in zip(all_values, self._quantize(values), strict=True):
            stored[new] = part
        self.offset = end
        return self.keys_and_values()

    def _fits(self, keys: mx.array, values: mx.array) -> bool:
        shape, v_shape = keys.shape, values.shape
        if shape[:3] != v_shape[:3]:
            return False
        if self.keys is None or self.values is None:
            return True
        n_rows, n_heads, _, k_groups = self.keys[1].shape
        return (
            shape[:2] == (n_rows, n_heads)
            and shape[3] == k_groups * self.group_size
            and v_shape[3] == self.values[1].shape[3] * self.group_size
            and keys.dtype == self.keys[1].dtype
        )

    def _quantize(self, rows: mx.array) -> Packed:
        packed: Packed = mx.quantize(rows, group_size=self.group_size, bits=self.bits)
        return packed

    def _grow(self, keys: mx.array, values: mx.array) -> None:
        k_room, v_room = self._room()
        room = min(k_room, v_room)
        kept, after = growth(room, self.offset, keys.shape[2], self.step, k_room == v_room)
        if after == room:
            return

        def grown(stored: Packed | None, new: mx.array) -> Packed:
            added = self._parts(new, after - kept)
            if stored is None:
                return added
            return [
                mx.concatenate([part if kept == room else part[..., :kept, :], more], axis=2)
                for part, more in zip(stored, added, strict=True)
            ]

        self.keys, self.values = grown(self.keys, keys), grown(self.values, values)

    def _parts(self, like: mx.array, room: int) -> Packed:
        """Codes, scales and biases of zeros, for `room` tokens of the shape of `like`."""
        n_rows, n_heads, _, head_dim = like.shape
        codes = mx.zeros((n_rows, n_heads, room, head_dim * self.bits // _WORD_BITS), mx.uint32)
        groups = (n_rows, n_heads, room, head_dim // self.group_size)
        return codes, mx.zeros(groups, like.dtype), mx.zeros(groups, like.dtype)

    def keys_and_values(self) -> tuple[Packed, Packed]:
        """Return codes, scales and biases of the tokens stored.

        Raises
        ------
        ValueError
            If nothing is stored.
        """
        if self.keys is None or self.values is None:
            raise ValueError("[PoolBackedQuantizedKVCache.keys_and_values] the cache is empty")
        if self.offset == self._room()[0]:
            return self.keys, self.values
        stored: tuple[Packed, Packed] = tree_map(
            lambda part: part[..., : self.offset, :], (self.keys, self.values)
        )
        return stored

    # -- Books ---------------------------------------------------------------------------------

    def _format(self) -> str:
        return f"int{self.bits}"

    def _position(self) -> int:
        return self.offset

    def _n_rows(self) -> int:
        return 0 if self.keys is None else self.keys[0].shape[0]

    def _room(self) -> tuple[int, int]:
        return (
            0 if self.keys is None else self.keys[0].shape[2],
            0 if self.values is None else self.values[0].shape[2],
        )

    def _room_after(self, n_new: int) -> tuple[int, int]:
        keys, values = self._room()
        _, room = growth(min(keys, values), self.offset, n_new, self.step, keys == values)
        return max(room, keys), max(room, values)

    def _label(self) -> str:
        return self._format()

    # -- What mlx_lm asks of a cache -----------------------------------------------------------

    def size(self) -> int:
        """Return the number of tokens stored."""
        return self.offset

    def empty(self) -> bool:
        """Return whether nothing is stored."""
        return self.keys is None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, with the room they have."""
        return sum(part.nbytes for parts in (self.keys, self.values) if parts for part in parts)

    @property
    def state(self) -> Any:
        """Arrays and numbers, as the installed mlx_lm's own cache has them."""
        if STATE_HOLDS_NUMBERS:
            return self.keys, self.values, self.offset, self.group_size, self.bits
        return (self.keys, self.values) if self.keys is None else self.keys_and_values()

    @state.setter
    def state(self, state: Any) -> None:
        self._change(lambda: self._load(state, ""))

    @property
    def meta_state(self) -> Any:
        """The numbers as text where the installed mlx_lm wants them; else empty."""
        if STATE_HOLDS_NUMBERS:
            return ""
        return tuple(map(str, (self.offset, self.group_size, self.bits)))

    @meta_state.setter
    def meta_state(self, meta_state: Any) -> None:
        if meta_state:
            self.offset, self.group_size, self.bits = map(int, meta_state)

    def _load(self, state: Any, meta_state: Any) -> None:
        keys, values, *numbers = without_placeholders(list(state))
        if "step" not in self.__dict__:
            self.step = max(self._group.pool.config.block_size, DEFAULT_STEP)
        self.keys, self.values = keys, values
        if numbers:
            self.offset, self.group_size, self.bits = map(int, numbers)
        self.meta_state = meta_state
        if numbers or meta_state:
            self._check_numbers()

    def _check_numbers(self) -> None:
        room = min(self._room())
        if not 0 <= self.offset <= room:
            raise ValueError(
                f"[PoolBackedQuantizedKVCache.state] offset must be within 0…{room}, got "
                f"{self.offset}"
            )
        for packed in (self.keys, self.values):
            if packed is None:
                continue
            codes, scales = packed[0].shape[-1] * 32 // self.bits, packed[1].shape[-1]
            if codes != scales * self.group_size:
                raise ValueError(
                    f"[PoolBackedQuantizedKVCache.state] {self.bits} bits in groups of "
                    f"{self.group_size} do not go with {codes} codes and {scales} scales a token"
                )

    def is_trimmable(self) -> bool:
        """Return True: the newest tokens can always be dropped."""
        return True

    def trim(self, n: int) -> int:
        """Drop the newest `n` tokens; see `PoolBackedKVCache.trim`."""
        n = min(max(n, 0), self.offset)
        if n == 0:
            return 0
        self._change(lambda: self._cut(n))
        return n

    def _cut(self, n: int) -> None:
        self.offset -= n
        if self.keys is not None and self.values is not None:
            room = room_after_trim(min(self._room()), self.offset, n, self.step)
            if room == 0:
                self.keys = self.values = None
            elif room < max(self._room()):
                self.keys = [shortened(part, room) for part in self.keys]
                self.values = [shortened(part, room) for part in self.values]

    def make_mask(self, *args: Any, **kwargs: Any) -> Any:
        """Return the attention mask that mlx_lm makes for its own cache at this offset."""
        if args:
            self._group.announce(args[0])
        return create_attention_mask(*args, offset=self.offset, **kwargs)

    def _adopt(self, other: Any) -> None:
        """Take over what one of mlx_lm's own caches of this kind holds."""
        self.keys, self.values, self.offset = other.keys, other.values, other.offset
        self._charge_new()
