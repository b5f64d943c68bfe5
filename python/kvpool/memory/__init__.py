"""The block allocator, and the caches and storage built on it.

Examples
--------
>>> from kvpool.memory import BlockPoolAllocator, PoolConfig
>>> pool = BlockPoolAllocator(PoolConfig(block_size=16, n_blocks=512))
>>> pool.allocate("k", n_tokens=20, owner="request-1")[1].n_used
4
>>> pool.counts()
PoolCounts(managed=512, free=510, live=2, reserved=0, cached=0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvpool._core import (
    DEFAULT_BLOCK_SIZE,
    DEFAULT_HISTORY_SIZE,
    AllocationStats,
    Block,
    BlockPoolAllocator,
    BlockPoolExhaustedError,
    History,
    OwnerAlreadyActiveError,
    PoolConfig,
    PoolCounts,
    Reservation,
)
from kvpool._lazy import load_name

if TYPE_CHECKING:
    from kvpool.memory.mlx_storage import MLXBlockStorage as MLXBlockStorage
    from kvpool.memory.pooled_cache import PooledKVCache
    from kvpool.mlx import PoolBackedKVCache as PoolBackedKVCache
    from kvpool.mlx import build_pooled_caches as build_pooled_caches

# What ``import *`` brings: all that needs no MLX. The names of _LAZY are there when asked for.
__all__ = [
    "DEFAULT_BLOCK_SIZE",
    "DEFAULT_HISTORY_SIZE",
    "AllocationStats",
    "Block",
    "BlockPoolAllocator",
    "BlockPoolExhaustedError",
    "History",
    "OwnerAlreadyActiveError",
    "PoolConfig",
    "PoolCounts",
    "PooledKVCache",
    "Reservation",
]

_LAZY = {
    "MLXBlockStorage": "kvpool.memory.mlx_storage",
    "PoolBackedKVCache": "kvpool.mlx",
    "PooledKVCache": "kvpool.memory.pooled_cache",
    "build_pooled_caches": "kvpool.mlx",
}


def __getattr__(name: str) -> Any:
    return load_name(__name__, name, _LAZY)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
