"""Rows of batches: which ones, and many of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from kvpool.mlx.ledger import Group
from kvpool.mlx.tracked import TrackedCache


def row_indices(indices: Any, n_rows: int) -> list[int]:
    """Return row indices as distinct integers within 0…n_rows − 1, counted from the front.

    Raises
    ------
    ValueError
        If there is no such row, or one is named twice.
    """
    chosen = [int(i) for i in (indices.tolist() if hasattr(indices, "tolist") else indices)]
    if any(not -n_rows <= i < n_rows for i in chosen):
        raise ValueError(f"rows must be within 0…{n_rows - 1}, got {chosen}")
    chosen = [i % n_rows for i in chosen]
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"a row can be kept once, got {chosen}")
    return chosen


def rows_to_merge(what: str, caches: Sequence[Any], kinds: tuple[type, ...]) -> tuple[Any, Group]:
    """Return the first of `caches` that has a pool, and the group of the batch to be made.

    Parameters
    ----------
    what : str
        The class of the batch, for messages.
    caches : sequence
        The caches to merge.
    kinds : tuple of type
        The classes that they may be of.

    Raises
    ------
    ValueError
        If none has a pool, two have different ones, or one is of another kind.
    """
    for cache in caches:
        if not isinstance(cache, kinds):
            raise ValueError(f"[{what}.merge] can't take in a {type(cache).__name__}")
    tracked = [cache for cache in caches if isinstance(cache, TrackedCache)]
    if not tracked:
        names = sorted({type(cache).__name__ for cache in caches})
        raise ValueError(f"[{what}.merge] one cache with a pool is needed at least, got {names}")
    first = tracked[0]
    if any(cache.pool is not first.pool for cache in tracked):
        raise ValueError(f"[{what}.merge] the caches are of several pools")
    groups = [cache._group if isinstance(cache, TrackedCache) else None for cache in caches]
    key = ("merge", *(None if group is None else group.number for group in groups))
    accounts = [None if group is None else group.accounts[0] for group in groups]
    return first, first._group.derived(key, first._slot, accounts)


def merged_rows(
    arrays: Sequence[mx.array | None], lengths: Sequence[int], padding: Sequence[int]
) -> mx.array:
    """Return the first `lengths` tokens of each array as rows of one, behind their padding."""
    first = next(array for array in arrays if array is not None)
    _, n_heads, _, head_dim = first.shape
    length = lengths[0] + padding[0]
    merged = mx.zeros((len(arrays), n_heads, length, head_dim), first.dtype)
    for row, (array, n_tokens, start) in enumerate(zip(arrays, lengths, padding, strict=True)):
        if array is None:
            continue
        if array.shape != (1, n_heads, array.shape[2], head_dim) or array.dtype != first.dtype:
            raise ValueError(
                f"[PoolBackedBatchKVCache.merge] one row of {n_heads} heads of {head_dim} and "
                f"{first.dtype} is needed, got {array.shape} and {array.dtype}"
            )
        merged[row : row + 1, :, start : start + n_tokens] = array[..., :n_tokens, :]
    return merged
