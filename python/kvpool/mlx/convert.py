"""From mlx_lm's own caches to pool-tracked ones, by exact type."""

from __future__ import annotations

from typing import Any

from mlx_lm.models import cache as stock

from kvpool.mlx.arrays import PoolBackedArraysCache
from kvpool.mlx.attaching import AttachedLater
from kvpool.mlx.batch import PoolBackedBatchKVCache
from kvpool.mlx.cache_list import PoolBackedCacheList
from kvpool.mlx.chunked import PoolBackedChunkedKVCache, PoolBackedConcatenateKVCache
from kvpool.mlx.ledger import Group
from kvpool.mlx.plain import PoolBackedKVCache
from kvpool.mlx.quantized import PoolBackedQuantizedKVCache
from kvpool.mlx.rotating import PoolBackedBatchRotatingKVCache, PoolBackedRotatingKVCache

POOLED_KINDS: tuple[type[AttachedLater], ...] = (
    PoolBackedKVCache,
    PoolBackedQuantizedKVCache,
    PoolBackedBatchKVCache,
    PoolBackedRotatingKVCache,
    PoolBackedBatchRotatingKVCache,
    PoolBackedChunkedKVCache,
    PoolBackedConcatenateKVCache,
    PoolBackedArraysCache,
    PoolBackedCacheList,
)

# mlx_lm's loader of prompt caches looks class names up among the names of its own module.
for _kind in POOLED_KINDS:
    setattr(stock, _kind.__name__, _kind)


def pooled(entry: Any, group: Group, step: int | None = None) -> Any:
    """Return the pool-tracked cache of the kind of `entry`, in a group, with what `entry` holds.

    Parameters
    ----------
    entry : cache
        One of mlx_lm's own caches, or one of ours that was loaded without a pool.
    group : Group
        The request that it is part of.
    step : int, optional
        Tokens by which arrays grow.

    Raises
    ------
    ValueError
        If there is no pool-tracked cache of this type. A subclass is another type: what it does
        differently is not known here.
    BlockPoolExhaustedError
        If the pool can't hold what the entry holds.
    """
    if isinstance(entry, AttachedLater):
        entry._attach_to(group)
        return entry
    kind = type(entry)
    new: Any
    if kind is stock.CacheList:
        return PoolBackedCacheList._new(group, [pooled(e, group, step) for e in entry.caches])
    if kind is stock.KVCache:
        new = PoolBackedKVCache._new(group, step)
    elif kind is stock.RotatingKVCache:
        new = PoolBackedRotatingKVCache._new(group, entry.max_size, entry.keep, step)
    elif kind is stock.QuantizedKVCache:
        new = PoolBackedQuantizedKVCache._new(group, entry.group_size, entry.bits, step)
    elif kind is stock.ChunkedKVCache:
        new = PoolBackedChunkedKVCache._new(group, entry.chunk_size, step)
    elif kind is stock.ArraysCache:
        new = PoolBackedArraysCache._new(group, len(entry.cache))
    elif kind is stock.ConcatenateKVCache:
        new = PoolBackedConcatenateKVCache._new(group)
    else:
        known = sorted(
            name for name in vars(stock) if name.endswith("Cache") and "PoolBacked" + name in _NAMES
        )
        raise ValueError(
            f"no pool-tracked cache is known for {kind.__module__}.{kind.__qualname__}; there are "
            f"for mlx_lm's {', '.join(known)}"
        )
    if not entry.empty():
        new._adopt(entry)
    return new


_NAMES = frozenset(kind.__name__ for kind in POOLED_KINDS)
