"""A pool of the right size for the demo's requests, and a request that it has no room for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvpool.cli.demo.requests import Request
from kvpool.cli.model import n_caches
from kvpool.memory import BlockPoolAllocator, PoolConfig

if TYPE_CHECKING:
    import mlx.nn as nn

DEFAULT_STEP = 256
"""Tokens by which mlx_lm's caches grow, and pooled ones unless told otherwise."""

_N_STREAMS = 2


def make_pool(
    model: nn.Module,
    requests: Sequence[Request],
    max_tokens: int,
    block_size: int,
    n_blocks: int | None,
    step: int | None,
) -> BlockPoolAllocator:
    """Return a pool of `n_blocks`, by default room for all requests at once and an eighth more."""
    if n_blocks is None:
        step = step or max(block_size, DEFAULT_STEP)
        wanted = 0
        for request in requests:
            # mlx_lm computes one token ahead of the one it hands out.
            room = -(-(len(request.prompt) + max_tokens + 1) // step) * step
            wanted += _N_STREAMS * n_caches(model) * -(-room // block_size)
        n_blocks = wanted + wanted // 8
    return BlockPoolAllocator(PoolConfig(block_size=block_size, n_blocks=n_blocks))


def has_unbounded_cache(model: nn.Module) -> bool:
    """Tell whether some cache grows with the prompt, as those of full attention do.

    Without one (recurrent states and sliding windows alone), no prompt is too long for a pool.
    """
    from mlx_lm.models.cache import ArraysCache, CacheList, RotatingKVCache, make_prompt_cache

    entries = list(make_prompt_cache(model))
    while entries:
        entry = entries.pop()
        if isinstance(entry, CacheList):
            entries += entry.caches
        elif not isinstance(entry, (ArraysCache, RotatingKVCache)):
            return True
    return False


def tokens_beyond(model: nn.Module, pool: BlockPoolAllocator) -> int:
    """Return the length of a prompt that the pool could not hold if it were empty."""
    config = pool.config
    return config.n_blocks * config.block_size // (_N_STREAMS * n_caches(model)) + 1
