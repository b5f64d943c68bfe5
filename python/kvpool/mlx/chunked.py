"""The pool-tracked caches of chunked attention, and of arrays that are concatenated."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as stock

from kvpool.mlx.growth import DEFAULT_STEP, growth, shortened
from kvpool.mlx.ledger import Group
from kvpool.mlx.tracked import TrackedStockCache


class PoolBackedChunkedKVCache(TrackedStockCache, stock.ChunkedKVCache):  # type: ignore[misc]
    """A pool-tracked drop-in for mlx_lm's ``ChunkedKVCache``.

    As long as nothing was dropped at the front the newest tokens can be dropped; afterwards a trim
    drops nothing, since tokens of the chunk that it would lead back to are gone.

    Attributes
    ----------
    offset : int
        Tokens appended so far.
    start_position : int
        Tokens that were dropped at the front.
    chunk_size : int
        Tokens of a chunk.
    """

    _stock = stock.ChunkedKVCache
    offset: int
    start_position: int
    chunk_size: int
    step: int

    @classmethod
    def _new(
        cls, group: Group, chunk_size: int, step: int | None = None
    ) -> PoolBackedChunkedKVCache:
        new = cls.__new__(cls)
        stock.ChunkedKVCache.__init__(new, chunk_size)
        new.step = step or max(group.pool.config.block_size, DEFAULT_STEP)
        new._join(group)
        return new

    def _forget(self) -> None:
        stock.ChunkedKVCache.__init__(self, self.chunk_size)
        self._limit = -1

    def _position(self) -> int:
        return int(self.offset)

    def _stored(self) -> int:
        return int(self.offset - self.start_position)

    def _room_after(self, n_new: int) -> tuple[int, int]:
        _, room = growth(self._room()[0], self._stored(), n_new, self.step)
        return room, room

    def _slack_after(self, n_new: int) -> int:
        return max(self._room_after(n_new)[0] - self._stored() - n_new, 0)

    def _mark(self, n_new: int) -> None:
        for line in self._lines:
            line.mark(self._stored() + n_new)

    def _check_sound(self) -> None:
        if not 0 <= self._stored() <= self._room()[0]:
            raise ValueError(
                f"[PoolBackedChunkedKVCache] tokens {self.start_position}…{self.offset} can't be "
                f"in arrays of {self._room()[0]}"
            )

    def maybe_trim_front(self) -> None:
        """Drop what is more than a chunk old, and give back its blocks."""
        end = self._stored()
        start = end - self.chunk_size
        if self.keys is None or start <= 0:
            return
        self.start_position += start
        self.keys = mx.contiguous(self.keys[..., start:end, :])
        self.values = mx.contiguous(self.values[..., start:end, :])
        self._settle()

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append tokens and return those of the chunk and of this step.

        Raises
        ------
        ValueError
            If the shapes or dtypes do not agree with each other and with what is stored.
        BlockPoolExhaustedError
            If the pool can't give the blocks that this step needs in all layers of the request.
            Nothing has changed then, in any layer.
        """
        if self.offset >= self._limit or not self._is_token(keys, values):
            self._check(keys, values)
            if keys.shape[2] == 0:
                return (keys, values) if self.keys is None else self._held(self._stored())
            self._begin_step(keys)
            result: tuple[mx.array, mx.array] = stock.ChunkedKVCache.update_and_fetch(
                self, keys, values
            )
            return result
        start = self._stored()
        new = (slice(None), slice(None), slice(start, start + 1))
        self.keys[new] = keys
        self.values[new] = values
        self.offset += 1
        return self._held(start + 1)

    def is_trimmable(self) -> bool:
        """Return whether nothing was dropped at the front."""
        return bool(self.start_position == 0)

    def trim(self, n: int) -> int:
        """Drop the newest `n` tokens, or all there are; returns how many went, maybe none."""
        n = min(max(n, 0), self._stored())
        if n == 0 or not self.is_trimmable():
            return 0
        self.offset -= n
        self._settle()
        return n


class PoolBackedConcatenateKVCache(TrackedStockCache, stock.ConcatenateKVCache):  # type: ignore[misc]
    """A pool-tracked drop-in for mlx_lm's ``ConcatenateKVCache``, of arrays without spare room."""

    _stock = stock.ConcatenateKVCache
    offset: int

    @classmethod
    def _new(cls, group: Group) -> PoolBackedConcatenateKVCache:
        new = cls.__new__(cls)
        stock.ConcatenateKVCache.__init__(new)
        new._join(group)
        return new

    def _forget(self) -> None:
        stock.ConcatenateKVCache.__init__(self)
        self._limit = -1

    def _position(self) -> int:
        return int(self.offset)

    def _room_after(self, n_new: int) -> tuple[int, int]:
        return self.offset + n_new, self.offset + n_new

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append tokens and return all so far; see PoolBackedKVCache for the errors."""
        self._check(keys, values)
        if keys.shape[2] == 0:
            return (keys, values) if self.keys is None else (self.keys, self.values)
        self._begin_step(keys)
        result: tuple[mx.array, mx.array] = stock.ConcatenateKVCache.update_and_fetch(
            self, keys, values
        )
        return result

    def size(self) -> int:
        """Return the number of tokens stored."""
        return int(self.offset)

    def trim(self, n: int) -> int:
        """Drop the newest `n` tokens, or all there are; returns how many went."""
        n = min(max(n, 0), self.offset)
        if n == 0:
            return 0
        room = self.offset - n
        if room:
            self.keys, self.values = shortened(self.keys, room), shortened(self.values, room)
        else:
            self.keys = self.values = None
        self.offset = room
        self._settle()
        return n

    def _stock_state(self, state: Any) -> None:
        self.keys, self.values = state
        self.offset = self._room()[0]
