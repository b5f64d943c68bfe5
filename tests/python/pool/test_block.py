"""Block: a live view of one check-out."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest

from kvpool.memory import Block, BlockPoolAllocator, PoolConfig


def fields(block: Block) -> tuple[Any, ...]:
    return (
        block.block_id,
        block.stream,
        block.format,
        block.n_used,
        block.owner,
        block.ever_allocated,
    )


def test_made_by_hand() -> None:
    assert fields(Block(3)) == (3, "kv", "fp16", 0, None, False)
    block = Block(3, stream="k", format="int4", n_used=2, owner="me", ever_allocated=True)
    assert fields(block) == (3, "k", "int4", 2, "me", True)
    assert block == Block(3, "k", "int4", 2, "me", True)
    assert block != Block(4, "k", "int4", 2, "me", True)
    assert block != 3
    block.n_used = 9
    assert block.n_used == 9
    with pytest.raises(ValueError, match="at least 0"):
        Block(-1)
    with pytest.raises(TypeError, match="block_id must be an integer, got 1.5"):
        Block(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        hash(block)


def test_is_a_live_view_until_freed() -> None:
    pool = BlockPoolAllocator()
    block = pool.allocate("v", 5, owner=("request", 1), format="int2")[0]
    assert fields(block) == (1023, "v", "int2", 5, ("request", 1), True)
    pool.mark_used(block, 16)
    assert block.n_used == 16
    assert repr(block) == (
        "Block(block_id=1023, stream='v', format='int2', n_used=16, owner=('request', 1), "
        "ever_allocated=True)"
    )
    pool.free_all(("request", 1))
    assert (block.owner, block.n_used) == (None, 0)


def test_stale_handle_reads_free_and_touches_nothing() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=2))
    stale = pool.allocate("k", 16, owner=1)[0]
    pool.free([stale])
    fresh = pool.allocate("k", 7, owner=2)[0]
    assert stale.block_id == fresh.block_id
    assert stale.generation != fresh.generation
    pool.free([stale])
    pool.mark_used(stale, 3)
    stale.n_used = 4
    assert (stale.owner, stale.n_used) == (None, 0)
    assert (fresh.owner, fresh.n_used) == (2, 7)
    assert pool.stats.n_frees == 1


def test_n_used_goes_through_the_books() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=4))
    block = pool.allocate("k", 16, owner=1)[0]
    assert pool.stats.fragmentation() == 0.0
    block.n_used = 3
    assert pool.stats.fragmentation() == 0.25
    for bad in (-1, 17):
        with pytest.raises(ValueError, match=f"n_used must be 0 to 16, got {bad}"):
            block.n_used = bad
    with pytest.raises(TypeError, match="can't be deleted"):
        del block.n_used
    assert block.n_used == 3


@pytest.mark.parametrize("name", ["block_id", "stream", "format", "owner", "ever_allocated"])
def test_other_fields_are_the_pools(name: str) -> None:
    block = BlockPoolAllocator().allocate("k", 1, owner=1)[0]
    with pytest.raises(AttributeError):
        setattr(block, name, "x")


def test_copy_is_an_equal_block_made_by_hand() -> None:
    pool = BlockPoolAllocator()
    block = pool.allocate("k", 3, owner=1)[0]
    for twin in (copy.copy(block), copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert twin == block
        with pytest.raises(ValueError, match="no check-out of this pool"):
            pool.free([twin])
    pool.free_all(1)
    assert twin.n_used == 3


def test_handles_stay_valid_when_the_pool_is_gone() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=2))
    block = pool.allocate("k", 5, owner="me")[0]
    stats, history = pool.stats, pool.history
    gone = weakref.ref(pool)
    del pool
    gc.collect()
    assert gone() is None
    assert fields(block) == (0, "k", "fp16", 5, "me", True)
    assert stats.blocks_in_use() == 1
    assert history[-1].n_allocations == 1


def test_owner_that_holds_its_own_blocks_is_collected() -> None:
    class Request:
        blocks: list[Block]
        pool: BlockPoolAllocator

    request = Request()
    request.pool = BlockPoolAllocator()
    request.blocks = request.pool.allocate("k", 100, owner=request)
    gone = weakref.ref(request)
    del request
    gc.collect()
    assert gone() is None


def test_owner_is_let_go_with_its_last_block() -> None:
    class Request:
        pass

    pool = BlockPoolAllocator()
    for give_back in ("free", "free_all", "failure", "reservation", "release_owner"):
        request = Request()
        gone = weakref.ref(request)
        if give_back == "free":
            pool.free(pool.allocate("k", 40, owner=request))
        elif give_back == "free_all":
            pool.allocate("k", 40, owner=request)
            pool.free_all(request)
        elif give_back == "failure":
            with pytest.raises(RuntimeError):
                pool.allocate("k", 10**9, owner=request)
        elif give_back == "reservation":
            pool.reserve([("k", 16)], request).cancel()
        else:
            pool.register_owner(request)
            pool.release_owner(request)
        del request
        assert gone() is None, give_back


def test_a_long_chain_of_owners_is_taken_apart_without_recursion() -> None:
    block: Block | None = None
    for _ in range(200_000):
        block = Block(0, owner=block)
    del block


def test_owner_freed_by_the_garbage_collector_while_its_blocks_are_made() -> None:
    pool = BlockPoolAllocator()

    def make_owner() -> str:
        return "".join(["a request id", " of its own"])  # equal, but never the same object

    class Hangup:
        """Gives the request's blocks back when it is collected."""

        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            pool.free_all(make_owner())

    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            pool.allocate("k", 16, owner=make_owner())
            Hangup()
            blocks = pool.allocate("v", 20 * 16, owner=make_owner())
            assert {block.owner for block in blocks} <= {make_owner(), None}
            Hangup()
            pool.blocks_for(make_owner())
    finally:
        gc.set_threshold(*thresholds)
    pool.free_all(make_owner())
    assert pool.counts().live == 0
