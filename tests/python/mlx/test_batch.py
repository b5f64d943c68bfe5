"""Batches of pooled caches: by themselves, and in mlx_lm's batch generation."""

from __future__ import annotations

import copy

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import cache as stock
from mlx_lm.models.cache import LRUPromptCache, make_prompt_cache

import kvpool.mlx
from kvpool.memory import BlockPoolExhaustedError
from kvpool.mlx import (
    PoolBackedBatchKVCache,
    PoolBackedKVCache,
    build_pooled_caches,
    versions,
)

MODELS = ["llama", "gemma3_text", "mamba", "jamba", "falcon_h1"]
# These let padding into their states, in mlx_lm itself.
IGNORE_PADDING = ["mamba", "jamba"]
if not versions.STATE_HOLDS_NUMBERS:
    IGNORE_PADDING.append("falcon_h1")
LENGTHS = [3, 17, 40, 1]


@pytest.fixture
def rows(pool, kv):
    """Three single caches of 5, 9 and no tokens, and what they hold."""
    caches, held = [], []
    for n in (5, 9, 0):
        caches.append(PoolBackedKVCache(pool))
        held.append(kv(n))
        caches[-1].update_and_fetch(*held[-1])
    return caches, held


def row_of(batch, row):
    """Keys and values of one row of a batch, without padding."""
    start = batch.left_padding[row].item()
    return [a[row : row + 1, :, start:] for a in batch.keys_and_values()]


def same(a, b):
    return all(mx.array_equal(x, y) for x, y in zip(a, b, strict=True))


def joined(*parts):
    return [mx.concatenate(arrays, axis=2) for arrays in zip(*parts, strict=True)]


def blocks(n_tokens):
    return 2 * -(-n_tokens // 16)


# -- The protocol ----------------------------------------------------------------------------------


def test_merged_rows_are_charged_to_an_owner_each(pool, rows):
    caches, held = rows
    before = pool.counts().live
    batch = PoolBackedKVCache.merge(caches)
    assert type(batch) is PoolBackedBatchKVCache
    assert len(set(batch.owners) | {c.owner for c in caches}) == 6
    assert [len(pool.blocks_for(owner)) for owner in batch.owners] == [blocks(9)] * 3
    assert batch.left_padding.tolist() == [4, 0, 9]
    assert batch.offset.tolist() == [5, 9, 0]
    assert same(row_of(batch, 0), held[0])
    assert same(row_of(batch, 1), held[1])
    for cache in caches:
        cache.release()
    assert pool.counts().live == 3 * blocks(9)
    assert before > 0
    del batch
    assert pool.counts().live == 0


def test_merge_takes_mlx_lms_own_rows_too(pool, kv):
    own = stock.KVCache()
    step = kv(7)
    own.update_and_fetch(*step)
    ours = PoolBackedKVCache(pool)
    batch = PoolBackedKVCache.merge([own, ours])
    assert same(row_of(batch, 0), step)
    assert pool.counts().live == 2 * blocks(7)
    with pytest.raises(ValueError, match="KVCache"):
        PoolBackedKVCache.merge([own])


def test_merge_refuses_what_does_not_go_together(make_pool, pool, kv):
    a, b = PoolBackedKVCache(pool), PoolBackedKVCache(make_pool())
    with pytest.raises(ValueError, match="pools"):
        PoolBackedKVCache.merge([a, b])
    with pytest.raises(ValueError, match="PoolBackedQuantizedKVCache"):
        PoolBackedKVCache.merge([a, a.to_quantized()])
    c = PoolBackedKVCache(pool)
    a.update_and_fetch(*kv(2))
    c.update_and_fetch(*kv(2, n_heads=1))
    with pytest.raises(ValueError, match="heads"):
        PoolBackedKVCache.merge([a, c])


def test_case_26_filtering_an_empty_padded_batch(pool, kv):
    batch = PoolBackedBatchKVCache(pool, [3, 0])
    batch.filter([0])
    assert batch.size() == 0
    assert batch.offset.tolist() == [0]
    assert batch.left_padding.tolist() == [0]
    mask = batch.make_mask(1)
    assert mask is None or (mask.shape[-1] == 1 and mask.all().item())
    step = kv(1)
    assert same(batch.update_and_fetch(*step), step)


def test_case_26_rows_merged_filtered_and_extracted_equal_their_single_runs(pool, rows, kv):
    caches, held = rows
    batch = PoolBackedKVCache.merge(caches)
    step = kv(2, n_rows=3)
    batch.update_and_fetch(*step)
    batch.filter([2, 0])
    assert batch.left_padding.tolist() == [5, 0]
    assert [len(pool.blocks_for(owner)) for owner in batch.owners] == [
        blocks(batch.keys.shape[2])
    ] * 2
    more = kv(1, n_rows=2)
    batch.update_and_fetch(*more)
    expected = [
        joined([a[2:3] for a in step], [a[0:1] for a in more]),
        joined(held[0], [a[0:1] for a in step], [a[1:2] for a in more]),
    ]
    for row, arrays in enumerate(expected):
        assert same(row_of(batch, row), arrays)
        single = batch.extract(row)
        assert type(single) is PoolBackedKVCache
        assert single.offset == arrays[0].shape[2]
        assert same(single.keys_and_values(), arrays)
        assert len(pool.blocks_for(single.owner)) == blocks(single.offset)
        assert single.owner not in batch.owners


def test_filter_gives_the_blocks_of_dropped_rows_back(pool, rows):
    caches, _ = rows
    batch = PoolBackedKVCache.merge(caches)
    caches.clear()
    kept, dropped = batch.owners[1], [batch.owners[0], batch.owners[2]]
    batch.filter([1])
    assert [len(pool.blocks_for(owner)) for owner in dropped] == [0, 0]
    assert len(pool.blocks_for(kept)) == blocks(9) == pool.counts().live
    batch.filter([])
    assert pool.counts().live == 0
    assert (batch.size(), batch.offset.shape) == (0, (0,))


@pytest.mark.parametrize("wrong", [[3], [-4], [0, 0]])
def test_filter_refuses_rows_that_are_not_there(pool, rows, wrong):
    batch = PoolBackedKVCache.merge(rows[0])
    with pytest.raises(ValueError, match="row"):
        batch.filter(wrong)
    assert len(batch.owners) == 3


@pytest.mark.parametrize(
    "with_tokens", [(True, True), (True, False), (False, True), (False, False)]
)
def test_extend_equals_mlx_lms_own(pool, kv, with_tokens):
    ours, own, steps = [], [], []
    for n_rows, full in zip((2, 3), with_tokens, strict=True):
        ours.append(PoolBackedBatchKVCache(pool, [0] * n_rows))
        own.append(stock.BatchKVCache([0] * n_rows))
        if full:
            steps.append(kv(4 * n_rows, n_rows=n_rows))
            ours[-1].update_and_fetch(*steps[-1])
            own[-1].update_and_fetch(*steps[-1])
    owners = ours[0].owners + ours[1].owners
    ours[0].extend(ours[1])
    own[0].extend(own[1])
    assert ours[0].owners == owners
    assert ours[0].left_padding.tolist() == own[0].left_padding.tolist()
    assert ours[0].offset.tolist() == own[0].offset.tolist()
    assert ours[0].size() == own[0].size()
    step = kv(3, n_rows=5)
    got, expected = ours[0].update_and_fetch(*step), own[0].update_and_fetch(*step)
    for row in range(5):
        start = own[0].left_padding[row].item()
        assert same([a[row, :, start:] for a in got], [a[row, :, start:] for a in expected])
    assert pool.counts().live == 5 * blocks(ours[0].keys.shape[2])
    assert ours[1].owners == []
    del ours
    assert pool.counts().live == 0


def test_extend_by_itself_or_by_other_shapes_is_refused(pool, kv):
    batch, other = PoolBackedBatchKVCache(pool, [0]), PoolBackedBatchKVCache(pool, [0])
    with pytest.raises(ValueError, match="itself"):
        batch.extend(batch)
    batch.update_and_fetch(*kv(3))
    other.update_and_fetch(*kv(3, n_heads=1))
    with pytest.raises(ValueError, match="go with"):
        batch.extend(other)
    assert (len(batch.owners), len(other.owners)) == (1, 1)


def test_extend_fits_in_all_layers_or_changes_none(make_pool, kv):
    plain = type("Plain", (), {"layers": (None,) * 3})()
    pool = make_pool(n_blocks=400)
    long, short = (build_pooled_caches(plain, pool, step=16) for _ in range(2))
    for cache in long:
        cache.update_and_fetch(*kv(256))
    for cache in short:
        cache.update_and_fetch(*kv(3))
    batches = []
    for caches in (long, short):
        batches.append([c.merge([c]) for c in caches])
        caches.clear()
    del cache
    pool.allocate("k", 16 * (pool.n_free("k") - 40), "other")
    before = pool.counts()
    with pytest.raises(BlockPoolExhaustedError):
        batches[0][0].extend(batches[1][0])
    assert pool.counts() == before
    assert [len(b.owners) for layers in batches for b in layers] == [1] * 6
    pool.free_all("other")
    for mine, other in zip(*batches, strict=True):
        mine.extend(other)
    assert pool.counts().live == 3 * 2 * blocks(256)
    assert pool.counts().reserved == 0


def test_right_padding_moves_to_the_left(pool, kv):
    ours, own = PoolBackedBatchKVCache(pool, [0, 0]), stock.BatchKVCache([0, 0])
    step = kv(6, n_rows=2)
    for cache in (ours, own):
        cache.prepare(lengths=[6, 2], right_padding=[0, 4])
        cache.update_and_fetch(*step)
        cache.finalize()
    assert ours.left_padding.tolist() == own.left_padding.tolist() == [0, 4]
    assert ours.offset.tolist() == own.offset.tolist() == [6, 2]
    assert same(row_of(ours, 1), [a[1:2, :, :2] for a in step])
    used = [sum(b.n_used for b in pool.blocks_for(owner)) for owner in ours.owners]
    assert used == [12, 4]


def test_left_padding_is_told_before_anything_is_stored(pool, kv):
    ours, own = PoolBackedBatchKVCache(pool, [0, 0]), stock.BatchKVCache([0, 0])
    for cache in (ours, own):
        cache.prepare(left_padding=[2, 0])
    assert ours.offset.tolist() == own.offset.tolist()
    assert mx.array_equal(ours.make_mask(4), own.make_mask(4))
    with pytest.raises(ValueError, match="each row"):
        ours.prepare(left_padding=[1])
    ours.update_and_fetch(*kv(4, n_rows=2))
    with pytest.raises(ValueError, match="nothing"):
        ours.prepare(left_padding=[2, 0])


def test_trim_state_and_deepcopy_of_a_batch(pool, rows):
    batch = PoolBackedKVCache.merge(rows[0])
    assert (batch.trim(-3), batch.size()) == (0, 9)
    assert batch.trim(2) == 2
    assert batch.offset.tolist() == [3, 7, -2]
    held = pool.counts().live
    other = copy.deepcopy(batch)
    assert not set(other.owners) & set(batch.owners)
    assert pool.counts().live == held + 3 * blocks(9)
    batch.release()
    assert pool.counts().live == held
    batch.state = other.state
    assert batch.size() == 7
    assert pool.counts().live == held + 3 * blocks(batch.keys.shape[2])


def test_a_step_fits_for_all_rows_or_none(make_pool, kv):
    pool = make_pool(n_blocks=2 * 5)
    batch = PoolBackedBatchKVCache(pool, [0, 0])
    batch.step = 16
    batch.update_and_fetch(*kv(17, n_rows=2))
    before = pool.counts()
    with pytest.raises(BlockPoolExhaustedError):
        batch.update_and_fetch(*kv(16, n_rows=2))
    assert (batch.size(), pool.counts()) == (17, before)
    with pytest.raises(ValueError, match="2 rows"):
        batch.update_and_fetch(*kv(1, n_rows=3))


def test_layers_extracted_one_after_the_other_share_an_owner(
    model, pool, tokens_of, make_prompt, used
):
    caches = build_pooled_caches(model, pool)
    tokens_of(model, make_prompt(9), 2, caches)
    batch = [c.merge([c]) for c in caches]
    caches.clear()
    assert len({b.owners[0] for b in batch}) == 1
    first, second = ([b.extract(0) for b in batch] for _ in range(2))
    assert len({c.owner for c in first}) == len({c.owner for c in second}) == 1
    assert first[0].owner != second[0].owner
    first[1].release()
    assert all(c.empty() for c in first)
    assert not any(c.empty() for c in second)
    del first, second, batch
    assert used(pool) == (0, 0)


# -- In mlx_lm's batch generation ------------------------------------------------------------------


def run(generator):
    """All tokens by request, with the reason why each ended."""
    tokens = {}
    while responses := generator.next_generated():
        for response in responses:
            tokens.setdefault(response.uid, []).append(response.token)
    return tokens


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("chunk", [2048, 8])
def test_four_ragged_requests_equal_single_runs(
    make_model, pool, tokens_of, make_prompt, used, name, chunk
):
    model = make_model(name)
    prompts = [make_prompt(n, seed) for seed, n in enumerate(LENGTHS)]
    lengths = [12, 20, 5, 30]

    def tokens():
        generator = BatchGenerator(model, prefill_batch_size=2, prefill_step_size=chunk)
        uids = generator.insert(prompts, lengths)
        got = run(generator)
        return [got[uid] for uid in uids]

    expected = tokens()
    if name not in IGNORE_PADDING:
        assert expected == [tokens_of(model, p, n) for p, n in zip(prompts, lengths, strict=True)]
    kvpool.mlx.attach(model, pool, step=16)
    try:
        assert tokens() == expected
    finally:
        kvpool.mlx.detach(model)
    assert pool.stats.n_allocations == pool.stats.n_frees > 0
    assert used(pool) == (0, 0)


def test_batch_generate_returns_pooled_prompt_caches(
    model, pool, tokenizer, make_prompt, tokens_of, used
):
    prompts = [make_prompt(n, seed) for seed, n in enumerate(LENGTHS)]
    kvpool.mlx.attach(model, pool)
    try:
        got = mlx_lm.batch_generate(
            model, tokenizer, prompts, max_tokens=4, return_prompt_caches=True
        )
    finally:
        kvpool.mlx.detach(model)
    for prompt, caches in zip(prompts, got.caches, strict=True):
        assert {type(cache) for cache in caches} == {PoolBackedKVCache}
        assert len({cache.owner for cache in caches}) == 1
        assert caches[0].offset == len(prompt) + 4
        answer = tokens_of(model, prompt, 8)
        assert tokens_of(model, answer[4:5], 3, caches) == answer[5:]
    got.caches.clear()
    del caches, got
    assert used(pool) == (0, 0)


@pytest.mark.parametrize("name", MODELS)
def test_case_6_removing_requests_gives_their_blocks_back(
    make_model, pool, make_prompt, used, name
):
    model = make_model(name)
    prompts = [make_prompt(n, seed) for seed, n in enumerate(LENGTHS)]

    def tokens():
        generator = BatchGenerator(model, prefill_batch_size=3)
        uids = generator.insert(prompts, [12] * 4)
        generator.remove([uids[3]])  # before anything ran
        got = [r.token for r in generator.next_generated() if r.uid == uids[1]]
        held = [used(pool)[0]]
        generator.remove([uids[0]])
        held.append(used(pool)[0])
        generator.remove([uids[2]], return_prompt_caches=True)
        held.append(used(pool)[0])
        return got + run(generator)[uids[1]], held

    expected, _ = tokens()
    kvpool.mlx.attach(model, pool)
    try:
        got, held = tokens()
    finally:
        kvpool.mlx.detach(model)
    assert got == expected
    assert held[0] > held[1] > held[2] > 0
    assert used(pool) == (0, 0)


def test_a_request_that_does_not_fit_leaves_the_pool_whole(make_pool, model, make_prompt, used):
    pool = make_pool(n_blocks=2 * 3 * 4)
    kvpool.mlx.attach(model, pool, step=16)
    try:
        generator = BatchGenerator(model)
        generator.insert([make_prompt(500)], [4])
        with pytest.raises(BlockPoolExhaustedError):
            run(generator)
        del generator
    finally:
        kvpool.mlx.detach(model)
    assert used(pool) == (0, 0)


@pytest.mark.parametrize("name", MODELS)
def test_mlx_lms_store_of_prompt_caches(make_model, pool, tokens_of, make_prompt, used, name):
    model = make_model(name)
    prompt = make_prompt(30)
    kvpool.mlx.attach(model, pool)
    try:
        caches = make_prompt_cache(model)
        tokens = tokens_of(model, prompt, 6, caches)
    finally:
        kvpool.mlx.detach(model)
    key = prompt + tokens[:-1]
    store = LRUPromptCache(max_size=1)
    store.insert_cache("model", key + tokens[-1:], caches)
    del caches
    longer = [*key, *tokens[-1:], 1, 2]
    fetched, rest = store.fetch_nearest_cache("model", longer)
    assert rest == [1, 2]
    assert tokens_of(model, rest, 5, fetched) == tokens_of(model, longer, 5)
    shorter, rest = store.fetch_nearest_cache("model", key[:20])
    if shorter is not None:
        assert tokens_of(model, rest, 5, shorter) == tokens_of(model, key[:20], 5)
    del fetched, shorter
    assert used(pool)[0] > 0
    store.insert_cache("model", [5, 6], build_pooled_caches(model, pool))
    assert used(pool) == (0, 0)
