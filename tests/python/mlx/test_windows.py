"""Sliding windows, chunks, concatenated arrays and states: one cache at a time."""

from __future__ import annotations

import copy

import mlx.core as mx
import pytest
from mlx_lm.models import cache as stock

from kvpool.memory import BlockPoolExhaustedError
from kvpool.mlx import (
    PoolBackedBatchRotatingKVCache,
    PoolBackedRotatingKVCache,
    build_pooled_caches,
    versions,
)


def same(a, b):
    return all(mx.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.fixture
def build(pool):
    """Return a function that gives pool-tracked caches for some of mlx_lm's own."""

    def make(*entries, pool=pool, **options):
        model = type("Model", (), {"make_cache": lambda self: entries})()
        return build_pooled_caches(model, pool, **options)

    return make


def held(cache):
    return 2 * -(-cache.keys.shape[2] // 16)


# -- Sliding window --------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 4])
@pytest.mark.parametrize("max_size", [8, 40, 300])
@pytest.mark.parametrize("chunks", [[1] * 60, [20, 1, 1, 30, 1], [50, 5], [3, 1, 3, 1, 60, 1, 1]])
def test_a_window_equals_mlx_lms_own_and_is_charged_as_held(
    pool, build, kv, chunks, max_size, keep
):
    own = stock.RotatingKVCache(max_size, keep)
    (ours,) = build(stock.RotatingKVCache(max_size, keep))
    for n in chunks:
        step = kv(n)
        assert same(ours.update_and_fetch(*step), own.update_and_fetch(*step))
        assert pool.counts().live == held(ours)
        assert pool.counts().reserved == 0
        assert (ours.offset, ours.size(), ours.nbytes) == (own.offset, own.size(), own.nbytes)
    for n in (1, 3):
        ours_mask, own_mask = ours.make_mask(n), own.make_mask(n)
        assert type(ours_mask) is type(own_mask)
        assert not isinstance(own_mask, mx.array) or mx.array_equal(ours_mask, own_mask)
    ours.release()
    assert (ours.empty(), ours.offset, pool.counts().live) == (True, 0, 0)
    assert same(ours.update_and_fetch(*step), step)


@pytest.mark.parametrize("chunks", [[1] * 20, [20], [12, 8]])
def test_case_22_trim_after_the_window_wrapped(build, kv, chunks):
    (cache,) = build(stock.RotatingKVCache(8))
    own = stock.RotatingKVCache(8)
    for n in chunks:
        step = kv(n)
        cache.update_and_fetch(*step)
        own.update_and_fetch(*step)
    assert not cache.is_trimmable()
    assert cache.trim(12) == 0
    assert cache.trim(-2) == 0
    assert cache.offset == 20
    step = kv(1)
    got, expected = cache.update_and_fetch(*step), own.update_and_fetch(*step)
    assert got[0].shape[2] == 8
    assert same(got, expected)
    assert cache.offset == 21


def test_case_22_trim_before_the_window_wraps(pool, build, kv):
    (cache,) = build(stock.RotatingKVCache(40))
    step = kv(20)
    cache.update_and_fetch(*step)
    assert cache.is_trimmable()
    assert (cache.trim(-2), cache.offset) == (0, 20)
    assert cache.trim(5) == 5
    more = kv(1)
    got = cache.update_and_fetch(*more)
    assert same(
        got, [mx.concatenate([a[:, :, :15], b], 2) for a, b in zip(step, more, strict=True)]
    )
    assert cache.trim(99) == 16
    assert pool.counts().live == held(cache)


def test_case_22_a_batch_of_windows(pool, build, kv):
    (cache,) = build(stock.RotatingKVCache(8))
    cache.update_and_fetch(*kv(5))
    batch = cache.merge([cache])
    assert type(batch) is PoolBackedBatchRotatingKVCache
    cache.release()
    assert batch.trim(-1) == 0
    assert batch.trim(1) == 1
    for _ in range(20):
        batch.update_and_fetch(*kv(1))
    assert batch.trim(4) == 0
    assert batch.offset.tolist() == [24]
    single = batch.extract(0)
    assert type(single) is PoolBackedRotatingKVCache
    assert (single.offset, single.size()) == (24, 8)
    assert len(pool.blocks_for(single.owner)) == held(single)
    batch.filter([])
    assert len(pool.blocks_for(single.owner)) == pool.counts().live
    batch.extend(single.merge([single]))
    assert (batch.offset.tolist(), batch.offset.dtype) == ([24], mx.int32)
    assert same(batch.update_and_fetch(*(step := kv(1))), single.update_and_fetch(*step))


def test_batches_of_windows_must_have_one_window(build, kv):
    a, b = build(stock.RotatingKVCache(8)) + build(stock.RotatingKVCache(9))
    a.update_and_fetch(*kv(1))
    b.update_and_fetch(*kv(1))
    with pytest.raises(ValueError, match="same maximum size"):
        a.merge([a, b])
    with pytest.raises(ValueError, match="8 and 9"):
        a.merge([a]).extend(b.merge([b]))


def test_a_window_copies_and_restores(pool, build, kv):
    (cache,) = build(stock.RotatingKVCache(8))
    for _ in range(11):
        cache.update_and_fetch(*kv(1))
    other = copy.deepcopy(cache)
    step = kv(1)
    assert same(other.update_and_fetch(*step), cache.update_and_fetch(*step))
    assert pool.counts().live == held(cache) + held(other)
    other.state = cache.state
    assert pool.counts().live == held(cache) + held(other)


def test_a_layer_with_full_attention_stops_the_windows_too(make_pool, build, kv):
    """The layer that comes first needs nothing; another one would not fit."""
    pool = make_pool(n_blocks=2 * 4)
    window, full = build(stock.RotatingKVCache(8), stock.KVCache(), pool=pool, step=16)
    for n in (10, *[1] * 38):
        for cache in (window, full):
            cache.update_and_fetch(*kv(n))
    assert full.offset == 48
    before = pool.counts()
    with pytest.raises(BlockPoolExhaustedError):
        window.update_and_fetch(*kv(1))
    assert (window.offset, full.offset, pool.counts()) == (48, 48, before)


def test_shapes_that_do_not_go_with_a_window_are_refused(build, kv):
    (cache,) = build(stock.RotatingKVCache(8))
    cache.update_and_fetch(*kv(3))
    for wrong in (kv(1, n_rows=2), kv(1, head_dim=16), kv(1, dtype=mx.float16)):
        with pytest.raises(ValueError, match="do not go"):
            cache.update_and_fetch(*wrong)
    assert cache.offset == 3
    assert cache.update_and_fetch(*kv(0))[0].shape[2] == 3


# -- Chunks ----------------------------------------------------------------------------------------


@pytest.mark.skipif(not versions.STATE_HOLDS_NUMBERS, reason="mlx_lm's own lose tokens before 0.32")
@pytest.mark.parametrize("chunks", [[1] * 40, [20, 1, 30, 1, 1], [3, 3, 3, 300, 1]])
def test_chunks_equal_mlx_lms_own(pool, build, kv, chunks):
    own = stock.ChunkedKVCache(8)
    (ours,) = build(stock.ChunkedKVCache(8))
    for n in chunks:
        step = kv(n)
        for cache in (ours, own):
            cache.maybe_trim_front()
        assert pool.counts().live == (0 if ours.empty() else held(ours))
        assert same(ours.update_and_fetch(*step), own.update_and_fetch(*step))
        assert (ours.offset, ours.start_position) == (own.offset, own.start_position)
        assert pool.counts().live == held(ours)


def test_chunks_can_be_trimmed_until_something_is_gone(build, kv):
    (cache,) = build(stock.ChunkedKVCache(8))
    cache.update_and_fetch(*kv(10))
    assert cache.is_trimmable()
    assert (cache.trim(-1), cache.trim(3), cache.offset) == (0, 3, 7)
    cache.update_and_fetch(*kv(3))
    cache.maybe_trim_front()
    assert not cache.is_trimmable()
    assert (cache.trim(1), cache.offset) == (0, 10)


def test_chunks_that_contradict_themselves_are_refused(build, kv):
    own = stock.ChunkedKVCache(8)
    own.update_and_fetch(*kv(5))
    own.start_position = 9
    with pytest.raises(ValueError, match="9…5"):
        build(own)


# -- Concatenated arrays ---------------------------------------------------------------------------


def test_concatenated_arrays(pool, build, kv):
    (cache,) = build(stock.ConcatenateKVCache())
    first, more = kv(20), kv(1)
    cache.update_and_fetch(*first)
    assert pool.counts().live == 4
    assert cache.trim(10) == 10
    assert pool.counts().live == 2
    got = cache.update_and_fetch(*more)
    assert same(
        got, [mx.concatenate([a[:, :, :10], b], 2) for a, b in zip(first, more, strict=True)]
    )
    assert (cache.trim(-5), cache.trim(50), cache.empty()) == (0, 11, True)
    assert pool.counts().live == 0
    assert not hasattr(cache, "merge")


# -- States ----------------------------------------------------------------------------------------


def test_states_are_charged_by_array_and_row(pool, build):
    (cache,) = build(stock.ArraysCache(size=3))
    assert isinstance(cache, stock.ArraysCache)
    assert pool.counts().live == 0
    for _ in range(3):
        for index in range(3):
            cache[index] = mx.zeros((2, 5))
        assert (pool.counts().live, pool.counts().reserved) == (6, 0)
        assert pool.n_free("k") == pool.n_free("v") - 2
    assert all(block.n_used == 16 for block in pool.blocks_for(cache.owner))
    cache[0] = None
    assert pool.counts().live == 4
    cache[0] = mx.ones((2, 5))
    assert pool.counts().live == 6
    other = copy.deepcopy(cache)
    assert mx.array_equal(other[0], cache[0])
    assert pool.counts().live == 12
    cache.release()
    assert (cache.empty(), pool.counts().live) == (True, 6)


def test_states_in_batches(pool, build):
    caches = build(stock.ArraysCache(2)) + build(stock.ArraysCache(2))
    for number, cache in enumerate(caches):
        for index in range(2):
            cache[index] = mx.full((1, 3), 10 * number + index)
    batch = caches[0].merge(caches)
    assert len(set(batch.owners)) == 2
    more = caches[1].merge([caches[1]])
    for cache in caches:
        cache.release()
    batch.extend(more)
    assert [a[:, 0].tolist() for a in batch.cache] == [[0, 10, 10], [1, 11, 11]]
    assert pool.counts().live == 6
    single = batch.extract(1)
    assert [a[0, 0].item() for a in single.cache] == [10, 11]
    batch.filter([0, 2])
    assert pool.counts().live == 4 + 2
    batch.filter([])
    assert pool.counts().live == 2


def test_states_after_an_extension(pool, build):
    """What an extension planned is no step."""
    layers = [[c.merge([c])] for c in build(stock.ArraysCache(2), stock.ArraysCache(2))]
    others = [[c.merge([c])] for c in build(stock.ArraysCache(2), stock.ArraysCache(2))]
    for (batch,), (other,) in zip(layers, others, strict=True):
        batch.extend(other)
    for (batch,) in layers:
        batch[0] = batch[1] = mx.zeros((2, 3))
    assert (pool.counts().live, pool.counts().reserved) == (8, 0)


def test_states_fit_in_all_layers_or_none(make_pool, build):
    pool = make_pool(n_blocks=5)
    caches = build(*[stock.ArraysCache(size=2) for _ in range(3)], pool=pool)
    with pytest.raises(BlockPoolExhaustedError):
        caches[0][0] = mx.zeros((1, 3))
    assert all(cache.empty() for cache in caches)
    assert pool.counts().free == 5


# -- Lists -----------------------------------------------------------------------------------------


def test_lists_of_caches(pool, build, kv):
    (cache,) = build(stock.CacheList(stock.KVCache(), stock.RotatingKVCache(8)))
    for inner in cache.caches:
        inner.update_and_fetch(*kv(5))
    assert cache.is_trimmable()
    assert (cache.trim(2), cache.size(), cache[1].offset) == (2, 3, 3)
    other = copy.deepcopy(cache)
    assert {inner.owner for inner in other.caches} == {other.owner} != {cache.owner}
    batch = cache.merge([cache, other])
    row = batch.extract(1)
    assert type(row) is type(batch) is type(cache)
    assert {inner.owner for inner in row.caches} == {row.owner}
    for inner in cache.caches:
        inner.update_and_fetch(*kv(8))
    assert not cache.is_trimmable()
    assert (cache.trim(1), cache[0].offset) == (0, 11)
    other.state = cache.state
    assert other[0].offset == 11
    if versions.STATE_HOLDS_NUMBERS:
        assert other[1].offset == 11
    cache.release()
    assert all(inner.empty() for inner in cache.caches)
    del cache, other, batch, row, inner
    assert pool.counts().live == 0
