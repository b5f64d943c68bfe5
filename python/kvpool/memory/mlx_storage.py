"""MLXBlockStorage: an MLX array behind each block of a pool.

The pool says who owns which block; the storage holds the bytes. Codes of less than a byte are
really packed, row by row, the first code in the lowest bits::

    head_dim 5, int2    codes  3 0 1 2 | 1
                        bytes  10 01 00 11 | 00 00 00 01       two bytes a row
                               2  1  0  3               1
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import mlx.core as mx

from kvpool.memory import Block, BlockPoolAllocator

_FLOATS = {"fp16": mx.float16, "bf16": mx.bfloat16, "fp32": mx.float32}
_CODE_BITS = {"int8": 8, "int4": 4, "int2": 2, "int1": 1}


class _Buffer(NamedTuple):
    """What is held for a block id, and the check-out that it was last used by."""

    array: mx.array
    block: Block


class MLXBlockStorage:
    """One array for each block that was used, kept for the block's next owners.

    Parameters
    ----------
    pool : BlockPoolAllocator
        The pool whose blocks are stored.
    head_dim : int
        Elements of a row, at least 1.

    Raises
    ------
    TypeError
        If `pool` is no pool or `head_dim` no integer.
    ValueError
        If `head_dim` is less than 1.

    Notes
    -----
    A block that was given back and checked out again begins with zeros: the array is cleared when
    its new owner first uses it. It stays the same array object, so that who kept it from an earlier
    check-out sees what its next owner writes; handles of blocks are safe from that, arrays are not.

    Different threads may use different blocks at the same time.

    Examples
    --------
    >>> import mlx.core as mx
    >>> from kvpool.memory import BlockPoolAllocator
    >>> pool = BlockPoolAllocator()
    >>> storage = MLXBlockStorage(pool, head_dim=4)
    >>> (block,) = pool.allocate("k", 2, "request", format="int4")
    >>> storage.write(block, 0, mx.array([[1, 2, 3, 4], [15, 0, 0, 7]], mx.uint8))
    >>> storage.read(block).tolist()
    [[1, 2, 3, 4], [15, 0, 0, 7]]
    >>> storage.resident_bytes()  # 16 rows of two bytes
    32
    """

    def __init__(self, pool: BlockPoolAllocator, head_dim: int) -> None:
        if not isinstance(pool, BlockPoolAllocator):
            raise TypeError(f"[MLXBlockStorage] pool must be a BlockPoolAllocator, got {pool!r}")
        self.pool = pool
        self.head_dim = operator.index(head_dim)
        if self.head_dim < 1:
            raise ValueError(f"[MLXBlockStorage] head_dim must be at least 1, got {head_dim}")
        self._buffers: dict[int, _Buffer] = {}
        self._n_retired = pool.stats.n_retired

    def buffer_for(self, block: Block) -> mx.array:
        """Return the array behind a block.

        Returns
        -------
        mx.array
            Shape (block_size, head_dim) and float16, float32 or bfloat16 for those formats; for
            codes, packed bytes of shape (block_size, ceil(head_dim · bits / 8)), uint8. Zeros at
            first. The same object for as long as the block keeps its format, whoever owns it.

        Raises
        ------
        ValueError
            If the format is none that can be stored, or the block is not checked out of this pool.
        """
        shape, dtype = self._layout(block)
        self._require_live(block, "buffer_for")
        self._drop_retired()
        held = self._buffers.get(block.block_id)
        reused = held is not None and held.block.generation != block.generation
        if held is None or held.block.format != block.format:
            held = _Buffer(mx.zeros(shape, dtype), block)
            self._buffers[block.block_id] = held
        elif reused:
            held.array[:] = 0
            self._buffers[block.block_id] = _Buffer(held.array, block)
        return held.array

    def write(self, block: Block, offset: int, values: Any) -> None:
        """Write rows into a block. What the pool knows of used slots does not change.

        Parameters
        ----------
        block : Block
            A block that is checked out.
        offset : int
            The first slot to write.
        values : mx.array or array_like
            Shape (n, head_dim): numbers, or one code an element for formats of codes.

        Raises
        ------
        TypeError
            If codes are not integers.
        ValueError
            If the rows do not fit the block, a code is out of range, the block is not checked out,
            or its format can't be stored. Nothing is written then.
        """
        self._layout(block)
        self._require_live(block, "write")
        rows = values if isinstance(values, mx.array) else mx.array(values)
        start = operator.index(offset)
        if rows.ndim != 2 or rows.shape[1] != self.head_dim:
            raise ValueError(
                f"[MLXBlockStorage.write] values must have shape (n, {self.head_dim}), got "
                f"{rows.shape}"
            )
        block_size = self.pool.config.block_size
        if start < 0 or start + rows.shape[0] > block_size:
            raise ValueError(
                f"[MLXBlockStorage.write] {rows.shape[0]} rows at slot {start} do not fit a block "
                f"of {block_size}"
            )
        if rows.shape[0] == 0:
            return
        bits = _CODE_BITS.get(block.format)
        if bits is not None:
            rows = pack(rows, bits)
        buffer = self.buffer_for(block)
        buffer[start : start + rows.shape[0]] = rows
        # Else the array would be a graph that grows with every write, and not hold its bytes yet.
        mx.eval(buffer)

    def read(self, block: Block) -> mx.array:
        """Return the rows of a block that are in use.

        Returns
        -------
        mx.array
            Shape (n_used, head_dim); codes as uint8, one an element. No rows of a block that was
            given back.

        Raises
        ------
        ValueError
            If the format can't be stored.
        """
        _, dtype = self._layout(block)
        if not self.pool.holds(block):
            return mx.zeros((0, self.head_dim), dtype)
        rows = self.buffer_for(block)[: block.n_used]
        bits = _CODE_BITS.get(block.format)
        return rows if bits is None else unpack(rows, bits, self.head_dim)

    def resident_bytes(self) -> int:
        """Return the bytes of all arrays held."""
        self._drop_retired()
        return sum(held.array.nbytes for held in list(self._buffers.values()))

    def release(self, block: Block) -> None:
        """Drop the array of a block that was given back. It has none afterwards.

        Raises
        ------
        ValueError
            If the block is in use, by this check-out or a later one.
        """
        held = self._buffers.get(block.block_id)
        if self.pool.holds(block) or (held is not None and self.pool.holds(held.block)):
            raise ValueError(
                f"[MLXBlockStorage.release] block {block.block_id} is in use; free it first"
            )
        self._buffers.pop(block.block_id, None)

    def _layout(self, block: Block) -> tuple[tuple[int, int], mx.Dtype]:
        block_size = self.pool.config.block_size
        dtype = _FLOATS.get(block.format)
        if dtype is not None:
            return (block_size, self.head_dim), dtype
        bits = _CODE_BITS.get(block.format)
        if bits is not None:
            return (block_size, -(-self.head_dim * bits // 8)), mx.uint8
        raise ValueError(
            f"[MLXBlockStorage] format must be one of {', '.join([*_FLOATS, *_CODE_BITS])}; got "
            f"{block.format!r}"
        )

    def _require_live(self, block: Block, what: str) -> None:
        if not self.pool.holds(block):
            raise ValueError(
                f"[MLXBlockStorage.{what}] block {block.block_id} is not checked out by this "
                "handle: it was given back, or never came from this pool"
            )

    def _drop_retired(self) -> None:
        """Drop the arrays of blocks that the pool has retired since this was last asked."""
        n_retired = self.pool.stats.n_retired
        if n_retired == self._n_retired:
            return
        self._n_retired = n_retired
        for block_id in list(self._buffers):
            if not self.pool.is_managed(block_id):
                self._buffers.pop(block_id, None)


def pack(codes: mx.array, bits: int) -> mx.array:
    """Pack codes into bytes, the first of each byte in its lowest bits.

    Parameters
    ----------
    codes : mx.array
        Shape (n, d), any integer dtype.
    bits : int
        Bits of a code: 1, 2, 4 or 8.

    Returns
    -------
    mx.array
        Shape (n, ceil(d · bits / 8)), uint8.

    Raises
    ------
    TypeError
        If the codes are not integers.
    ValueError
        If a code is not within 0…2^bits − 1.
    """
    if not mx.issubdtype(codes.dtype, mx.integer):
        raise TypeError(f"[MLXBlockStorage] codes must be integers, got {codes.dtype}")
    low, high = int(codes.min().item()), int(codes.max().item())  # type: ignore[arg-type]
    if low < 0 or high >= 1 << bits:
        raise ValueError(
            f"[MLXBlockStorage] codes must be within 0…{(1 << bits) - 1}, got {low}…{high}"
        )
    codes = codes.astype(mx.uint8)
    per_byte = 8 // bits
    if per_byte == 1:
        return codes
    n_rows, width = codes.shape
    codes = mx.pad(codes, [(0, 0), (0, -width % per_byte)])
    shifted = codes.reshape(n_rows, -1, per_byte) << (mx.arange(per_byte, dtype=mx.uint8) * bits)
    return shifted.sum(axis=2).astype(mx.uint8)


def unpack(packed: mx.array, bits: int, width: int) -> mx.array:
    """Undo `pack` for rows of `width` codes: shape (n, width), uint8."""
    per_byte = 8 // bits
    if per_byte == 1:
        return packed[:, :width]
    shifts = mx.arange(per_byte, dtype=mx.uint8) * bits
    codes = (packed[:, :, None] >> shifts) & ((1 << bits) - 1)
    return codes.reshape(packed.shape[0], packed.shape[1] * per_byte)[:, :width]
