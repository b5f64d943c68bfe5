"""PooledKVCache over caches that are not ours."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import weakref
from typing import Any

import pytest

from kvpool import KVCache
from kvpool.memory import (
    BlockPoolAllocator,
    BlockPoolExhaustedError,
    OwnerAlreadyActiveError,
    PoolConfig,
    PooledKVCache,
)


class ListCache(KVCache):
    """Keeps the last `window` tokens in lists; fails on the value "bad"."""

    def __init__(self, window: int | None = None) -> None:
        self.window = window
        self.keys: list[Any] = []
        self.values: list[Any] = []

    def _add(self, to: list[Any], vector: Any) -> None:
        if vector == "bad":
            raise ValueError("bad vector")
        to.append(vector)
        if self.window is not None:
            del to[: -self.window]

    def append_key(self, k: Any) -> None:
        self._add(self.keys, k)

    def append_value(self, v: Any) -> None:
        self._add(self.values, v)

    def attend(self, q: Any) -> Any:
        return (q, list(self.keys), list(self.values))

    def memory_bytes(self) -> int:
        return 8 * (len(self.keys) + len(self.values))

    def reset(self) -> None:
        self.keys, self.values = [], []

    def __len__(self) -> int:
        return len(self.values)


class Duck:
    """The methods of a KVCache and nothing more: no subclass, no append, no length."""

    def __init__(self) -> None:
        self.inner = ListCache()
        self.append_key = self.inner.append_key
        self.append_value = self.inner.append_value
        self.attend = self.inner.attend
        self.memory_bytes = self.inner.memory_bytes
        self.reset = self.inner.reset


def used(pool: BlockPoolAllocator, cache: PooledKVCache) -> list[tuple[str, int]]:
    return [(block.stream, block.n_used) for block in pool.blocks_for(cache.owner)]


@pytest.mark.parametrize("inner", [ListCache, Duck])
def test_takes_a_block_when_the_last_is_full(inner: type[Any]) -> None:
    pool = BlockPoolAllocator(PoolConfig(block_size=4, n_blocks=20))
    cache = PooledKVCache(inner(), pool, owner="me", format="int2")
    for n in range(1, 10):
        cache.append(n, n)
        assert cache.n_blocks_held() == 2 * -(-n // 4)
        assert len(cache) == n
    assert pool.stats.n_allocations == 6
    assert used(pool, cache) == [("k", 4), ("v", 4)] * 2 + [("k", 1), ("v", 1)]
    assert pool.blocks_for("me")[0].format == "int2"
    assert cache.attend("q") == ("q", list(range(1, 10)), list(range(1, 10)))
    assert cache.memory_bytes() == 8 * 18
    assert isinstance(cache, KVCache)
    cache.release()
    assert pool.counts().free == 20


# Case 1.
@pytest.mark.parametrize("at_once", [True, False])
def test_case_1_keys_and_values_stay_equally_long_when_blocks_run_out(at_once: bool) -> None:
    pool = BlockPoolAllocator(PoolConfig(block_size=4, n_blocks=4))
    pool.allocate("v", 4, owner="somebody")
    inner = ListCache()
    cache = PooledKVCache(inner, pool, owner="me")
    for n in range(4):
        cache.append(n, n)
    assert pool.n_free("k") == 1  # a key's block is there, a value's is not
    before = pool.counts()
    append = cache.append if at_once else lambda key, _: cache.append_key(key)
    with pytest.raises(BlockPoolExhaustedError, match="stream 'v'"):
        append(4, 4)
    assert (len(inner.keys), len(inner.values)) == (4, 4)
    assert pool.counts() == before
    pool.free_all("somebody")
    cache.append(4, 4)
    assert len(cache) == 5


def test_a_half_appended_token_has_the_other_half_secured() -> None:
    pool = BlockPoolAllocator(PoolConfig(block_size=4, n_blocks=2))
    cache = PooledKVCache(ListCache(), pool)
    cache.append_value(1)
    assert pool.counts().reserved == 1
    with pytest.raises(BlockPoolExhaustedError):
        pool.allocate("k", 1, owner="somebody")
    cache.append_key(1)
    assert (pool.counts().live, pool.counts().reserved) == (2, 0)


def test_streams_may_run_ahead_of_each_other() -> None:
    pool = BlockPoolAllocator(PoolConfig(block_size=4, n_blocks=40))
    cache = PooledKVCache(ListCache(), pool)
    for n in range(10):
        cache.append_key(n)
    assert (pool.counts().live, pool.counts().reserved) == (3, 3)
    for n in range(14):
        cache.append_value(n)
    assert (pool.counts().live, pool.counts().reserved) == (7, 1)
    cache.release()
    assert pool.counts().free == 40


@pytest.mark.parametrize("vectors", [("bad", 1), (1, "bad")])
def test_blocks_go_back_when_the_inner_append_fails(vectors: tuple[Any, Any]) -> None:
    pool = BlockPoolAllocator(PoolConfig(block_size=4, n_blocks=8))
    cache = PooledKVCache(ListCache(), pool)
    with pytest.raises(ValueError, match="bad vector"):
        cache.append(*vectors)
    assert pool.counts().free == 8
    with pytest.raises(ValueError, match="bad vector"):
        cache.append_key("bad")
    assert pool.counts().free == 8
    assert cache.n_blocks_held() == 0


@pytest.mark.parametrize("window", [1, 3, 4, 5, 9])
def test_holds_blocks_only_for_what_a_window_keeps(window: int) -> None:
    pool = BlockPoolAllocator(PoolConfig(block_size=4, n_blocks=16))
    cache = PooledKVCache(ListCache(window), pool)
    for n in range(1, 100):
        cache.append(n, n)
        first = max(0, n - window) // 4
        assert cache.n_blocks_held() == 2 * ((n - 1) // 4 - first + 1)
        assert len(cache) == min(n, window)
        assert pool.counts().live == cache.n_blocks_held()


def test_reset_and_release() -> None:
    pool = BlockPoolAllocator(PoolConfig(block_size=4, n_blocks=8))
    cache = PooledKVCache(ListCache(), pool, owner=7)
    cache.append(1, 1)
    cache.reset()
    assert (len(cache), cache.n_blocks_held(), pool.counts().live) == (0, 0, 0)
    cache.append(1, 1)
    cache.release()
    cache.release()
    assert pool.counts().live == 0
    with pytest.raises(RuntimeError, match="was released"):
        cache.append(2, 2)
    cache.reset()
    cache.append(2, 2)
    assert len(cache) == 1


def test_one_live_cache_an_owner() -> None:
    pool, other_pool = BlockPoolAllocator(), BlockPoolAllocator()
    pool.register_owner("me")
    cache = PooledKVCache(ListCache(), pool, owner="me")
    with pytest.raises(OwnerAlreadyActiveError, match="'me'"):
        PooledKVCache(ListCache(), pool, owner="me")
    PooledKVCache(ListCache(), other_pool, owner="me")
    private = [PooledKVCache(ListCache(), pool) for _ in range(3)]
    assert len({each.owner for each in private}) == 3
    cache.release()
    heir = PooledKVCache(ListCache(), pool, owner="me")
    with pytest.raises(OwnerAlreadyActiveError):
        cache.reset()
    del heir
    cache.reset()
    cache.append(1, 1)
    assert pool.counts().live == 2


def test_a_dropped_cache_gives_its_blocks_back() -> None:
    pool = BlockPoolAllocator()
    cache = PooledKVCache(ListCache(), pool, owner="me")
    cache.append(1, 1)
    cache.append_key(2)
    gc.disable()
    try:
        del cache
        assert pool.counts().free == 1024
    finally:
        gc.enable()
    pool.register_owner("me")


def test_unsuitable_inner_and_options() -> None:
    pool = BlockPoolAllocator()
    with pytest.raises(TypeError, match="object lacks append_key, append_value, attend"):
        PooledKVCache(object(), pool)
    with pytest.raises(TypeError, match="format must be a str, got 2"):
        PooledKVCache(ListCache(), pool, format=2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a BlockPoolAllocator"):
        PooledKVCache(ListCache(), 16)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="None"):
        PooledKVCache(ListCache(), pool, owner=None)


def test_random_appends_keep_the_books_balanced() -> None:
    rng = random.Random(5)
    pool = BlockPoolAllocator(PoolConfig(block_size=3, n_blocks=24))
    caches = [PooledKVCache(ListCache(w), pool, owner=i) for i, w in enumerate([None, 4, 7])]
    for _ in range(3000):
        cache = rng.choice(caches)
        action = rng.randrange(12)
        vectors = (1, "bad" if action == 0 else 1)
        try:
            if action == 1:
                cache.release()
                cache.reset()
            elif action < 4 and cache._keys.n_tokens <= cache._values.n_tokens:
                cache.append_key(1)
            elif cache._keys.n_tokens > cache._values.n_tokens:
                cache.append_value(1)
            elif action == 0:
                # A foreign cache may keep what it took: begin anew, as its user would.
                with pytest.raises((ValueError, BlockPoolExhaustedError)):
                    cache.append(*vectors)
                cache.reset()
            else:
                cache.append(*vectors)
        except BlockPoolExhaustedError:
            cache.reset()
        assert pool.counts().live == sum(each.n_blocks_held() for each in caches)
        pool.check_invariants()
    for cache in caches:
        cache.release()
    assert pool.counts().free == 24


def test_cannot_be_copied() -> None:
    pool = BlockPoolAllocator()
    cache = PooledKVCache(ListCache(), pool)
    cache.append(1, 1)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="can't be copied or pickled"):
            attempt(cache)
    cache.release()
    assert pool.counts().live == 0


def test_a_second_release_leaves_the_owners_next_cache_alone() -> None:
    pool = BlockPoolAllocator()
    cache = PooledKVCache(ListCache(), pool, owner="me")
    cache.release()
    heir = PooledKVCache(ListCache(), pool, owner="me")
    cache.release()
    with pytest.raises(OwnerAlreadyActiveError):
        PooledKVCache(ListCache(), pool, owner="me")
    del heir
    PooledKVCache(ListCache(), pool, owner="me")


def test_an_owner_is_let_go_with_its_last_cache() -> None:
    class Request:
        pass

    pool = BlockPoolAllocator()
    request = Request()
    gone = weakref.ref(request)
    cache = PooledKVCache(ListCache(), pool, owner=request)
    cache.append(1, 1)
    del request, cache
    assert gone() is None
