"""Requests that are cancelled at any moment, and gauges that tell what is really held."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from mlx_lm.generate import stream_generate

from kvpool.memory import BlockPoolAllocator
from kvpool.mlx import build_pooled_caches

N_REQUESTS = 200


@pytest.fixture
def worker():
    """One thread that everything of a model runs in, as MLX wants it."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield executor


async def cancelled_after(request, n_turns):
    """Run a request, cancel it after some turns of the event loop, and wait for its end."""
    task = asyncio.ensure_future(request)
    for _ in range(n_turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def run_cancelled(worker, request, moments):
    async def main():
        for n in range(N_REQUESTS):
            await cancelled_after(request(n), moments(n))
        await asyncio.get_running_loop().run_in_executor(worker, int)  # what ran has ended

    asyncio.run(main())


def assert_all_given_back(pool):
    assert pool.counts() == BlockPoolAllocator(pool.config).counts()
    for n in range(N_REQUESTS):
        pool.register_owner(n)  # raises for an owner that is still active
        pool.release_owner(n)


def test_case_6_cancelled_while_blocks_are_allocated_in_an_executor(pool, worker, model, kv):
    keys, values = kv(20)

    def allocate(owner):
        caches = build_pooled_caches(model, pool, owner)
        step = pool.reserve([("k", 100), ("v", 100)], owner)
        for cache in caches:
            cache.update_and_fetch(keys, values)
        return caches, step

    async def request(n):
        await asyncio.get_running_loop().run_in_executor(worker, allocate, n)

    run_cancelled(worker, request, lambda n: n % 4)
    assert pool.stats.n_allocations > 0
    assert_all_given_back(pool)


@pytest.mark.parametrize("moment", ["before the first token", "mid-stream"])
def test_case_6_cancelled_while_streaming(pool, worker, model, tokenizer, make_prompt, moment):
    n_tokens = 0
    rng = random.Random(6)

    async def request(n):
        nonlocal n_tokens
        loop = asyncio.get_running_loop()
        caches = build_pooled_caches(model, pool, n)
        stream = stream_generate(
            model, tokenizer, make_prompt(5), max_tokens=50, prompt_cache=caches
        )
        del caches
        try:
            while await loop.run_in_executor(worker, next, stream, None) is not None:
                n_tokens += 1
        finally:
            worker.submit(stream.close)
            del stream

    async def main():
        for n in range(N_REQUESTS):
            task = asyncio.ensure_future(request(n))
            if moment == "mid-stream":
                wanted = n_tokens + rng.randint(1, 3)
                while n_tokens < wanted:
                    await asyncio.sleep(0)
            else:
                for _ in range(n % 2):
                    await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await asyncio.get_running_loop().run_in_executor(worker, int)

    asyncio.run(main())
    assert n_tokens >= N_REQUESTS if moment == "mid-stream" else n_tokens == 0
    assert_all_given_back(pool)


def test_case_8_gauges_tell_live_cached_and_free_apart(pool, model, tokens_of, make_prompt):
    total = pool.counts().managed
    for n in range(24):
        cache = build_pooled_caches(model, pool, owner=n)
        tokens_of(model, make_prompt(20, seed=n), 3, cache)
        counts = pool.counts()
        assert counts.live == 3 * 2 * 16
        assert (counts.cached, counts.reserved) == (0, 0)
        assert counts.free == total - counts.live
        cache[0].release()
    assert pool.counts().free == total
    assert pool.stats.blocks_in_use() == 0
