"""Several pool-tracked caches of one layer behind one entry."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from mlx_lm.models import cache as stock

from kvpool.memory import BlockPoolAllocator
from kvpool.mlx.attaching import AttachedLater
from kvpool.mlx.ledger import Group
from kvpool.mlx.versions import STATE_HOLDS_NUMBERS

if TYPE_CHECKING:
    from typing_extensions import Self


class PoolBackedCacheList(AttachedLater, stock.CacheList):  # type: ignore[misc]
    """A drop-in for mlx_lm's ``CacheList`` whose caches are pool-tracked.

    Attributes
    ----------
    caches : tuple
        The caches, all of one request or batch.
    """

    _group: Group
    caches: tuple[Any, ...]

    def __init__(self) -> None:
        raise TypeError("[PoolBackedCacheList] a list of caches comes from build_pooled_caches")

    @classmethod
    def _new(cls, group: Group, caches: Sequence[Any]) -> PoolBackedCacheList:
        new = cls.__new__(cls)
        new._group = group
        new.caches = tuple(caches)
        return new

    @property
    def pool(self) -> BlockPoolAllocator:
        """The pool that the blocks come from."""
        return self._group.pool

    @property
    def owner(self) -> Hashable:
        """The owner that the blocks are checked out to; of a batch, that of the first row."""
        return self._group.accounts[0].owner

    def release(self) -> None:
        """Give back every block of the request; see `TrackedCache.release`."""
        self._group.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return an independent list under a fresh owner; see `TrackedCache.__deepcopy__`."""
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new._group = copy.deepcopy(self._group, memo)
        new.caches = tuple(copy.deepcopy(cache, memo) for cache in self.caches)
        return new

    def trim(self, n: int) -> int:
        """Drop the newest `n` tokens of every cache, if all can; returns how many went."""
        if not self.is_trimmable():
            return 0
        return min((cache.trim(n) for cache in self.caches), default=0)

    @classmethod
    def merge(cls, caches: Sequence[Any]) -> PoolBackedCacheList:
        """Return a list of batch caches; see `PoolBackedBatchKVCache.merge` for the errors."""
        rows = [cache.caches for cache in caches]
        merged = []
        for entries in zip(*rows, strict=True):
            ours: Any = next((e for e in entries if isinstance(e, AttachedLater)), None)
            if ours is None:
                raise ValueError(
                    "[PoolBackedCacheList.merge] one list with a pool is needed at least"
                )
            merged.append(ours.merge(entries))
        return cls._new(merged[0]._group, merged)

    def extract(self, idx: int) -> PoolBackedCacheList:
        """Return row `idx` of every cache; see `PoolBackedBatchKVCache.extract`."""
        extracted = [cache.extract(idx) for cache in self.caches]
        return PoolBackedCacheList._new(extracted[0]._group, extracted)

    @property
    def state(self) -> Any:
        """What mlx_lm's own list has as its state."""
        return stock.CacheList.state.fget(self)

    @state.setter
    def state(self, state: Any) -> None:
        if STATE_HOLDS_NUMBERS:
            self.caches = self._loaded(self._group, state, "")
        else:
            for cache, part in zip(self.caches, state, strict=True):
                cache.state = part

    def _take_over(self, group: Group, state: Any, meta_state: Any) -> None:
        self.caches = self._loaded(group, state, meta_state)
        self._group = group

    @staticmethod
    def _loaded(group: Group, state: Any, meta_state: Any) -> tuple[Any, ...]:
        from kvpool.mlx.convert import pooled

        if meta_state:  # of releases before 0.32
            names, metas = meta_state
            saved = list(zip(names, state, metas, strict=True))
        else:
            saved = [(name, part, "") for part, name in state]
        caches = []
        for name, part, meta in saved:
            parts = (part, meta) if meta_state else (part,)
            caches.append(pooled(getattr(stock, name).from_state(*parts), group))
        return tuple(caches)

    def __repr__(self) -> str:
        return f"<PoolBackedCacheList of {list(self.caches)}>"
