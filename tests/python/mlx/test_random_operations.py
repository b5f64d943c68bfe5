"""Random operations on the caches of several requests, against arrays kept by hand.

After every operation the values, the offsets and the pool's books are what they should be.
"""

from __future__ import annotations

import copy
import random

import mlx.core as mx
import pytest

from kvpool.memory import BlockPoolAllocator, BlockPoolExhaustedError, PoolConfig
from kvpool.mlx import build_pooled_caches

N_LAYERS = 3

MODEL = type("Model", (), {"layers": (None,) * N_LAYERS})()


class Request:
    """The caches of a request, and the tokens that they should hold."""

    def __init__(self, caches, tokens=()):
        self.caches = caches
        self.tokens = list(tokens)  # one number a token; layer l holds it plus l

    def arrays(self, numbers, layer):
        rows = mx.array(numbers, mx.float32).reshape(1, 1, -1, 1) + layer
        return mx.broadcast_to(rows, (1, 2, len(numbers), 4)), mx.broadcast_to(
            -rows, (1, 2, len(numbers), 6)
        )


class Machine:
    """Operations on requests; each checks its own outcome."""

    def __init__(self, seed, step, block_size, n_blocks):
        self.random = random.Random(seed)
        self.pool = BlockPoolAllocator(PoolConfig(block_size, n_blocks))
        self.grow_by, self.block_size = step, block_size
        self.requests = []
        self.n_refused = 0
        self.token = 0

    def new_tokens(self, n):
        self.token += n
        return list(range(self.token - n + 1, self.token + 1))

    def try_all_or_nothing(self, operation):
        """Run an operation; when the pool is exhausted, the books must be as before."""
        before = self.pool.counts(), [[c.offset for c in r.caches] for r in self.requests]
        try:
            return operation()
        except BlockPoolExhaustedError:
            self.n_refused += 1  # and let go of what the frames of the error hold
        after = self.pool.counts(), [[c.offset for c in r.caches] for r in self.requests]
        assert after == before
        return None

    # -- Operations --------------------------------------------------------------------------------

    def start(self):
        owner = self.random.choice([-1, f"request {self.token}, {len(self.requests)}"])
        self.new_tokens(1)
        self.requests.append(
            Request(build_pooled_caches(MODEL, self.pool, owner, step=self.grow_by))
        )

    def append(self, request):
        numbers = self.new_tokens(self.random.choice([0, 1, 1, 1, 2, 5, 30]))

        def forward():
            for layer, cache in enumerate(request.caches):
                cache.update_and_fetch(*request.arrays(numbers, layer))
            request.tokens += numbers

        self.try_all_or_nothing(forward)

    def trim(self, request):
        n = self.random.choice([-2, 0, 1, 3, 9, 40])
        expected = min(max(n, 0), len(request.tokens))
        assert [cache.trim(n) for cache in request.caches] == [expected] * N_LAYERS
        del request.tokens[len(request.tokens) - expected :]

    def copy(self, request):
        copies = self.try_all_or_nothing(lambda: copy.deepcopy(request.caches))
        if copies is not None:
            self.requests.append(Request(copies, request.tokens))

    def round_trip(self, request):
        for cache in request.caches:
            cache.state = cache.state
            assert cache.empty() or cache.keys.shape[2] == cache.offset

    def assign(self, request):
        for cache in request.caches:
            if not cache.empty():
                cache.keys = mx.depends(cache.keys, [cache.values])

    def release(self, request):
        self.random.choice(request.caches).release()
        assert all(cache.empty() and cache.offset == 0 for cache in request.caches)
        request.tokens = []

    def drop(self, request):
        self.requests.remove(request)

    def merge_and_extract(self, request):
        other = self.random.choice(self.requests)

        def through_a_batch():
            batch = [a.merge([a, b]) for a, b in zip(request.caches, other.caches, strict=True)]
            for layer in batch:
                layer.filter([1, 0])
            return [layer.extract(1) for layer in batch]

        extracted = self.try_all_or_nothing(through_a_batch)
        if extracted is not None:
            self.requests.append(Request(extracted, request.tokens))

    def step(self):
        if not self.requests or (len(self.requests) < 5 and self.random.random() < 0.1):
            self.start()
        else:
            operations = [self.append] * 8 + [
                self.trim,
                self.trim,
                self.copy,
                self.round_trip,
                self.assign,
                self.release,
                self.drop,
                self.merge_and_extract,
            ]
            self.random.choice(operations)(self.random.choice(self.requests))
        if len(self.requests) > 8:
            self.drop(self.random.choice(self.requests))

    # -- What must hold ----------------------------------------------------------------------------

    def check(self):
        self.pool.check_invariants()
        live = 0
        for request in self.requests:
            owners = {cache.owner for cache in request.caches}
            assert len(owners) == 1
            mine = 0
            for cache in request.caches:
                assert cache.offset == len(request.tokens)
                rooms = [0 if a is None else a.shape[2] for a in (cache.keys, cache.values)]
                assert min(rooms) >= cache.offset
                mine += sum(-(-room // self.block_size) for room in rooms)
            held = self.pool.blocks_for(owners.pop())
            assert len(held) == mine
            full = sum(block.n_used == self.block_size for block in held)
            assert full == 2 * N_LAYERS * (len(request.tokens) // self.block_size)
            live += mine
        assert self.pool.counts().live == live
        assert self.pool.counts().reserved == 0

    def check_values(self):
        for request in self.requests:
            for layer, cache in enumerate(request.caches):
                if request.tokens:
                    expected = request.arrays(request.tokens, layer)
                    got = cache.keys_and_values()
                    assert all(map(mx.array_equal, got, expected))
                else:
                    assert cache.empty() or cache.offset == 0


# Steps of several blocks, of parts of a block, and across blocks.
@pytest.mark.parametrize(
    ("step", "block_size", "n_blocks"), [(8, 4, 260), (3, 16, 80), (6, 4, 260), (1, 1, 900)]
)
@pytest.mark.parametrize("seed", range(2))
def test_random_operations(seed, step, block_size, n_blocks):
    machine = Machine(seed, step, block_size, n_blocks)
    for number in range(400):
        machine.step()
        machine.check()
        if number % 10 == 0:
            machine.check_values()
    machine.check_values()
    assert machine.n_refused > 0
    machine.requests.clear()
    assert machine.pool.counts().free == n_blocks
