"""The caches of a request: one pool-tracked cache for each entry that the model asks for."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from mlx_lm.models import cache as stock

from kvpool.memory import BlockPoolAllocator
from kvpool.memory.ownership import PRIVATE
from kvpool.mlx.arrays import PoolBackedArraysCache
from kvpool.mlx.batch import PoolBackedBatchKVCache
from kvpool.mlx.cache_list import PoolBackedCacheList
from kvpool.mlx.chunked import PoolBackedChunkedKVCache, PoolBackedConcatenateKVCache
from kvpool.mlx.convert import pooled
from kvpool.mlx.growth import check_step
from kvpool.mlx.ledger import Group
from kvpool.mlx.plain import PoolBackedKVCache
from kvpool.mlx.quantized import PoolBackedQuantizedKVCache
from kvpool.mlx.rotating import PoolBackedBatchRotatingKVCache, PoolBackedRotatingKVCache

__all__ = [
    "PoolBackedArraysCache",
    "PoolBackedBatchKVCache",
    "PoolBackedBatchRotatingKVCache",
    "PoolBackedCacheList",
    "PoolBackedChunkedKVCache",
    "PoolBackedConcatenateKVCache",
    "PoolBackedKVCache",
    "PoolBackedQuantizedKVCache",
    "PoolBackedRotatingKVCache",
    "build_pooled_caches",
]


def build_pooled_caches(
    model: Any,
    pool: BlockPoolAllocator,
    owner: Hashable = PRIVATE,
    step: int | None = None,
    *,
    max_kv_size: int | None = None,
) -> list[Any]:
    """Return the caches of one request: for each entry that the model asks for, ours of its kind.

    All share one owner, so that releasing any releases all, and a forward step is charged for all
    or not at all.

    Parameters
    ----------
    model : mlx_lm model
        A loaded model, attached to a pool or not.
    pool : BlockPoolAllocator
        The pool to charge.
    owner : hashable
        Whom the blocks are checked out to. -1 takes a fresh private owner.
    step : int, optional
        Tokens by which arrays grow; ``max(block_size, 256)`` unless given.
    max_kv_size : int, optional
        As for mlx_lm's ``make_prompt_cache``: the window of all layers, for models that do not
        choose their caches themselves.

    Raises
    ------
    ValueError
        If `step` is less than 1, `owner` is None, or the model asks for a cache of a type that
        there is no pool-tracked one for.
    OwnerAlreadyActiveError
        If `owner` has live caches on this pool.
    """
    check_step(step)
    group = Group.of(pool, owner)
    try:
        return [pooled(entry, group, step) for entry in stock_caches(model, max_kv_size)]
    except BaseException:
        group.release()
        raise


def stock_caches(model: Any, max_kv_size: int | None = None) -> list[Any]:
    """Return the caches that mlx_lm would make for a model, were it not attached to a pool."""
    from kvpool.mlx.attachment import MakePooledCache

    make_cache = getattr(model, "make_cache", None)
    if isinstance(make_cache, MakePooledCache):
        make_cache = make_cache.original(model)
    if make_cache is not None:
        return list(make_cache())
    if max_kv_size is not None:
        # The four tokens that mlx_lm keeps at the start of such a window.
        return [stock.RotatingKVCache(max_size=max_kv_size, keep=4) for _ in model.layers]
    return [stock.KVCache() for _ in model.layers]
