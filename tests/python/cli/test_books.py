"""Samples of the pool's books."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvpool.cli.demo.books import BookKeeper, Sample, peak, waste, waste_over_time
from kvpool.memory import BlockPoolAllocator, PoolConfig


@pytest.fixture
def pool() -> BlockPoolAllocator:
    return BlockPoolAllocator(PoolConfig(block_size=16, n_blocks=64))


class Cache:
    def __init__(self, n_tokens: int) -> None:
        self._n_tokens = n_tokens

    def size(self) -> int:
        return self._n_tokens


def sample(
    live: int, blocks: tuple[int, ...], slots_used: tuple[int, ...], **counts: Any
) -> Sample:
    books = {"managed": 10, "free": 10 - live, "live": live, "reserved": 0, "cached": 0, **counts}
    return Sample(0.0, SimpleNamespace(**books), blocks, slots_used)


def test_a_sample_is_what_the_books_say(pool: BlockPoolAllocator) -> None:
    keeper = BookKeeper(pool, ["a", "b"])
    pool.allocate("k", 20, "a")
    held = pool.allocate("v", 16, "b")
    first = keeper.sample({})
    assert first.blocks == (2, 1)
    assert first.slots_used == (20, 16)
    assert first.counts == pool.counts()
    assert first.balanced
    pool.free(held)
    assert keeper.sample({}).blocks == (2, 0)
    assert [sample.blocks for sample in keeper.samples] == [(2, 1), (2, 0)]
    assert keeper.samples[0].seconds <= keeper.samples[1].seconds


def test_caches_tell_the_slots_that_the_books_do_not_tell_yet(pool: BlockPoolAllocator) -> None:
    for stream in ("k", "v"):
        for block in pool.allocate(stream, 32, "a"):
            pool.mark_used(block, 0)
    keeper = BookKeeper(pool, ["a"])
    assert keeper.sample({}).slots_used == (0,)
    assert keeper.sample({"a": [Cache(5)]}).slots_used == (10,)


def test_blocks_of_somebody_unknown_do_not_balance(pool: BlockPoolAllocator) -> None:
    keeper = BookKeeper(pool, ["a"])
    pool.allocate("k", 16, "stranger")
    assert not keeper.sample({}).balanced


def test_blocks_that_are_nowhere_do_not_balance() -> None:
    assert sample(1, (1,), (16,)).balanced
    assert not sample(1, (1,), (16,), free=8).balanced


def test_waste_is_the_share_of_slots_held_without_a_token() -> None:
    assert waste(sample(4, (1, 3), (8, 24)), 16) == pytest.approx(0.5)
    assert waste(sample(0, (0, 0), (0, 0)), 16) == 0.0
    samples = [sample(0, (0,), (0,)), sample(1, (1,), (16,)), sample(3, (3,), (16,))]
    assert waste_over_time(samples, 16) == pytest.approx(0.5)
    assert waste_over_time(samples[:1], 16) == 0.0
    assert peak(samples) is samples[2]
