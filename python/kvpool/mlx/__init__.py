"""Pool-tracked caches for mlx_lm.

- `build_pooled_caches` gives one request its caches; pass them as ``prompt_cache``.
- `attach` has every cache that mlx_lm makes for a model charged to a pool: in generation without an
  explicit cache, in batch generation and in mlx_lm.server.
- `save_prompt_cache` and `load_prompt_cache` keep a request's caches in a file.
"""

from kvpool.mlx import versions as versions  # first: says what to install if it can't be used
from kvpool.mlx.attachment import attach, detach
from kvpool.mlx.caches import (
    PoolBackedArraysCache,
    PoolBackedBatchKVCache,
    PoolBackedBatchRotatingKVCache,
    PoolBackedCacheList,
    PoolBackedChunkedKVCache,
    PoolBackedConcatenateKVCache,
    PoolBackedKVCache,
    PoolBackedQuantizedKVCache,
    PoolBackedRotatingKVCache,
    build_pooled_caches,
)
from kvpool.mlx.prompt_files import load_prompt_cache, save_prompt_cache

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
    "attach",
    "build_pooled_caches",
    "detach",
    "load_prompt_cache",
    "save_prompt_cache",
]
