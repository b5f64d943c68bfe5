"""Samples of the pool's books: who holds how many blocks, step by step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvpool.memory import BlockPoolAllocator, PoolCounts

_N_STREAMS = 2


@dataclass(frozen=True)
class Sample:
    """The books at one moment.

    Attributes
    ----------
    seconds : float
        Since the first sample.
    counts : PoolCounts
        Blocks managed, free, live, reserved and cached.
    blocks : tuple of int
        Blocks that each owner holds.
    slots_used : tuple of int
        Token slots of them that hold a token.
    """

    seconds: float
    counts: PoolCounts
    blocks: tuple[int, ...]
    slots_used: tuple[int, ...]

    @property
    def balanced(self) -> bool:
        """Whether every managed block is in one place, and each live one with a known owner."""
        counts = self.counts
        placed = counts.free + counts.live + counts.reserved + counts.cached
        return placed == counts.managed and sum(self.blocks) == counts.live


class BookKeeper:
    """Reads the pool's books whenever it is told to.

    Parameters
    ----------
    pool : BlockPoolAllocator
        The pool.
    owners : sequence of str
        Owners to look for, in the order of the samples' fields.
    """

    def __init__(self, pool: BlockPoolAllocator, owners: Sequence[str]) -> None:
        self.samples: list[Sample] = []
        self._pool = pool
        self._owners = tuple(owners)
        self._start = time.perf_counter()

    def sample(self, caches: Mapping[str, Sequence[Any]]) -> Sample:
        """Read the books and keep what they say.

        Parameters
        ----------
        caches : mapping of str to sequence
            The live caches of each owner. The books tell the slots in use of the block being
            filled up to ``block_size - 1`` late, the caches tell them exactly.
        """
        blocks, slots_used = [], []
        for owner in self._owners:
            held = self._pool.blocks_for(owner)
            booked = sum(block.n_used for block in held)
            stored = _N_STREAMS * sum(cache.size() for cache in caches.get(owner, ()))
            blocks.append(len(held))
            slots_used.append(max(booked, stored))
        sample = Sample(
            time.perf_counter() - self._start,
            self._pool.counts(),
            tuple(blocks),
            tuple(slots_used),
        )
        self.samples.append(sample)
        return sample


def waste(sample: Sample, block_size: int) -> float:
    """Return the share of the slots held that holds no token; 0 where none is held."""
    n_slots = sum(sample.blocks) * block_size
    return 1 - sum(sample.slots_used) / n_slots if n_slots else 0.0


def waste_over_time(samples: Sequence[Sample], block_size: int) -> float:
    """Return the waste of all samples together, each weighted by the slots it holds."""
    n_slots = block_size * sum(sum(sample.blocks) for sample in samples)
    n_used = sum(sum(sample.slots_used) for sample in samples)
    return 1 - n_used / n_slots if n_slots else 0.0


def peak(samples: Sequence[Sample]) -> Sample:
    """Return the first sample with the most live blocks."""
    return max(samples, key=lambda sample: sample.counts.live)
