"""mlx_lm's generation with pooled caches: the same tokens, whole steps, all given back."""

from __future__ import annotations

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.generate import generate_step, speculative_generate_step, stream_generate
from mlx_lm.models import cache as stock
from mlx_lm.models.cache import make_prompt_cache

import kvpool.mlx
from kvpool.memory import BlockPoolExhaustedError
from kvpool.mlx import PoolBackedQuantizedKVCache, build_pooled_caches, versions
from kvpool.mlx.ledger import Group

MODELS = ["llama", "gemma3_text", "mamba", "jamba", "falcon_h1"]
if versions.STATE_HOLDS_NUMBERS:  # before, mlx_lm's own caches of chunks lose tokens
    MODELS.append("llama4")


def positions(caches):
    """What moves in a step, of every cache and the caches in it."""
    found = []
    for cache in caches:
        if isinstance(cache, stock.CacheList):
            found += positions(cache.caches)
        elif isinstance(cache, stock.ArraysCache):
            found.append([None if a is None else a.tolist() for a in cache.cache])
        else:
            found.append(cache.offset)
    return found


@pytest.mark.parametrize("n_prompt", [1, 15, 16, 17, 255, 256, 257, 600])
def test_tokens_equal_mlx_lms_own(model, pool, tokenizer, make_prompt, used, n_prompt):
    prompt = make_prompt(n_prompt)
    expected = mlx_lm.generate(model, tokenizer, prompt, max_tokens=12)
    caches = build_pooled_caches(model, pool, "request")
    assert mlx_lm.generate(model, tokenizer, prompt, max_tokens=12, prompt_cache=caches) == expected
    assert len(pool.blocks_for("request")) == pool.counts().live > 0
    caches[0].release()
    assert used(pool) == (0, 0)


@pytest.mark.parametrize("n_prompt", [1, 255, 257, 600])
def test_arrays_are_concatenated_as_often_as_by_mlx_lm(
    model, pool, tokens_of, make_prompt, monkeypatch, n_prompt
):
    calls = []
    concatenate = mx.concatenate
    monkeypatch.setattr(mx, "concatenate", lambda *a, **k: calls.append(1) or concatenate(*a, **k))
    tokens_of(model, make_prompt(n_prompt), 270, prefill_step_size=100)
    own = len(calls)
    calls.clear()
    caches = build_pooled_caches(model, pool)
    tokens_of(model, make_prompt(n_prompt), 270, caches, prefill_step_size=100)
    assert 0 < len(calls) <= own


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("chunk", [2048, 7])
def test_tokens_equal_for_every_kind_of_cache(
    make_model, pool, tokens_of, make_prompt, used, name, chunk
):
    model, prompt = make_model(name), make_prompt(60)
    expected = tokens_of(model, prompt, 20, prefill_step_size=chunk)
    caches = build_pooled_caches(model, pool)
    assert tokens_of(model, prompt, 20, caches, prefill_step_size=chunk) == expected
    assert used(pool)[0] > 0
    assert used(pool)[1] == 0
    del caches
    assert used(pool) == (0, 0)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("step", "block_size"), [(3, 16), (16, 3), (1, 1), (300, 64)])
def test_tokens_equal_for_any_step_and_block_size(
    make_model, make_pool, tokens_of, make_prompt, used, name, step, block_size
):
    model, prompt = make_model(name), make_prompt(10)
    pool = make_pool(block_size=block_size)
    caches = build_pooled_caches(model, pool, step=step)
    assert tokens_of(model, prompt, 30, caches) == tokens_of(model, prompt, 30)
    caches[0].release()
    assert used(pool) == (0, 0)


@pytest.mark.parametrize("name", MODELS)
def test_entries_are_of_the_kind_the_model_asks_for(make_model, pool, name):
    model = make_model(name)

    def compare(ours, own):
        assert type(ours).__name__ == "PoolBacked" + type(own).__name__
        for key, value in vars(own).items():
            if isinstance(value, int):
                assert getattr(ours, key) == value
        if isinstance(own, stock.CacheList):
            for pair in zip(ours.caches, own.caches, strict=True):
                compare(*pair)

    for pair in zip(build_pooled_caches(model, pool), make_prompt_cache(model), strict=True):
        compare(*pair)


@pytest.mark.parametrize("name", MODELS)
def test_books_equal_what_the_arrays_hold(make_model, make_pool, tokens_of, make_prompt, name):
    pool = make_pool(block_size=4)
    model = make_model(name)
    caches = build_pooled_caches(model, pool, step=8)

    def blocks(cache):
        if isinstance(cache, stock.CacheList):
            return sum(map(blocks, cache.caches))
        if isinstance(cache, stock.ArraysCache):
            return len(cache.cache)
        return sum(-(-a.shape[2] // 4) for a in (cache.keys, cache.values))

    steps = generate_step(
        mx.array(make_prompt(45)), model, max_tokens=40, prompt_cache=caches, prefill_step_size=9
    )
    for _ in steps:
        assert pool.counts().live == sum(map(blocks, caches))


def test_an_unknown_kind_is_refused_by_name(pool):
    class WholeAttentionCache(stock.KVCache):
        pass

    class Model:
        layers = (None, None)

        def make_cache(self):
            return [stock.KVCache(), WholeAttentionCache()]

    with pytest.raises(ValueError, match="WholeAttentionCache.*KVCache"):
        build_pooled_caches(Model(), pool, 1)
    build_pooled_caches(type("Plain", (), {"layers": (None, None)})(), pool, 1)


def test_a_window_for_models_that_make_no_caches_themselves(pool):
    plain = type("Plain", (), {"layers": (None, None)})()
    (first, _) = build_pooled_caches(plain, pool, max_kv_size=64)
    own = make_prompt_cache(plain, max_kv_size=64)[0]
    assert (first.max_size, first.keep) == (own.max_size, own.keep)


# -- A step fits as a whole or nothing moves -------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n_blocks", range(2, 44, 3))
def test_exhaustion_moves_nothing_in_any_layer(make_model, make_pool, make_prompt, name, n_blocks):
    """Of a pool of any size, too small at one point or another, no step takes a part."""
    pool = make_pool(n_blocks=n_blocks, block_size=4)
    model = make_model(name)
    caches = build_pooled_caches(model, pool, "request", step=8)
    tokens = mx.array([make_prompt(40)])
    for start, end in [(0, 5), (5, 9), (9, 10), (10, 30), (30, 31), (31, 40)]:
        before = positions(caches), pool.counts(), len(pool.blocks_for("request"))
        try:
            mx.eval(model(tokens[:, start:end], cache=caches))
        except BlockPoolExhaustedError:
            assert (positions(caches), pool.counts(), len(pool.blocks_for("request"))) == before
            break
    caches[0].release()
    assert pool.counts().free == n_blocks


def test_the_others_go_on_when_a_request_does_not_fit(make_pool, model, tokens_of, make_prompt):
    pool = make_pool(n_blocks=2 * 3 * 16)
    expected = tokens_of(model, make_prompt(20), 12)
    caches = build_pooled_caches(model, pool, 1)
    steps = generate_step(mx.array(make_prompt(20)), model, max_tokens=12, prompt_cache=caches)
    tokens = [next(steps)[0] for _ in range(4)]
    with pytest.raises(BlockPoolExhaustedError):
        tokens_of(model, make_prompt(300, 1), 4, build_pooled_caches(model, pool, 2))
    tokens += [token for token, _ in steps]
    assert tokens == expected


def test_a_refused_model_does_not_keep_the_owner(pool):
    unknown = type("Model", (), {"make_cache": lambda self: [stock.KVCache(), object()]})()
    with pytest.raises(ValueError, match="object") as caught:
        build_pooled_caches(unknown, pool, 1)
    assert caught.value is not None  # and the frames it holds
    build_pooled_caches(type("Plain", (), {"layers": (None,)})(), pool, 1)


def test_states_behind_a_layer_that_has_moved_do_not_plan_the_next_step(make_pool, kv):
    """The layer that counts comes first, and fills its last block: that step fits."""
    pool = make_pool(n_blocks=2 * 2 + 2)
    model = type(
        "Model", (), {"make_cache": lambda self: [stock.KVCache(), stock.ArraysCache(2)]}
    )()
    full, states = build_pooled_caches(model, pool, step=16)
    for n in (30, 1, 1):
        full.make_mask(n, return_array=False, window_size=None)
        full.update_and_fetch(*kv(n))
        states[0] = states[1] = mx.zeros((1, 4))
    assert full.offset == 32
    full.make_mask(1, return_array=False, window_size=None)
    with pytest.raises(BlockPoolExhaustedError):
        states[0] = mx.ones((1, 4))
    assert not states[0].any().item()
    assert pool.counts().reserved == 0


def test_caches_that_were_quantised_are_not_planned_for_any_more(make_pool, model, make_prompt):
    pool = make_pool(n_blocks=3 * 2 * 16 * 2 + 3 * 2 * 16)
    caches = build_pooled_caches(model, pool)
    plain = list(caches)
    options = {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}
    prompt = mx.array(make_prompt(250))
    for _ in generate_step(prompt, model, max_tokens=20, prompt_cache=caches, **options):
        assert pool.counts().reserved == 0
    assert [cache.offset for cache in plain] == [249] * 3
    assert caches[0].offset > 256


def test_layers_that_never_come_leave_nothing_reserved(make_pool, kv, used):
    pool = make_pool(n_blocks=8)  # the second step fits only without what the first one left
    plain = type("Plain", (), {"layers": (None,) * 4})()
    caches = build_pooled_caches(plain, pool, 1, step=16)
    for _ in range(2):
        for cache in caches[:2]:  # two layers read what another one wrote
            cache.update_and_fetch(*kv(16))
    assert used(pool) == (2 * 2 * 2, 0)
    assert [cache.offset for cache in caches] == [32, 32, 0, 0]


def test_an_error_in_the_middle_of_a_step_leaves_nothing_reserved(pool, kv, used):
    plain = type("Plain", (), {"layers": (None,) * 3})()
    caches = build_pooled_caches(plain, pool, 1, step=16)
    caches[0].update_and_fetch(*kv(7))
    assert used(pool) == (2, 4)
    caches[0].trim(7)
    assert used(pool)[1] == 0
    for cache in caches:
        cache.update_and_fetch(*kv(3))
    assert used(pool) == (6, 0)


def test_single_tokens_are_planned_once_a_block(model, pool, make_prompt, monkeypatch):
    plans = []
    plan_step = Group._plan_step
    monkeypatch.setattr(Group, "_plan_step", lambda *args: plans.append(1) or plan_step(*args))
    caches = build_pooled_caches(model, pool)
    for _ in generate_step(mx.array(make_prompt(1)), model, max_tokens=320, prompt_cache=caches):
        pass
    assert len(plans) <= 320 // 16 + 3


# -- Cancelling ------------------------------------------------------------------------------------


def test_case_6_closing_a_stream_gives_everything_back(pool, model, tokenizer, make_prompt, used):
    kvpool.mlx.attach(model, pool)
    try:
        for stop_after in (0, 1, 5):
            stream = stream_generate(model, tokenizer, make_prompt(20), max_tokens=50)
            for _ in range(stop_after):
                next(stream)
            if stop_after:
                assert used(pool)[0] > 0
            stream.close()
            assert used(pool) == (0, 0)
    finally:
        kvpool.mlx.detach(model)
    assert pool.stats.n_allocations == pool.stats.n_frees > 0


# -- Quantising, speculating -----------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 30])
@pytest.mark.parametrize("bits", [4, 8])
def test_kv_bits(model, pool, tokens_of, make_prompt, used, bits, start):
    options = {"kv_bits": bits, "kv_group_size": 32, "quantized_kv_start": start}
    prompt = make_prompt(20)
    expected = tokens_of(model, prompt, 30, **options)
    caches = build_pooled_caches(model, pool, "request")
    assert tokens_of(model, prompt, 30, caches, **options) == expected
    assert all(type(cache) is PoolBackedQuantizedKVCache for cache in caches)
    held = pool.blocks_for("request")
    assert {block.format for block in held} == {f"int{bits}"}
    assert len(held) == len(caches) * 2 * 16
    caches[0].release()
    assert used(pool) == (0, 0)


def test_speculative_decoding(make_model, model, pool, make_prompt, used):
    prompt = mx.array(make_prompt(250))
    expected = [t for t, _, _ in speculative_generate_step(prompt, model, model, max_tokens=40)]
    caches = build_pooled_caches(model, pool) + build_pooled_caches(model, pool)
    got = speculative_generate_step(prompt, model, model, max_tokens=40, prompt_cache=caches)
    assert [t for t, _, _ in got] == expected
    del caches, got
    assert used(pool) == (0, 0)


# -- Attaching -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_an_attached_model_makes_pooled_caches(
    make_model, pool, tokens_of, make_prompt, used, name
):
    model, prompt = make_model(name), make_prompt(30)
    expected = tokens_of(model, prompt, 8)
    kvpool.mlx.attach(model, pool, step=32)
    try:
        assert tokens_of(model, prompt, 8) == expected
        assert pool.stats.n_allocations > 0
        assert used(pool) == (0, 0)
        one, two = make_prompt_cache(model), make_prompt_cache(model)
        assert one[0].owner != two[0].owner
        assert type(build_pooled_caches(model, pool, 5)[0]) is type(one[0])
    finally:
        kvpool.mlx.detach(model)
    assert not any(hasattr(cache, "release") for cache in make_prompt_cache(model))


def test_attaching_again_replaces_the_pool(model, make_pool):
    first, second = make_pool(), make_pool()
    kvpool.mlx.attach(model, first)
    kvpool.mlx.attach(model, second)
    assert make_prompt_cache(model)[0].pool is second
    kvpool.mlx.detach(model)
    with pytest.raises(ValueError, match="not attached"):
        kvpool.mlx.detach(model)


def test_attaching_leaves_a_make_cache_of_the_model_itself_in_place(pool):
    class Model:
        layers = (None,)

    model = Model()
    model.make_cache = lambda: [stock.RotatingKVCache(max_size=8)]
    before = model.make_cache
    kvpool.mlx.attach(model, pool)
    assert make_prompt_cache(model)[0].max_size == 8
    kvpool.mlx.detach(model)
    assert model.make_cache is before


def test_attaching_does_not_keep_the_model_alive(pool):
    import gc
    import weakref

    class Model:
        layers = (None,)

    gc.disable()
    try:
        model = Model()
        kvpool.mlx.attach(model, pool)
        gone = weakref.ref(model)
        del model
        assert gone() is None
    finally:
        gc.enable()
