"""BlockPoolAllocator, as Python callers see it (its books are tested in C++)."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from kvpool.memory import (
    Block,
    BlockPoolAllocator,
    BlockPoolExhaustedError,
    OwnerAlreadyActiveError,
    PoolConfig,
    PoolCounts,
    Reservation,
)


def ids(blocks: list[Block]) -> list[int]:
    return [block.block_id for block in blocks]


def test_allocates_in_the_documented_order() -> None:
    pool = BlockPoolAllocator(PoolConfig(block_size=16, n_blocks=512))
    blocks = pool.allocate("k", 40, owner=1)
    assert ids(blocks) == [255, 254, 253]
    assert [block.n_used for block in blocks] == [16, 16, 8]
    assert ids(pool.allocate("v", 1, owner=1)) == [511]
    pool.free_all(1)
    assert ids(pool.allocate("k", 40, owner=1)) == [253, 254, 255]


def test_positional_and_keyword_arguments() -> None:
    pool = BlockPoolAllocator()
    blocks = pool.allocate(stream="k", n_tokens=3, owner=1, format="int4")
    blocks += pool.allocate("k", 3, 1, "int4")
    blocks += pool.allocate("k", 3, format="".join(["int", "4"]), owner=1)
    assert {(block.format, block.n_used) for block in blocks} == {("int4", 3)}


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        (("k", 1), {}),
        (("k",), {"owner": 1}),
        (("k", 1, 1, "fp16", 5), {}),
        (("k", 1, 1), {"owner": 2}),
        (("k", 1, 1), {"layer": 2}),
    ],
)
def test_wrong_arguments_are_type_errors(
    arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    pool = BlockPoolAllocator()
    with pytest.raises(TypeError, match="BlockPoolAllocator.allocate"):
        pool.allocate(*arguments, **keywords)
    assert pool.counts().live == 0


@pytest.mark.parametrize("n_tokens", [0, -1, -(2**63)])
def test_n_tokens_is_checked_before_the_stream(n_tokens: int) -> None:
    with pytest.raises(ValueError, match=f"n_tokens must be at least 1, got {n_tokens}"):
        BlockPoolAllocator().allocate("x", n_tokens, owner=1)


@pytest.mark.parametrize("n_tokens", [1.5, 2.0, "3", None])
def test_n_tokens_must_be_an_integer(n_tokens: Any) -> None:
    with pytest.raises(TypeError, match="n_tokens must be an integer, got"):
        BlockPoolAllocator().allocate("k", n_tokens, owner=1)


@pytest.mark.parametrize("stream", ["kv", "K", "", "x", 1, None])
def test_streams_of_a_pool_with_two(stream: Any) -> None:
    pool = BlockPoolAllocator()
    calls: list[Callable[[], object]] = [
        lambda: pool.allocate(stream, 1, owner=1),
        lambda: pool.n_free(stream),
        lambda: pool.shrink(stream, 0),
        lambda: pool.reserve([(stream, 1)], owner=1),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="stream must be 'k' or 'v', got"):
            call()
    assert pool.counts() == counts_of(1024)


def counts_of(n_free: int) -> PoolCounts:
    return BlockPoolAllocator(PoolConfig(n_blocks=n_free)).counts()


def test_one_free_list_ignores_the_label() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=4, separate_kv=False))
    for label in ("k", "v", "kv", "anything"):
        assert pool.allocate(label, 1, owner=1)[0].stream == "kv"
    assert pool.n_free("x") == 0


@pytest.mark.parametrize("n_tokens", [2**63 - 1, 2**63, 2**70])
def test_huge_requests_never_wrap(n_tokens: int) -> None:
    for grow in (False, True):
        pool = BlockPoolAllocator(PoolConfig(n_blocks=8, grow_on_exhaustion=grow))
        with pytest.raises((BlockPoolExhaustedError, ValueError)):
            pool.allocate("k", n_tokens, owner=1)
        assert pool.counts() == counts_of(8)
        pool.register_owner(1)


def test_owner_none_and_unhashable_owners_are_refused() -> None:
    pool = BlockPoolAllocator()
    with pytest.raises(ValueError, match="owner must be any hashable but None"):
        pool.allocate("k", 1, owner=None)
    with pytest.raises(TypeError, match="unhashable"):
        pool.allocate("k", 1, owner=[])
    with pytest.raises(TypeError, match="format must be a str, got 4"):
        pool.allocate("k", 1, owner=1, format=4)  # type: ignore[arg-type]
    assert pool.counts().live == 0
    assert len(pool.history) == 0


def test_owners_are_told_apart_as_dict_keys_are() -> None:
    pool = BlockPoolAllocator()
    pool.allocate("k", 1, owner=1)
    pool.allocate("k", 1, owner=1.0)
    pool.allocate("k", 1, owner="1")
    pool.allocate("k", 1, owner=("1",))
    assert len(pool.blocks_for(True)) == 2
    assert len(pool.blocks_for("1")) == 1
    assert len(pool.blocks_for(("1",))) == 1


# Case 1.
def test_case_1_refused_allocation_leaves_no_trace() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=8))
    pool.allocate("k", 48, owner=1)
    assert pool.n_free("k") == 1
    with pytest.raises(BlockPoolExhaustedError) as refused:
        pool.allocate("k", 48, owner=2)
    for part in ("3 block(s)", "'k'", "48 token(s)", "1 free of 8"):
        assert part in str(refused.value)
    assert isinstance(refused.value, RuntimeError)
    assert pool.n_free("k") == 1
    assert pool.blocks_for(2) == []
    pool.register_owner(2)
    assert pool.stats.n_exhausted == 1
    with pytest.raises(BlockPoolExhaustedError):
        pool.allocate("k", 48, owner=1)
    assert len(pool.blocks_for(1)) == 3


# Case 2.
def test_case_2_double_free_changes_nothing() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=8))
    block = pool.allocate("k", 16, owner=1)[0]
    pool.free([block, block])
    assert pool.stats.n_frees == 1
    block = pool.allocate("k", 16, owner=1)[0]
    pool.free_all(1)
    pool.free([block])
    assert pool.stats.n_frees == 2
    assert len(set(ids(pool.allocate("k", 64, owner=1)))) == 4
    assert pool.counts().free + pool.counts().live == 8


def test_free_takes_any_sequence_and_checks_all_of_it_first() -> None:
    pool, other = BlockPoolAllocator(), BlockPoolAllocator()
    blocks = pool.allocate("k", 64, owner=1)
    foreign = other.allocate("k", 1, owner=1)
    for bad in (blocks + foreign, [*blocks, Block(1, owner=1)]):
        with pytest.raises(ValueError, match="no check-out of this pool"):
            pool.free(bad)
    with pytest.raises(TypeError, match="must hold Blocks only, got 7"):
        pool.free([*blocks, 7])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        pool.free(blocks[0])  # type: ignore[arg-type]
    assert pool.counts().live == 4
    pool.free([Block(0)])
    pool.free(tuple(blocks[:1]))
    pool.free(block for block in blocks[1:])  # type: ignore[arg-type]
    assert pool.counts().live == 0
    assert other.counts().live == 1


def test_free_all_returns_blocks_in_allocation_order() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=8))
    pool.free_all("nobody")
    first = pool.allocate("k", 32, owner=1)
    second = pool.allocate("k", 32, owner=1)
    assert pool.blocks_for(1) == first + second
    assert pool.free_all(1) is None
    assert ids(pool.allocate("k", 64, owner=1)) == ids(first + second)[::-1]


def test_register_and_release() -> None:
    pool = BlockPoolAllocator()
    pool.register_owner("a")
    with pytest.raises(OwnerAlreadyActiveError, match="owner 'a' is active") as raised:
        pool.register_owner("a")
    assert isinstance(raised.value, ValueError)
    blocks = pool.allocate("k", 16, owner="a")
    pool.release_owner("a")
    with pytest.raises(OwnerAlreadyActiveError):
        pool.register_owner("a")
    pool.free(blocks)
    pool.register_owner("a")
    pool.release_owner("a")
    pool.release_owner("never seen")
    pool.register_owner("a")


# Case 10.
def test_case_10_a_shrunk_pool_grows_back_to_its_cap() -> None:
    pool = BlockPoolAllocator(PoolConfig(16, 64, False, True, 64))
    held = pool.allocate("kv", 1, owner=1)[0]
    assert pool.shrink("kv", 0) == 63
    blocks = pool.allocate("kv", 63 * 16, owner=2)
    assert held.block_id not in ids(blocks)
    assert len(set(ids(blocks))) == 63
    assert (pool.stats.n_blocks, pool.stats.n_retired, pool.stats.n_grown) == (64, 63, 63)
    with pytest.raises(BlockPoolExhaustedError):
        pool.allocate("kv", 1, owner=2)


def test_shrink() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=8))
    with pytest.raises(ValueError, match="target_free must be at least 0, got -1"):
        pool.shrink("k", -1)
    block = pool.allocate("k", 1, owner=1)[0]
    assert pool.shrink("k", 10) == 0
    assert pool.shrink("k", 0) == 3
    assert pool.is_managed(block.block_id)
    assert not pool.is_managed(0)
    assert not pool.is_managed(-1)
    assert pool.counts().managed == 5


def test_mark_used_arguments() -> None:
    pool = BlockPoolAllocator()
    block = pool.allocate("k", 16, owner=1)[0]
    with pytest.raises(ValueError, match="n_used must be 0 to 16, got 17"):
        pool.mark_used(block, 17)
    with pytest.raises(TypeError, match="block must be a Block, got 3"):
        pool.mark_used(3, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="n_used must be an integer, got 1.5"):
        pool.mark_used(block, 1.5)  # type: ignore[arg-type]
    assert block.n_used == 16
    other = BlockPoolAllocator()
    other.mark_used(block, 3)
    assert block.n_used == 16


def test_free_and_mark_used_take_keywords() -> None:
    pool = BlockPoolAllocator()
    blocks = pool.allocate("k", 20, owner=1)
    pool.mark_used(n_used=3, block=blocks[0])
    assert blocks[0].n_used == 3
    pool.free(blocks=blocks)
    assert pool.counts().live == 0
    for arguments in ((), (1, 2, 3)):
        with pytest.raises(TypeError, match="BlockPoolAllocator.mark_used"):
            pool.mark_used(*arguments)


@pytest.mark.filterwarnings("ignore:nanobind:RuntimeWarning")
def test_a_pool_that_was_not_initialised_says_so() -> None:
    class Lazy(BlockPoolAllocator):
        def __init__(self) -> None:
            pass

    calls: list[Callable[[BlockPoolAllocator], object]] = [
        lambda pool: pool.allocate("k", 1, 1),
        lambda pool: pool.free([]),
        lambda pool: pool.mark_used(Block(1), 1),
        lambda pool: pool.counts(),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call(Lazy())


@pytest.mark.parametrize("text", ["é" * 60, "漢" * 100, "\ud800", "a" * 200])
def test_values_in_messages_may_be_any_text(text: str) -> None:
    pool = BlockPoolAllocator()
    pool.register_owner(text)
    with pytest.raises(OwnerAlreadyActiveError, match="is active"):
        pool.register_owner(text)
    with pytest.raises(TypeError, match="n_tokens must be an integer, got '"):
        pool.allocate("k", text, owner=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="stream must be 'k' or 'v', got '"):
        pool.allocate(text, 1, owner=1)


def test_holds_tells_check_outs_of_this_pool_that_go_on() -> None:
    pool, other = BlockPoolAllocator(), BlockPoolAllocator()
    (block,) = pool.allocate("k", 1, owner=1)
    assert pool.holds(block)
    assert not other.holds(block)
    assert not pool.holds(copy.copy(block))
    pool.free([block])
    pool.allocate("k", 1, owner=1)
    assert not pool.holds(block)
    with pytest.raises(TypeError, match="block must be a Block, got None"):
        pool.holds(None)  # type: ignore[arg-type]


def test_cannot_be_copied_or_pickled() -> None:
    pool = BlockPoolAllocator()
    attempts: list[Callable[[Any], object]] = [copy.copy, copy.deepcopy, pickle.dumps]
    for attempt in attempts:
        with pytest.raises(TypeError, match="a pool can't be copied or pickled"):
            attempt(pool)


class TestReservation:
    def test_becomes_blocks_item_by_item(self) -> None:
        pool = BlockPoolAllocator(PoolConfig(n_blocks=8))
        step = pool.reserve([("k", 20, "int4"), ("v", 16)], owner="me")
        assert step.n_reserved == 3
        assert repr(pool.counts()) == (
            "PoolCounts(managed=8, free=5, live=0, reserved=3, cached=0)"
        )
        (values,) = step.take(1)
        assert (values.stream, values.owner, values.format) == ("v", "me", "fp16")
        (keys,) = step.commit()
        assert [(block.n_used, block.format) for block in keys] == [(16, "int4"), (4, "int4")]
        assert step.commit() == []
        step.cancel()
        assert pool.counts().live == 3

    def test_is_whole_or_nothing(self) -> None:
        pool = BlockPoolAllocator(PoolConfig(n_blocks=4))
        with pytest.raises(BlockPoolExhaustedError, match="of stream 'v'"):
            pool.reserve([("k", 32), ("v", 33)], owner=1)
        assert pool.counts().free == 4
        pool.register_owner(1)

    def test_what_is_not_taken_goes_back(self) -> None:
        pool = BlockPoolAllocator(PoolConfig(n_blocks=8))
        with pool.reserve([("k", 16), ("k", 16)], owner=1) as step:
            step.take(0)
        assert pool.counts().live == 1
        assert pool.counts().reserved == 0
        with pytest.raises(ValueError, match="taken or given back"):
            step.take(1)
        step = pool.reserve([("v", 16)], owner=1)
        del step
        assert pool.counts().reserved == 0

    def test_the_owner_is_let_go_whichever_is_cancelled_first(self) -> None:
        for order in ((0, 1), (1, 0)):
            pool = BlockPoolAllocator()
            steps = [pool.reserve([("k", 1)], owner="me") for _ in range(2)]
            for index in order:
                with pytest.raises(OwnerAlreadyActiveError):
                    pool.register_owner("me")
                steps[index].cancel()
            pool.register_owner("me")

    def test_bad_items_and_indices(self) -> None:
        pool = BlockPoolAllocator()
        bad: list[tuple[Any, type[Exception]]] = [
            ([("k",)], ValueError),
            ([("k", 1, "fp16", 2)], ValueError),
            ([("k", 0)], ValueError),
            ([("k", 1.5)], TypeError),
            ([("k", 1, 3)], TypeError),
            ([("x", 1)], ValueError),
            ([7], TypeError),
            (7, TypeError),
            ([("k", 2**62), ("k", 2**62)], ValueError),
        ]
        for items, error in bad:
            with pytest.raises(error):
                pool.reserve(items, owner=1)
        with pytest.raises(ValueError, match="None"):
            pool.reserve([("k", 1)], owner=None)
        step = pool.reserve([("k", 1)], owner=1)
        for index in (-1, 1):
            with pytest.raises(ValueError, match=r"Reservation[.:]+take"):
                step.take(index)
        assert pool.reserve([], owner=2).commit() == []
        pool.register_owner(2)
        assert pool.counts().reserved == 1

    def test_in_a_cycle_is_collected_and_gives_its_blocks_back(self) -> None:
        class Request:
            step: Reservation

        pool = BlockPoolAllocator()
        request = Request()
        request.step = pool.reserve([("k", 16)], owner="an id")
        holder = [request]
        holder.append(holder)  # type: ignore[arg-type]
        del request, holder
        gc.collect()
        assert pool.counts().reserved == 0

    def test_refused_or_empty_ones_let_the_owner_go(self) -> None:
        class Request:
            pass

        pool = BlockPoolAllocator(PoolConfig(n_blocks=2))
        request = Request()
        gone = weakref.ref(request)
        with pytest.raises(BlockPoolExhaustedError):
            pool.reserve([("k", 160)], owner=request)
        pool.reserve([], owner=request)
        del request
        assert gone() is None

    def test_outlives_the_pool(self) -> None:
        pool = BlockPoolAllocator()
        step = pool.reserve([("k", 16)], owner=("a", "tuple"))
        del pool
        gc.collect()
        assert step.take(0)[0].owner == ("a", "tuple")
