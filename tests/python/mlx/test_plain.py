"""PoolBackedKVCache by itself, against mlx_lm's own and against arithmetic."""

from __future__ import annotations

import copy
import gc
import weakref

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache

from kvpool.memory import BlockPoolExhaustedError, OwnerAlreadyActiveError
from kvpool.mlx import PoolBackedKVCache, build_pooled_caches

SIZES = [1, 15, 16, 17, 255, 256, 257, 600]


def same(a, b):
    return all(mx.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    "chunks", [[n] for n in SIZES] + [[100, 300, 1, 1], [100, 300, 112, 200], [1] * 300, [256, 256]]
)
def test_values_and_growth_equal_mlx_lm(pool, kv, chunks, monkeypatch):
    calls = []
    concatenate = mx.concatenate
    monkeypatch.setattr(mx, "concatenate", lambda *a, **k: calls.append(1) or concatenate(*a, **k))
    ours, own = PoolBackedKVCache(pool), KVCache()
    n_ours = n_own = 0
    for n in chunks:
        step = kv(n)
        before = len(calls)
        expected = own.update_and_fetch(*step)
        n_own += len(calls) - before
        before = len(calls)
        got = ours.update_and_fetch(*step)
        n_ours += len(calls) - before
        assert same(got, expected)
        assert ours.keys.shape == own.keys.shape
        assert len(pool.blocks_for(ours.owner)) == 2 * -(-ours.keys.shape[2] // 16)
    assert n_ours <= n_own
    assert ours.offset == own.offset == ours.size() == sum(chunks)
    assert ours.nbytes == own.nbytes


def test_default_step_is_the_larger_of_block_size_and_256(make_pool):
    assert PoolBackedKVCache(make_pool(block_size=16)).step == 256
    assert PoolBackedKVCache(make_pool(block_size=512)).step == 512
    assert PoolBackedKVCache(make_pool(), step=32).step == 32


@pytest.mark.parametrize("step", [0, -1])
def test_step_below_one_is_an_error(model, pool, step):
    with pytest.raises(ValueError, match=str(step)):
        PoolBackedKVCache(pool, step=step)
    with pytest.raises(ValueError, match=str(step)):
        build_pooled_caches(model, pool, 1, step=step)


def test_step_must_be_an_integer(pool):
    with pytest.raises(TypeError, match="2.5"):
        PoolBackedKVCache(pool, step=2.5)


def test_many_small_chunks_are_charged_once(pool, kv):
    cache = PoolBackedKVCache(pool, step=16)
    for _ in range(40):
        cache.update_and_fetch(*kv(3))
        assert len(pool.blocks_for(cache.owner)) == 2 * -(-cache.keys.shape[2] // 16)


def test_rows_are_charged_separately(pool, kv):
    cache = PoolBackedKVCache(pool, step=16)
    cache.update_and_fetch(*kv(17, n_rows=3))
    assert len(pool.blocks_for(cache.owner)) == 2 * 3 * 2


@pytest.mark.parametrize(
    ("dtype", "label"), [(mx.float16, "fp16"), (mx.bfloat16, "bf16"), (mx.float32, "fp32")]
)
def test_blocks_carry_the_format_of_the_arrays(pool, kv, dtype, label):
    cache = PoolBackedKVCache(pool)
    cache.update_and_fetch(*kv(5, dtype=dtype))
    assert {block.format for block in pool.blocks_for(cache.owner)} == {label}


def test_values_may_have_no_width(pool):
    """As in an index of keys alone."""
    cache, own = PoolBackedKVCache(pool), KVCache()
    for n in (5, 1, 300):
        step = mx.random.normal((1, 2, n, 8)), mx.zeros((1, 2, n, 0))
        assert same(cache.update_and_fetch(*step), own.update_and_fetch(*step))
    assert cache.offset == 306


def test_one_shared_stream_is_charged_for_keys_and_values(make_pool, kv):
    pool = make_pool(n_blocks=64, separate_kv=False)
    cache = PoolBackedKVCache(pool, step=16)
    cache.update_and_fetch(*kv(17))
    assert pool.counts().live == 4
    cache.release()
    assert pool.counts().live == 0


def test_full_blocks_are_booked_as_full_after_every_token(make_pool, kv):
    pool = make_pool(n_blocks=128)
    cache = PoolBackedKVCache(pool)
    for n in [20, *[1] * 300]:
        cache.update_and_fetch(*kv(n))
        held = len(pool.blocks_for(cache.owner))
        not_full = held - 2 * (cache.offset // 16)
        assert pool.stats.fragmentation() == pytest.approx(not_full / 128)
    cache.trim(5)
    assert sum(block.n_used for block in pool.blocks_for(cache.owner)) == 2 * cache.offset


# -- Nothing moves unless it fits -----------------------------------------------------------------


def test_case_1_failed_growth_keeps_what_was_held(make_pool, kv):
    pool = make_pool(n_blocks=36)
    cache = PoolBackedKVCache(pool, owner="request")
    cache.update_and_fetch(*kv(10))
    kept = pool.blocks_for("request")
    keys = cache.keys
    with pytest.raises(BlockPoolExhaustedError):
        cache.update_and_fetch(*kv(300))
    assert cache.offset == 10
    assert cache.keys is keys
    assert pool.blocks_for("request") == kept
    assert pool.counts().reserved == 0
    cache.update_and_fetch(*kv(246))
    assert cache.offset == 256


def test_case_1_keys_fit_and_values_do_not(make_pool, kv):
    pool = make_pool(n_blocks=64)
    pool.allocate("v", 20 * 16, "other")
    cache = PoolBackedKVCache(pool)
    with pytest.raises(BlockPoolExhaustedError):
        cache.update_and_fetch(*kv(1))
    assert (cache.offset, cache.keys, cache.values) == (0, None, None)
    assert pool.n_free("k") == 32


def test_shapes_that_do_not_go_with_what_is_stored_are_refused(pool, kv, used):
    cache = PoolBackedKVCache(pool)
    cache.update_and_fetch(*kv(4))
    before = used(pool)
    for wrong in (
        kv(1, n_rows=2),
        kv(1, n_heads=1),
        kv(1, head_dim=16),
        kv(1, v_dim=16),
        kv(1, dtype=mx.float16),
        (kv(1, dtype=mx.float16)[0], kv(1)[1]),
        (kv(1)[0], kv(1, dtype=mx.bfloat16)[1]),
        (kv(1)[0], kv(2)[0]),
        (kv(1)[0][0], kv(1)[1][0]),
    ):
        with pytest.raises(ValueError, match=r"shape|stored"):
            cache.update_and_fetch(*wrong)
        assert cache.offset == 4
        assert used(pool) == before
    cache.update_and_fetch(*kv(1))
    assert cache.offset == 5


def test_offset_beyond_the_arrays_is_refused(pool, kv):
    cache = PoolBackedKVCache(pool)
    cache.update_and_fetch(*kv(4))
    cache.keys, cache.values = kv(2)
    with pytest.raises(ValueError, match="offset is 4"):
        cache.update_and_fetch(*kv(1))


# -- Trim, empty appends --------------------------------------------------------------------------


def test_case_20_trim_and_empty_append(pool, kv, used):
    cache = PoolBackedKVCache(pool)
    keys, values = cache.update_and_fetch(*kv(0))
    assert keys.shape == values.shape == (1, 2, 0, 32)
    assert (cache.offset, cache.empty(), used(pool)) == (0, True, (0, 0))
    step = kv(10)
    cache.update_and_fetch(*step)
    assert (cache.trim(-2), cache.offset) == (0, 10)
    held = used(pool)
    assert same(cache.update_and_fetch(*kv(0)), step)
    assert (cache.offset, used(pool)) == (10, held)
    assert (cache.trim(99), cache.offset) == (10, 0)


def test_trim_gives_back_whole_steps(pool, kv):
    cache = PoolBackedKVCache(pool)
    keys, values = kv(600)
    cache.update_and_fetch(keys, values)
    assert cache.trim(400) == 400
    assert cache.keys.shape[2] == 256
    assert len(pool.blocks_for(cache.owner)) == 2 * 16
    assert same(cache.keys_and_values(), (keys[:, :, :200], values[:, :, :200]))
    more = kv(3)
    got = cache.update_and_fetch(*more)
    assert same(
        got,
        [
            mx.concatenate([a[:, :, :200], b], axis=2)
            for a, b in zip((keys, values), more, strict=True)
        ],
    )
    assert cache.trim(203) == 203
    assert len(pool.blocks_for(cache.owner)) == 0


def test_trim_frees_the_memory_before_the_blocks(pool, kv):
    cache = PoolBackedKVCache(pool)
    cache.update_and_fetch(*kv(4096))
    mx.eval(cache.state)
    before = mx.get_active_memory()
    cache.trim(4000)
    assert before - mx.get_active_memory() >= 2 * 2 * 3840 * 32 * 4  # two arrays, two heads


def test_trim_really_frees_memory(pool, kv):
    cache = PoolBackedKVCache(pool)
    cache.update_and_fetch(*kv(8192, n_heads=1))
    mx.eval(cache.state)
    mx.clear_cache()
    before = mx.get_active_memory()
    cache.trim(8000)
    mx.eval(cache.state)
    mx.clear_cache()
    assert before - mx.get_active_memory() > 0.9 * 2 * 7900 * 32 * 4


def test_rewinding_over_the_border_of_a_step_does_not_copy(pool, kv, monkeypatch):
    cache = PoolBackedKVCache(pool)
    cache.update_and_fetch(*kv(254))
    cache.update_and_fetch(*kv(4))
    calls = []
    concatenate = mx.concatenate
    monkeypatch.setattr(mx, "concatenate", lambda *a, **k: calls.append(1) or concatenate(*a, **k))
    for _ in range(10):
        cache.trim(4)
        cache.update_and_fetch(*kv(4))
    assert not calls
    assert len(pool.blocks_for(cache.owner)) == 2 * -(-cache.keys.shape[2] // 16)


def test_case_34_trim_then_append(pool, kv):
    cache = PoolBackedKVCache(pool, step=16)
    keys, values = kv(200)
    cache.update_and_fetch(keys, values)
    assert cache.trim(150) == 150
    more = kv(10)
    got = cache.update_and_fetch(*more)
    assert cache.size() == 60
    assert same([a[:, :, :50] for a in got], (keys[:, :, :50], values[:, :, :50]))
    assert same([a[:, :, 50:] for a in got], more)


# -- State, keys and values -----------------------------------------------------------------------


def test_state_is_the_pair_cut_to_the_offset(pool, kv):
    cache = PoolBackedKVCache(pool)
    assert cache.state == (None, None)
    step = kv(20)
    cache.update_and_fetch(*step)
    assert len(cache.state) == 2
    assert same(cache.state, step)
    assert cache.meta_state == ""
    cache.meta_state = ""
    with pytest.raises(ValueError, match="'x'"):
        cache.meta_state = "x"


@pytest.mark.parametrize("items", [2, 3])
def test_state_round_trip_is_charged_once(pool, kv, items):
    cache = PoolBackedKVCache(pool)
    step = kv(20)
    cache.update_and_fetch(*step)
    for _ in range(3):
        cache.state = (*cache.state, cache.offset)[:items]
        assert cache.offset == 20
        assert len(pool.blocks_for(cache.owner)) == 2 * 2
    more = kv(1)
    got = cache.update_and_fetch(*more)
    assert same([a[:, :, :20] for a in got], step)
    assert len(pool.blocks_for(cache.owner)) == 2 * -(-cache.keys.shape[2] // 16)
    cache.state = (None, None)
    assert cache.empty()
    assert pool.counts().live == 0


def test_state_takes_mlx_lms_triple(pool, kv):
    own = KVCache()
    own.update_and_fetch(*kv(20))
    cache = PoolBackedKVCache(pool)
    cache.state = (own.keys, own.values, own.offset)
    assert cache.offset == 20
    assert len(pool.blocks_for(cache.owner)) == 2 * 16


@pytest.mark.parametrize("offset", [-1, 21])
def test_state_with_a_wrong_offset_is_refused(pool, kv, offset):
    cache = PoolBackedKVCache(pool)
    cache.update_and_fetch(*kv(3))
    with pytest.raises(ValueError, match=str(offset)):
        cache.state = (*kv(20), offset)
    assert cache.offset == 3


def test_state_that_does_not_fit_the_pool_changes_nothing(make_pool, kv):
    pool = make_pool(n_blocks=40)
    cache = PoolBackedKVCache(pool)
    cache.update_and_fetch(*kv(3))
    with pytest.raises(BlockPoolExhaustedError):
        cache.state = kv(1000)
    assert cache.offset == 3
    assert cache.keys.shape[2] == 256
    assert pool.counts().live == 32


def test_assigning_keys_and_values_recomputes_the_charge(make_pool, kv):
    pool = make_pool(n_blocks=200)
    cache = PoolBackedKVCache(pool)
    keys, values = kv(40)
    cache.keys = keys
    assert (pool.n_free("k"), pool.n_free("v")) == (97, 100)
    cache.values = values
    cache.offset = 40
    assert (pool.n_free("k"), pool.n_free("v")) == (97, 97)
    # Models tie arrays to others this way at every token; that moves no blocks.
    before = pool.stats.n_allocations
    cache.keys = mx.depends(cache.keys, [values])
    assert pool.stats.n_allocations == before
    with pytest.raises(BlockPoolExhaustedError):
        cache.keys = kv(5000)[0]
    assert cache.keys.shape[2] == 40
    cache.keys = cache.values = None
    assert pool.counts().live == 0


# -- Owners ---------------------------------------------------------------------------------------


def test_the_default_owner_is_private(pool, kv):
    a, b = PoolBackedKVCache(pool), PoolBackedKVCache(pool, owner=-1)
    a.update_and_fetch(*kv(1))
    b.update_and_fetch(*kv(1))
    assert len({a.owner, b.owner, -1}) == 3
    a.release()
    assert len(pool.blocks_for(b.owner)) == 32


def test_a_second_live_cache_with_the_same_owner_is_refused(model, pool):
    pool.register_owner("request")  # the caller's business
    caches = build_pooled_caches(model, pool, "request")
    with pytest.raises(OwnerAlreadyActiveError, match="request"):
        PoolBackedKVCache(pool, owner="request")
    with pytest.raises(OwnerAlreadyActiveError):
        build_pooled_caches(model, pool, "request")
    caches[0].release()
    again = build_pooled_caches(model, pool, "request")
    del again
    build_pooled_caches(model, pool, "request")


def test_the_same_owner_on_another_pool_is_another(make_pool):
    first = PoolBackedKVCache(make_pool(), owner=1)
    second = PoolBackedKVCache(make_pool(), owner=1)
    assert first.owner == second.owner == 1


def test_a_released_cache_gets_its_owner_back_unless_it_is_taken(pool, kv):
    cache = PoolBackedKVCache(pool, owner=1)
    cache.update_and_fetch(*kv(1))
    cache.release()
    cache.update_and_fetch(*kv(1))
    cache.release()
    other = PoolBackedKVCache(pool, owner=1)
    with pytest.raises(OwnerAlreadyActiveError):
        cache.update_and_fetch(*kv(1))
    assert cache.offset == 0
    assert pool.counts().live == 0
    other.update_and_fetch(*kv(1))


@pytest.mark.parametrize(("owner", "error"), [(None, ValueError), ([], TypeError)])
def test_owners_that_can_not_be(pool, owner, error):
    with pytest.raises(error):
        PoolBackedKVCache(pool, owner=owner)


def test_something_else_than_a_pool_is_refused():
    with pytest.raises(TypeError, match="BlockPoolAllocator"):
        PoolBackedKVCache(42)


# -- Release, dropping, copying -------------------------------------------------------------------


def test_case_2_release_is_idempotent_over_layers(model, pool, tokens_of, make_prompt):
    caches = build_pooled_caches(model, pool, 7)
    tokens_of(model, make_prompt(20), 3, caches)
    n_frees = pool.stats.n_allocations
    for _ in range(2):
        for cache in caches:
            cache.release()
    assert pool.stats.n_frees == n_frees
    assert all(cache.empty() and cache.offset == 0 for cache in caches)
    assert pool.blocks_for(7) == []
    assert len(set(tokens_of(model, make_prompt(20), 3, caches))) > 0


def test_dropping_the_last_reference_gives_the_blocks_back(model, pool, tokens_of, make_prompt):
    gc.disable()
    try:
        caches = build_pooled_caches(model, pool, 7)
        tokens_of(model, make_prompt(20), 3, caches)
        per_layer = pool.counts().live // len(caches)
        gone = weakref.ref(caches.pop())
        assert gone() is None
        assert pool.counts().live == per_layer * len(caches)
        del caches
        assert pool.counts().live == 0
    finally:
        gc.enable()


def test_a_cache_in_a_reference_cycle_goes_with_the_garbage_collector(pool, kv):
    cache = PoolBackedKVCache(pool)
    cache.update_and_fetch(*kv(3))
    cache.itself = cache
    del cache
    gc.collect()
    assert pool.counts().live == 0


def test_deepcopy_is_independent_under_a_fresh_owner(pool, kv):
    cache = PoolBackedKVCache(pool, owner=1)
    step = kv(20)
    cache.update_and_fetch(*step)
    other = copy.deepcopy(cache)
    assert other.owner != 1
    assert len(pool.blocks_for(other.owner)) == 32
    mine, its = kv(1), kv(1)
    cache.update_and_fetch(*mine)
    other.update_and_fetch(*its)
    cache.release()
    assert len(pool.blocks_for(other.owner)) == 32
    assert same([a[:, :, :20] for a in other.keys_and_values()], step)
    assert same([a[:, :, 20:] for a in other.keys_and_values()], its)


def test_deepcopy_of_a_list_shares_one_fresh_owner(model, pool, tokens_of, make_prompt):
    caches = build_pooled_caches(model, pool, 1)
    tokens_of(model, make_prompt(20), 3, caches)
    copies = copy.deepcopy(caches)
    (owner,) = {cache.owner for cache in copies}
    assert len(pool.blocks_for(owner)) == len(pool.blocks_for(1)) > 0
    copies[-1].release()
    assert all(cache.empty() for cache in copies)
    assert pool.blocks_for(owner) == []
    assert not any(cache.empty() for cache in caches)


def test_deepcopy_is_charged_for_all_layers_or_none(make_pool, model, tokens_of, make_prompt):
    pool = make_pool(n_blocks=2 * 16 * 5)
    caches = build_pooled_caches(model, pool, 1)
    tokens_of(model, make_prompt(20), 3, caches)
    assert pool.counts().live == 2 * 16 * 3
    offsets = [cache.offset for cache in caches]
    with pytest.raises(BlockPoolExhaustedError) as caught:
        copy.deepcopy(caches)
    assert pool.counts().live == 2 * 16 * 3
    assert caught.value is not None  # and the frames it holds
    assert [cache.offset for cache in caches] == offsets


def test_caches_have_neither_length_nor_truth(pool):
    import kvpool.mlx as adapter

    kinds = [getattr(adapter, name) for name in adapter.__all__ if name.startswith("PoolBacked")]
    assert len(kinds) == 9
    for kind in kinds:
        assert not hasattr(kind, "__len__")
        assert not hasattr(kind, "__bool__")
    assert PoolBackedKVCache(pool)
