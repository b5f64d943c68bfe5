"""Prompt caches in files, and caches that were loaded without a pool."""

from __future__ import annotations

import copy
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace

import mlx.core as mx
import pytest
from mlx_lm.models import cache as stock
from mlx_lm.models.cache import make_prompt_cache

from kvpool.memory import BlockPoolExhaustedError, OwnerAlreadyActiveError
from kvpool.mlx import (
    PoolBackedBatchKVCache,
    PoolBackedKVCache,
    build_pooled_caches,
    load_prompt_cache,
    save_prompt_cache,
    versions,
)

SIZES = [0, 1, 16, 17, 256, 257]
MODELS = ["llama", "gemma3_text", "mamba", "jamba", "falcon_h1"]
if versions.STATE_HOLDS_NUMBERS:  # before, mlx_lm's own caches of chunks lose tokens
    MODELS.append("llama4")


needs_numbers_in_state = pytest.mark.skipif(
    not versions.STATE_HOLDS_NUMBERS, reason="the state of this mlx_lm holds no numbers"
)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "prompt.safetensors"


@pytest.mark.parametrize("n", SIZES)
def test_case_25_round_trip(pool, kv, file, used, n):
    plain = type("Plain", (), {"layers": (None,) * 2})()
    caches = build_pooled_caches(plain, pool, 1)
    steps = [kv(n) for _ in caches]
    for cache, step in zip(caches, steps, strict=True):
        cache.update_and_fetch(*step)
    save_prompt_cache(file, caches, {"model": "tiny"})
    caches[0].release()
    loaded, metadata = load_prompt_cache(file, pool, 2, return_metadata=True)
    assert metadata == {"model": "tiny"}
    assert [cache.offset for cache in loaded] == [n, n]
    assert {type(cache) for cache in loaded} == {PoolBackedKVCache}
    for cache, step in zip(loaded, steps, strict=True):
        if n:
            assert all(map(mx.array_equal, cache.state, step))
    assert len(pool.blocks_for(2)) == 2 * 2 * -(-n // 16) == used(pool)[0]
    for cache in loaded:
        cache.update_and_fetch(*kv(1))
    assert [cache.offset for cache in loaded] == [n + 1, n + 1]
    loaded[1].release()
    assert used(pool) == (0, 0)


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize(
    ("name", "quantized"), [("llama", True), *((name, False) for name in MODELS)]
)
def test_generation_goes_on_from_a_file(
    make_model, pool, tokens_of, make_prompt, file, used, name, ours, quantized
):
    """Of files that were saved from our caches, and from mlx_lm's own by mlx_lm."""
    options = {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0} if quantized else {}
    model, prompt = make_model(name), make_prompt(40)
    full = make_prompt_cache(model)
    answer = tokens_of(model, prompt, 3, full, **options)
    if ours:
        caches = build_pooled_caches(model, pool)
        assert tokens_of(model, prompt, 3, caches, **options) == answer
        save_prompt_cache(file, caches)
        kinds = [type(cache) for cache in caches]
        del caches
    else:
        stock.save_prompt_cache(str(file), full, {})
        kinds = None
    expected = tokens_of(model, answer[-1:], 6, copy.deepcopy(full))
    loaded = load_prompt_cache(file, pool)
    assert kinds is None or [type(cache) for cache in loaded] == kinds
    assert len({cache.owner for cache in loaded}) == 1
    assert tokens_of(model, answer[-1:], 6, loaded) == expected
    del loaded
    assert used(pool) == (0, 0)


def test_a_file_that_does_not_fit_leaves_nothing_charged(make_pool, kv, file, used):
    plain = type("Plain", (), {"layers": (None,) * 3})()
    large, small = make_pool(), make_pool(n_blocks=8)
    caches = build_pooled_caches(plain, large)
    for cache in caches:
        cache.update_and_fetch(*kv(20))
    save_prompt_cache(file, caches)
    with pytest.raises(BlockPoolExhaustedError):
        load_prompt_cache(file, small, 1)
    assert used(small) == (0, 0)
    build_pooled_caches(plain, small, 1)


def test_case_25_mlx_lms_loader_makes_caches_that_want_a_pool(pool, kv, file):
    cache = PoolBackedKVCache(pool)
    step = kv(17)
    cache.update_and_fetch(*step)
    save_prompt_cache(file, [cache, cache])
    cache.release()
    first, second = stock.load_prompt_cache(str(file))
    assert isinstance(first, PoolBackedKVCache)
    assert "PoolBackedKVCache, not attached" in repr(first)
    for use in (
        lambda: first.update_and_fetch(*kv(1)),
        lambda: first.state,
        lambda: first.offset,
        lambda: first.trim(1),
        lambda: first.make_mask(1),
        lambda: first.nbytes,
        lambda: first.empty(),
        lambda: first.release(),
        lambda: first.to_quantized(),
        lambda: copy.deepcopy(first),
        lambda: PoolBackedKVCache.merge([first]),
    ):
        with pytest.raises(RuntimeError, match=r"cache\.attach.*load_prompt_cache"):
            use()
    assert first.attach(pool, "request") is first
    assert type(first) is PoolBackedKVCache
    second.attach(pool, "request")
    assert all(map(mx.array_equal, first.state, step))
    assert len(pool.blocks_for("request")) == 2 * 2 * 2
    with pytest.raises(RuntimeError, match="has a pool"):
        first.attach(pool)
    first.release()
    assert second.empty()
    assert pool.counts().live == 0


def test_attaching_with_an_owner_in_use_or_too_small_a_pool(make_pool, pool, kv):
    live = PoolBackedKVCache(pool, owner=1)
    cache = PoolBackedKVCache.from_state(kv(100))
    with pytest.raises(OwnerAlreadyActiveError):
        cache.attach(pool, 1)
    with pytest.raises(BlockPoolExhaustedError):
        cache.attach(make_pool(n_blocks=4), 1)
    with pytest.raises(RuntimeError, match="without a pool"):
        cache.size()
    live.release()
    assert cache.attach(pool, 1).size() == 100


def test_from_state_takes_pair_and_triple(pool, kv):
    keys, values = kv(20)
    assert PoolBackedKVCache.from_state((keys, values)).attach(pool).offset == 20
    assert PoolBackedKVCache.from_state((keys, values, 7)).attach(pool).offset == 7
    with pytest.raises(ValueError, match="1 items"):
        PoolBackedKVCache.from_state((keys,)).attach(pool)
    assert pool.counts().live == 0


def test_case_25_a_loaded_cache_grows_by_what_it_needs_and_no_more(make_pool, kv, file, used):
    """One of each layer in the group: a second one would be charged for growth that never comes."""
    model = SimpleNamespace(layers=[None] * 3)
    source = build_pooled_caches(model, make_pool())
    for cache in source:
        cache.update_and_fetch(*kv(5))
    save_prompt_cache(file, source)
    pool = make_pool(n_blocks=3 * 2 * (1 + 16))  # what is loaded, and a step of growth
    loaded = load_prompt_cache(file, pool)
    for cache in loaded:
        cache.update_and_fetch(*kv(1))
    held = sum(2 * -(-cache.keys.shape[2] // 16) for cache in loaded)
    assert used(pool) == (held, 0)


def _states(kv):
    keys, values = kv(3000)
    quantised = [tuple(mx.quantize(array, 32, 4)) for array in (keys, values)]
    return {
        "plain": lambda pool: (PoolBackedKVCache(pool), (keys, values)),
        "quantised": lambda pool: (
            PoolBackedKVCache(pool).to_quantized(32, 4),
            (*quantised, 3000, 32, 4),
        ),
        "batch": lambda pool: (
            PoolBackedBatchKVCache(pool, [0]),
            (keys, values, mx.array([3000]), mx.array([0]), 3000),
        ),
    }


@pytest.mark.parametrize("kind", ["plain", "quantised", "batch"])
def test_a_state_that_does_not_fit_the_pool_changes_nothing(make_pool, kv, used, kind):
    pool = make_pool(n_blocks=40)
    cache, state = _states(kv)[kind](pool)
    with pytest.raises(BlockPoolExhaustedError):
        cache.state = state
    assert cache.keys is None
    assert cache.size() == 0
    assert used(pool) == (0, 0)


@pytest.mark.skipif(
    not versions.STATE_HOLDS_NUMBERS, reason="the state of this mlx_lm holds no numbers"
)
@pytest.mark.parametrize("number", [-5, 3001, 99999])
@pytest.mark.parametrize("kind", ["plain", "quantised", "batch"])
def test_a_state_with_a_wrong_length_is_refused(pool, kv, used, kind, number):
    cache, state = _states(kv)[kind](pool)
    wrong = {
        "plain": (*state[:2], number),
        "quantised": (*state[:2], number, 32, 4),
        "batch": (*state[:4], number),
    }[kind]
    with pytest.raises(ValueError, match=f"must be within 0…3000, got {number}"):
        cache.state = wrong
    assert cache.keys is None
    assert used(pool) == (0, 0)


@pytest.mark.skipif(
    not versions.STATE_HOLDS_NUMBERS, reason="the state of this mlx_lm holds no numbers"
)
@pytest.mark.parametrize(("group_size", "bits"), [(64, 4), (32, 8)])
def test_a_quantised_state_that_contradicts_itself_is_refused(pool, kv, group_size, bits):
    cache, (keys, values, *_) = _states(kv)["quantised"](pool)
    with pytest.raises(ValueError, match=f"{bits} bits in groups of {group_size} do not go with"):
        cache.state = (keys, values, 3000, group_size, bits)


def test_a_batch_round_trips(pool, kv, file):
    rows = [PoolBackedKVCache(pool) for _ in range(2)]
    for n, cache in enumerate(rows, 3):
        cache.update_and_fetch(*kv(n))
    batch = PoolBackedKVCache.merge(rows)
    expected = batch.keys_and_values()
    save_prompt_cache(file, [batch])
    (loaded,) = load_prompt_cache(file, pool)
    assert type(loaded) is type(batch)
    assert all(map(mx.array_equal, loaded.keys_and_values(), expected))
    assert loaded.offset.tolist() == [3, 4]
    assert len(set(loaded.owners)) == 2


def test_case_27_arrays_left_lazy_on_another_thread(tmp_path):
    """In a process of its own, so that an abort would be seen."""
    script = textwrap.dedent(
        """
        import sys, threading
        import mlx.core as mx
        from kvpool.memory import BlockPoolAllocator
        from kvpool.mlx import PoolBackedKVCache, load_prompt_cache, save_prompt_cache

        pool = BlockPoolAllocator()
        cache = PoolBackedKVCache(pool)
        file = sys.argv[1]

        def make():
            with mx.stream(mx.new_stream(mx.cpu)):
                ones = mx.ones((1, 2, 20, 8))
                cache.update_and_fetch(ones * 3, ones * 4)

        def save():
            try:
                save_prompt_cache(file, [cache])
            except Exception as error:
                print("refused", type(error).__name__)
            else:
                (loaded,) = load_prompt_cache(file, BlockPoolAllocator())
                keys, values = loaded.state
                right = mx.all(keys == 3).item() and mx.all(values == 4).item()
                print("right" if right else "wrong")

        for target in (make, save):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "lazy.safetensors")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("right", "refused RuntimeError")


def test_a_cache_may_be_dropped_in_another_thread(pool, kv):
    cache = [PoolBackedKVCache(pool)]
    cache[0].update_and_fetch(*kv(20))
    thread = threading.Thread(target=cache.clear)
    thread.start()
    thread.join()
    assert pool.counts().live == 0


# -- Versions --------------------------------------------------------------------------------------


def test_case_25_versions_that_are_too_old_are_refused():
    oldest = ".".join(map(str, versions.OLDEST))
    assert versions.check(oldest) == versions.OLDEST
    assert versions.check("99.1.0.dev1") == (99, 1, 0)
    for old in ("0.31.2", "0.9", "0"):
        with pytest.raises(ImportError, match=rf"{oldest}.*{old}"):
            versions.check(old)
    with pytest.raises(ValueError, match="'now'"):
        versions.parse("now")


def test_the_installed_version_is_one_that_is_stated():
    assert versions.OLDEST <= versions.INSTALLED <= versions.NEWEST
