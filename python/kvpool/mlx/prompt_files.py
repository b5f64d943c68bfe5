"""Prompt caches in files."""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import cache as stock

from kvpool.memory import BlockPoolAllocator
from kvpool.memory.ownership import PRIVATE
from kvpool.mlx.convert import pooled
from kvpool.mlx.ledger import Group
from kvpool.mlx.versions import STATE_HOLDS_NUMBERS


def save_prompt_cache(
    file: str | os.PathLike[str], cache: list[Any], metadata: dict[str, str] | None = None
) -> None:
    """Write the caches of a request to a file, in mlx_lm's format.

    mlx_lm's own loader reads the file as well where this package is imported; the caches that it
    makes of ours have no pool, see `TrackedCache.attach`.

    All arrays are evaluated first. What another thread has left unevaluated on a stream of its own
    can't be: that is an error here, and nothing is written.

    Parameters
    ----------
    file : path
        A ``.safetensors`` file.
    cache : list
        One cache a layer, ours or mlx_lm's own.
    metadata : dict of str to str, optional
        Text to keep along.

    Raises
    ------
    RuntimeError
        If an array can't be evaluated in this thread.
    """
    states = [entry.state for entry in cache]
    mx.eval(states)
    entries = cache if STATE_HOLDS_NUMBERS else [_Saved.of(entry) for entry in cache]
    stock.save_prompt_cache(os.fspath(file), entries, metadata or {})


class _Saved:
    """A cache as releases before 0.32 can write it: an empty array stands for None."""

    def __init__(self, state: Any, meta_state: Any) -> None:
        self.state = tree_map(lambda leaf: mx.zeros((0,)) if leaf is None else leaf, state)
        self.meta_state = meta_state

    @classmethod
    def of(cls, entry: Any) -> _Saved:
        """Return the stand-in for a cache; its class has the name of the cache's own."""
        kind: type[_Saved] = type(type(entry).__name__, (cls,), {})
        return kind(entry.state, entry.meta_state)


def load_prompt_cache(
    file: str | os.PathLike[str],
    pool: BlockPoolAllocator,
    owner: Hashable = PRIVATE,
    return_metadata: bool = False,
) -> Any:
    """Read the caches of a request from a file and charge them to a pool.

    Parameters
    ----------
    file : path
        A file that `save_prompt_cache` or mlx_lm wrote, with the release of mlx_lm that is
        installed.
    pool : BlockPoolAllocator
        The pool to charge.
    owner : hashable, optional
        Whom the blocks are checked out to. -1 (default) takes a fresh private owner.
    return_metadata : bool
        Whether to return the metadata as well.

    Returns
    -------
    cache : list
        Pool-tracked caches, all of one request.
    metadata : dict of str to str
        If `return_metadata` is true.

    Raises
    ------
    ValueError
        If the file has a cache of a type that there is no pool-tracked one for.
    OwnerAlreadyActiveError
        If `owner` has live caches on this pool.
    BlockPoolExhaustedError
        If the pool can't hold the caches; nothing stays charged.
    """
    entries, metadata = stock.load_prompt_cache(os.fspath(file), return_metadata=True)
    group = Group.of(pool, owner)
    try:
        cache = [pooled(entry, group) for entry in entries]
    except BaseException:
        group.release()
        raise
    return (cache, metadata) if return_metadata else cache
