"""The pool-tracked cache of a layer that keeps states instead of tokens, as Mamba does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as stock

from kvpool.mlx.ledger import Group
from kvpool.mlx.lines import UNBOUNDED, Demand, Line
from kvpool.mlx.rows import row_indices, rows_to_merge
from kvpool.mlx.tracked import TrackedStockCache, format_of


class PoolBackedArraysCache(TrackedStockCache, stock.ArraysCache):  # type: ignore[misc]
    """A pool-tracked drop-in for mlx_lm's ``ArraysCache``, for one request or a batch.

    A state does not grow with the tokens, so it is charged by the piece: one block for each state
    array and batch row, of stream "k" for the arrays of even index and "v" for the others. The
    blocks of all state arrays are checked out when the first is assigned, and count as full.

    A layer of states is not told how many tokens a step appends. It relies on the mask that the
    model makes first (``make_mask``, of any cache of the request) to plan the step of the layers
    that do grow; a model that makes none has these planned when they come.
    """

    _stock = stock.ArraysCache
    _clock = None
    cache: list[mx.array | None]

    @classmethod
    def _new(cls, group: Group, size: int) -> PoolBackedArraysCache:
        new = cls.__new__(cls)
        stock.ArraysCache.__init__(new, size)
        new._join(group)
        new._charged = 0
        return new

    def _forget(self) -> None:
        stock.ArraysCache.__init__(self, len(self.cache))
        self._charged = 0

    def __setitem__(self, idx: int, value: mx.array | None) -> None:
        """Assign a state array, shape (B, …).

        Raises
        ------
        BlockPoolExhaustedError
            If the pool can't give the blocks that this step needs in all layers of the request.
            Nothing has changed then, in any layer.
        """
        group = self._group
        if value is not None:
            n_rows = value.shape[0]
            announced = group.announced
            if announced:
                group.begin_announced_step(n_rows, format_of(value.dtype))
            if n_rows == self._charged:
                self.cache[idx] = value
                return
            if not self._lines or len(self._lines) == n_rows:
                group.secure_states(self, announced, n_rows, format_of(value.dtype))
                self.cache[idx] = value
                self._charged = n_rows
                return
        before, self.cache[idx] = self.cache[idx], value
        try:
            self._settle()
        except BaseException:
            self.cache[idx] = before
            raise

    # -- Books ---------------------------------------------------------------------------------

    def _position(self) -> int:
        return 0

    def _n_rows(self) -> int:
        return next((a.shape[0] for a in self.cache if a is not None), len(self._lines))

    def _blocks(self) -> tuple[int, int]:
        held = [array is not None for array in self.cache]
        return sum(held[0::2]), sum(held[1::2])

    def _blocks_after(self, n_new: int) -> tuple[int, int]:
        n_arrays = len(self.cache)
        return n_arrays - n_arrays // 2, n_arrays // 2

    def _changes_room(self, n_new: int) -> bool:
        return False

    def _slack_after(self, n_new: int) -> int:
        return UNBOUNDED

    def _label(self) -> str:
        return next((format_of(a.dtype) for a in self.cache if a is not None), "")

    def _mark(self, n_new: int) -> None:
        for line in self._lines:
            line.mark(UNBOUNDED)

    def _balance(self) -> None:
        super()._balance()
        complete = all(array is not None for array in self.cache)
        self._charged = len(self._lines) if complete else 0

    def _stock_state(self, state: Any) -> None:
        super()._stock_state(state)
        self.cache = list(self.cache)

    def _load(self, state: Any, meta_state: Any) -> None:
        self.left_padding = self.lengths = None
        super()._load(state, meta_state)

    # -- The batch protocol --------------------------------------------------------------------

    def make_mask(self, N: int) -> Any:  # noqa: N803
        """Return the mask that mlx_lm makes for its own cache of this kind."""
        self._group.announce(N)
        return stock.ArraysCache.make_mask(self, N)

    def filter(self, batch_indices: Any) -> None:
        """Keep the rows of these indices; see `PoolBackedBatchKVCache.filter`."""
        n_rows = len(self._lines) or self.batch_size
        kept = row_indices(batch_indices, n_rows)
        stock.ArraysCache.filter(self, mx.array(kept, mx.int32))
        if self._lines:
            self._lines = [self._lines[row] for row in kept]
        if not kept:
            self.cache = [None] * len(self.cache)
        self._settle()

    def extend(self, other: Any) -> None:
        """Take over the rows of another batch; see `PoolBackedBatchKVCache.extend`."""
        if other is self:
            raise ValueError("[PoolBackedArraysCache.extend] a batch can't be extended by itself")
        if not isinstance(other, PoolBackedArraysCache):
            ours = PoolBackedArraysCache._new(Group.of(self.pool, -1), len(other.cache))
            ours.__dict__.update(other.__dict__)
            other = ours
        self._with_lines()
        other._with_lines()
        self._group.secure_extension(self, other)
        stock.ArraysCache.extend(self, other)
        self._lines = self._lines + other._lines
        other._lines = []
        other._forget()
        self._balance()

    def _with_lines(self) -> None:
        """Have a line for each row, also while there is no state."""
        if not self._lines:
            accounts = self._group.accounts
            n_rows = self.batch_size
            rows = accounts if len(accounts) == n_rows else accounts[:1] * n_rows
            self._lines = [Line(account) for account in rows]

    def _extension(self, other: Any) -> Demand:
        pairs = zip(self.cache, other.cache, strict=True)
        held = [mine is not None or its is not None for mine, its in pairs]
        n_blocks = (sum(held[0::2]), sum(held[1::2]))
        return Demand(self._lines + other._lines, n_blocks, self._label() or other._label())

    def extract(self, idx: int) -> PoolBackedArraysCache:
        """Return row `idx` as a cache of its own; see `PoolBackedBatchKVCache.extract`."""
        self._with_lines()
        (row,) = row_indices([idx], len(self._lines))
        group = self._group.derived(("extract", row), self._slot, [self._lines[row].account])
        cache = PoolBackedArraysCache._new(group, len(self.cache))
        cache.cache = [None if a is None else mx.contiguous(a[row : row + 1]) for a in self.cache]
        cache._charge_new()
        return cache

    @classmethod
    def merge(cls, caches: Sequence[Any]) -> PoolBackedArraysCache:
        """Return a batch with the states of each of `caches` in a row.

        Raises
        ------
        ValueError
            If none is ours, or they are of several pools.
        BlockPoolExhaustedError
            If the pool can't hold the batch beside the caches that it is made of.
        """
        _, group = rows_to_merge(cls.__name__, caches, (stock.ArraysCache,))
        merged = stock.ArraysCache.merge(caches)
        batch = cls._new(group, len(merged.cache))
        batch.__dict__.update(merged.__dict__)
        batch._lines = [Line(account) for account in group.accounts]
        batch._charge_new()
        return batch
