"""Attaching a pool to a model, so that whatever asks the model for caches gets pooled ones."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from kvpool.memory import BlockPoolAllocator
from kvpool.mlx.caches import build_pooled_caches
from kvpool.mlx.growth import check_step

_MAKE_CACHE = "make_cache"


class MakePooledCache:
    """What stands in for ``make_cache`` of an attached model.

    Does not keep the model alive.

    Parameters
    ----------
    model : mlx_lm model
        The model.
    pool, step, max_kv_size
        As for `build_pooled_caches`.
    own : callable or None
        A ``make_cache`` that had been set on this very model, not on its class.
    """

    def __init__(
        self,
        model: Any,
        pool: BlockPoolAllocator,
        step: int | None,
        max_kv_size: int | None,
        own: Callable[[], list[Any]] | None,
    ) -> None:
        self._model = weakref.ref(model)
        self.pool = pool
        self.step = step
        self.max_kv_size = max_kv_size
        self.own = own

    def __call__(self) -> list[Any]:
        """Return pooled caches under a fresh private owner."""
        return build_pooled_caches(
            self._model(), self.pool, step=self.step, max_kv_size=self.max_kv_size
        )

    def original(self, model: Any) -> Callable[[], list[Any]] | None:
        """Return what made the caches before, or None if that was mlx_lm's default."""
        if self.own is not None:
            return self.own
        of_class = getattr(type(model), _MAKE_CACHE, None)
        return None if of_class is None else functools.partial(of_class, model)


def attach(
    model: Any,
    pool: BlockPoolAllocator,
    step: int | None = None,
    *,
    max_kv_size: int | None = None,
) -> None:
    """Have every cache that is made for a model charged to a pool.

    mlx_lm asks the model for its caches whenever none are passed: in ``generate``, in batch
    generation and in ``mlx_lm.server``. Each time, the caches get a fresh private owner; their
    blocks go back when mlx_lm drops them. Attaching again replaces the pool.

    Size the pool for what mlx_lm keeps at a time. Batch generation copies the prompts' caches when
    their generation begins, and so needs their blocks twice for a moment. mlx_lm.server also keeps
    caches of past prompts (``--prompt-cache-bytes`` bounds them), and any exception in its
    generation thread, a pool that is exhausted included, ends that thread: let its pool grow, or
    make it large enough for the store and the requests together.

    Parameters
    ----------
    model : mlx_lm model
        A loaded model.
    pool : BlockPoolAllocator
        The pool to charge.
    step : int, optional
        Tokens by which arrays grow; ``max(block_size, 256)`` unless given.
    max_kv_size : int, optional
        The window of all layers, for models that do not choose their caches themselves. mlx_lm does
        not pass on its own ``max_kv_size`` to a model that is attached.

    Raises
    ------
    TypeError
        If `pool` is no pool, or `step` no integer.
    ValueError
        If `step` is less than 1, or the model asks for a cache of a type that there is no
        pool-tracked one for.
    """
    check_step(step)
    build_pooled_caches(model, pool, step=step, max_kv_size=max_kv_size)
    current = vars(model).get(_MAKE_CACHE)
    own = current.own if isinstance(current, MakePooledCache) else current
    setattr(model, _MAKE_CACHE, MakePooledCache(model, pool, step, max_kv_size, own))


def detach(model: Any) -> None:
    """Undo `attach`. Caches that exist stay with their pool.

    Raises
    ------
    ValueError
        If the model is not attached.
    """
    current = vars(model).get(_MAKE_CACHE)
    if not isinstance(current, MakePooledCache):
        raise ValueError(f"[detach] {type(model).__name__} is not attached to a pool")
    delattr(model, _MAKE_CACHE)
    if current.own is not None:
        setattr(model, _MAKE_CACHE, current.own)
