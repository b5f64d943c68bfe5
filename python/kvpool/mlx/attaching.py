"""Caches that were loaded without a pool, and how they get one."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_map

from kvpool.memory import BlockPoolAllocator
from kvpool.memory.ownership import PRIVATE, live_account
from kvpool.mlx.ledger import Group

if TYPE_CHECKING:
    from typing_extensions import Self


class Unattached:
    """What a cache is besides its kind while it has no pool.

    It has no attribute but the saved state then, so that any use ends in `__getattr__`. That is not
    a method of the caches themselves: models ask at every step for attributes that a cache need not
    have (``hasattr(cache, "bits")``), and would pay for it.
    """

    def __getattr__(self, name: str) -> Any:
        """Tell what to do."""
        raise RuntimeError(
            f"[{type(self).__name__}.{name}] the cache was loaded without a pool; call "
            "cache.attach(pool, owner), or load with kvpool.mlx.load_prompt_cache"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, not attached to a pool>"


@functools.cache
def unattached(kind: type[AttachedLater]) -> type[AttachedLater]:
    """Return the class, of the same name, of caches of a kind that have no pool."""
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (Unattached, kind), names)


class AttachedLater:
    """A cache that can exist as a saved state only, until it is told its pool."""

    @classmethod
    def from_state(cls, state: Any, meta_state: Any = "") -> Self:
        """Return a cache with a saved `state` that has no pool yet: see `attach`.

        mlx_lm's ``load_prompt_cache`` makes caches this way.
        """
        new = cls.__new__(cls)
        new.__dict__["_saved"] = (state, meta_state)
        kind: Any = cls
        new.__class__ = unattached(kind)  # type: ignore[assignment]
        return new

    def attach(self, pool: BlockPoolAllocator, owner: Hashable = PRIVATE) -> Self:
        """Give a cache that `from_state` made its pool, and charge it.

        Caches attached with one owner (other than -1) become one request, as the layers of a loaded
        prompt cache are.

        Returns
        -------
        cache
            The cache itself.

        Raises
        ------
        RuntimeError
            If the cache has a pool.
        OwnerAlreadyActiveError
            If the owner has live caches on this pool that were made in another way.
        BlockPoolExhaustedError
            If the pool can't hold the cache; then it stays unattached.
        """
        private = isinstance(owner, int) and owner == PRIVATE
        account = None if private else live_account(pool, owner)
        group = account.group() if account is not None and account.group is not None else None
        if group is None:
            group = Group.of(pool, owner)
            group.accounts[0].group = weakref.ref(group)
        self._attach_to(group)
        return self

    def _attach_to(self, group: Group) -> None:
        kind = type(self)
        if not issubclass(kind, Unattached):
            raise RuntimeError(f"[{kind.__name__}.attach] the cache has a pool")
        saved = self.__dict__.pop("_saved")
        self.__class__ = kind.__bases__[1]
        try:
            self._take_over(group, *saved)
        except BaseException:
            self.__dict__.clear()
            self.__dict__["_saved"] = saved
            self.__class__ = kind
            raise

    def _take_over(self, group: Group, state: Any, meta_state: Any) -> None:
        """Become a charged cache of a group, from a saved state."""
        raise NotImplementedError


def without_placeholders(state: Any) -> Any:
    """Return a loaded state with None for the empty arrays that stand for it in a file."""
    return tree_map(
        lambda leaf: None if isinstance(leaf, mx.array) and leaf.shape == (0,) else leaf, state
    )
