"""The quantised cache, against mlx_lm's own."""

from __future__ import annotations

import copy

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import KVCache, QuantizedKVCache

from kvpool.memory import BlockPoolExhaustedError
from kvpool.mlx import PoolBackedKVCache, PoolBackedQuantizedKVCache, build_pooled_caches


def same(a, b):
    a, b = ([array for _, array in tree_flatten(tree)] for tree in (a, b))
    return len(a) == len(b) and all(map(mx.array_equal, a, b))


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_equals_mlx_lms_own(pool, kv, bits):
    ours, own = PoolBackedKVCache(pool), KVCache()
    for n in (20, 1):
        step = kv(n, head_dim=64)
        ours.update_and_fetch(*step)
        own.update_and_fetch(*step)
    ours, own = (cache.to_quantized(group_size=32, bits=bits) for cache in (ours, own))
    assert type(ours) is PoolBackedQuantizedKVCache
    for n in (1, 300, 1, 0):
        step = kv(n, head_dim=64)
        if n:
            expected = own.update_and_fetch(*step)
        assert same(ours.update_and_fetch(*step), expected)
        assert ours.offset == own.offset
        assert ours.nbytes == own.nbytes
        assert {b.format for b in pool.blocks_for(ours.owner)} == {f"int{bits}"}
    assert (ours.bits, ours.group_size) == (bits, 32)
    assert not hasattr(ours, "to_quantized")
    assert pool.counts().live == 2 * -(-ours.keys[0].shape[2] // 16)
    ours.release()
    assert (ours.empty(), pool.counts().live) == (True, 0)


def test_empty_caches(pool, kv):
    ours, own = PoolBackedKVCache(pool).to_quantized(32, 4), QuantizedKVCache(32, 4)
    assert ours.empty()
    keys, _ = ours.update_and_fetch(*kv(0))
    assert keys[0].shape == (1, 2, 0, 4)
    step = kv(5)
    assert same(ours.update_and_fetch(*step), own.update_and_fetch(*step))


def test_the_plain_cache_stays_until_it_is_dropped(pool, kv):
    plain = PoolBackedKVCache(pool, owner=1)
    plain.update_and_fetch(*kv(5))
    quantized = plain.to_quantized(32, 8)
    assert quantized.owner == 1
    assert len(pool.blocks_for(1)) == 64
    del plain
    assert len(pool.blocks_for(1)) == 32
    del quantized
    assert pool.counts().live == 0


def test_case_33_sizes_that_do_not_divide_are_refused_at_once(pool, kv, used):
    cache = PoolBackedKVCache(pool)
    cache.update_and_fetch(*kv(5, head_dim=96))
    before = used(pool)
    with pytest.raises(ValueError, match=r"96.*32.*64"):
        cache.to_quantized(group_size=64, bits=4)
    assert used(pool) == before
    assert cache.to_quantized(group_size=32, bits=4).offset == 5


def test_case_33_an_empty_cache_refuses_at_the_first_tokens(pool, kv, used):
    plain = PoolBackedKVCache(pool)
    with pytest.raises(ValueError, match=r"32, 64, 128.*48"):
        plain.to_quantized(group_size=48)
    with pytest.raises(ValueError, match=r"2, 3, 4.*7"):
        plain.to_quantized(bits=7)
    quantized = plain.to_quantized(group_size=64)
    with pytest.raises(ValueError, match=r"80 \(no size.*64"):
        quantized.update_and_fetch(*kv(1, head_dim=80))
    assert quantized.empty()
    assert used(pool) == (0, 0)


def test_case_33_keys_and_values_of_different_width(pool, kv):
    plain = PoolBackedKVCache(pool)
    plain.update_and_fetch(*kv(5, head_dim=192, v_dim=128))
    quantized = plain.to_quantized(group_size=64, bits=4)
    keys, values = quantized.update_and_fetch(*kv(1, head_dim=192, v_dim=128))
    assert (keys[1].shape[3], values[1].shape[3]) == (3, 2)
    with pytest.raises(ValueError, match=r"128.*192"):
        plain.to_quantized(group_size=128, bits=4)


def test_what_does_not_go_with_what_is_stored_is_refused(pool, kv):
    cache = PoolBackedKVCache(pool).to_quantized(32, 4)
    cache.update_and_fetch(*kv(5))
    for wrong in (kv(1, n_rows=2), kv(1, n_heads=1), kv(1, head_dim=64), kv(1, dtype=mx.float16)):
        with pytest.raises(ValueError, match="do not go"):
            cache.update_and_fetch(*wrong)
    assert cache.offset == 5


def test_case_20_trim(pool, kv):
    cache = PoolBackedKVCache(pool).to_quantized(32, 4)
    step = kv(600)
    full = cache.update_and_fetch(*step)
    assert (cache.trim(-3), cache.offset) == (0, 600)
    assert cache.trim(590) == 590
    assert pool.counts().live == 2 * 16
    cut = [[part[:, :, :10] for part in parts] for parts in full]
    assert same(cache.keys_and_values(), cut)
    assert cache.trim(11) == 10
    assert pool.counts().live == 0


def test_deepcopy_and_state(pool, kv):
    cache = PoolBackedKVCache(pool).to_quantized(32, 4)
    cache.update_and_fetch(*kv(20))
    other = copy.deepcopy(cache)
    assert other.owner != cache.owner
    expected = cache.keys_and_values()
    other.state = cache.state
    cache.release()
    assert same(other.keys_and_values(), expected)
    assert pool.counts().live == 2 * -(-other.keys[0].shape[2] // 16)


def test_exhaustion_moves_nothing(make_pool, kv):
    plain = type("Plain", (), {"layers": (None,) * 2})()
    pool = make_pool(n_blocks=2 * 2 * 16 + 2 * 2 * 10)
    caches = build_pooled_caches(plain, pool, 1)
    for index, cache in enumerate(caches):
        caches[index] = cache.to_quantized(32, 4)
    del cache
    for cache in caches:
        cache.update_and_fetch(*kv(256))
    before = pool.counts()
    with pytest.raises(BlockPoolExhaustedError):
        caches[0].update_and_fetch(*kv(1))
    assert [cache.offset for cache in caches] == [256, 256]
    assert pool.counts() == before
