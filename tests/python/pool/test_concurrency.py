"""Threads, forks, and owners whose own methods call the pool."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from kvpool.memory import (
    Block,
    BlockPoolAllocator,
    BlockPoolExhaustedError,
    PoolConfig,
    PooledKVCache,
)


@pytest.fixture(autouse=True)
def switch_threads_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def run_threads(n_threads: int, body: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def guarded(thread: int) -> None:
        try:
            body(thread)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_threads_never_share_a_block() -> None:
    pool = BlockPoolAllocator(PoolConfig(4, 64, grow_on_exhaustion=True, max_blocks=80))

    def body(thread: int) -> None:
        rng = random.Random(thread)
        mine: list[Block] = []
        for _ in range(2000):
            action = rng.randrange(5)
            if action < 2:
                with contextlib.suppress(BlockPoolExhaustedError):
                    mine += pool.allocate(rng.choice("kv"), rng.randint(1, 12), owner=thread)
            elif action == 2 and mine:
                pool.free([mine.pop(rng.randrange(len(mine)))])
            elif action == 3:
                pool.free_all(thread)
                assert {block.owner for block in mine} <= {None}
                mine = []
            else:
                for entry in pool.history:
                    assert 0 <= entry.blocks_in_use() <= entry.n_blocks
            assert {block.owner for block in mine} <= {thread}
            counts = pool.counts()
            assert counts.free + counts.live + counts.reserved == counts.managed
        pool.free_all(thread)

    run_threads(8, body)
    pool.check_invariants()
    assert pool.counts().live == 0


# Case 2.
def test_case_2_threads_racing_free_all() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=64))
    for n_rounds in range(1, 30):
        blocks = pool.allocate("k", 32 * 16, owner=1)

        def give_back(thread: int, blocks: list[Block] = blocks) -> None:
            if thread % 2:
                pool.free_all(1)
            else:
                pool.free(blocks)

        run_threads(8, give_back)
        assert pool.stats.n_frees == 32 * n_rounds
        pool.check_invariants()


class Meddler:
    """An owner whose hash, equality and end call the pool."""

    def __init__(self, pool: BlockPoolAllocator, name: int) -> None:
        self.pool = pool
        self.name = name

    def meddle(self) -> None:
        self.pool.free(self.pool.allocate("v", 1, owner="meddler"))
        assert self.pool.stats.n_blocks > 0

    def __hash__(self) -> int:
        self.meddle()
        return self.name % 2

    def __eq__(self, other: object) -> bool:
        self.meddle()
        return isinstance(other, Meddler) and self.name == other.name

    def __del__(self) -> None:
        self.meddle()


# Case 28.
def test_case_28_owners_that_call_the_pool_do_not_deadlock() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=256))

    def body(thread: int) -> None:
        for i in range(100):
            owner = Meddler(pool, 8 * i + thread)
            pool.allocate("k", 16, owner=owner)
            assert len(pool.blocks_for(Meddler(pool, 8 * i + thread))) == 1
            pool.free_all(Meddler(pool, 8 * i + thread))
            assert pool.blocks_for(owner) == []

    run_threads(8, body)
    pool.check_invariants()
    assert pool.counts().live == 0


class Equal:
    """An owner equal to all of its kind, whose comparison does something first."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.meanwhile = meanwhile

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return isinstance(other, Equal)


def test_an_owner_that_goes_while_it_is_compared_is_not_found() -> None:
    pool = BlockPoolAllocator()
    first = Equal()
    blocks = pool.allocate("k", 1, owner=first)
    first.meanwhile = lambda: pool.free(blocks)
    second = Equal()
    (block,) = pool.allocate("k", 1, owner=second)
    assert block.owner is second
    pool.check_invariants()
    assert pool.counts().live == 1


def test_an_owner_that_comes_while_another_is_compared_is_found() -> None:
    class Unequal(Equal):
        __hash__ = Equal.__hash__

        def __eq__(self, other: object) -> bool:
            super().__eq__(other)
            return False

    pool = BlockPoolAllocator()
    third = Equal()
    pool.allocate("k", 1, owner=Unequal(lambda: pool.allocate("k", 1, owner=third)))
    pool.allocate("k", 1, owner=Equal())
    assert len(pool.blocks_for(third)) == 2


# What the interpreter itself can't do without memory, it reports as it can.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_short_memory_keeps_the_books_balanced() -> None:
    testcapi = pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    pool = BlockPoolAllocator(PoolConfig(n_blocks=64))
    n_refused = 0
    for n in range(1, 60):
        testcapi.set_nomemory(n, n + 1)
        try:
            blocks = pool.allocate("k", 300, owner=1)
        except MemoryError:
            n_refused += 1
            blocks = []
        finally:
            testcapi.remove_mem_hooks()
        assert pool.counts().live == len(blocks)
        pool.free(blocks)
        pool.check_invariants()
    assert n_refused > 10


def test_hash_that_raises_changes_nothing() -> None:
    class Broken:
        def __hash__(self) -> int:
            raise LookupError("no hash today")

    class Incomparable:
        def __hash__(self) -> int:
            return hash("me")

        def __eq__(self, other: object) -> bool:
            raise LookupError("no comparison today")

    pool = BlockPoolAllocator()
    pool.allocate("k", 1, owner="me")
    for owner in (Broken(), Incomparable()):
        for call in (
            lambda owner: pool.allocate("k", 1, owner=owner),
            pool.free_all,
            pool.register_owner,
            pool.blocks_for,
        ):
            with pytest.raises(LookupError, match="today"):
                call(owner)  # type: ignore[operator]
    assert pool.counts().live == 1


class Inner:
    """A single-head cache that keeps nothing."""

    def append_key(self, k: object) -> None:
        pass

    append_value = append_key

    def attend(self, q: object) -> object:
        return q

    def memory_bytes(self) -> int:
        return 0

    def reset(self) -> None:
        pass


# Case 28.
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_case_28_fork_while_threads_allocate() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=256))
    stop = threading.Event()

    def work(thread: int) -> None:
        while not stop.is_set():
            pool.free(pool.allocate("k", 40, owner=thread))
            PooledKVCache(Inner(), pool, owner=("cache", thread)).append(1, 1)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            child = os.fork()
            if child == 0:
                signal.alarm(5)  # a hang ends the child
                try:
                    pool.free(pool.allocate("v", 40, owner="child"))
                    PooledKVCache(Inner(), pool, owner="child's cache").append(1, 1)
                    pool.check_invariants()
                except RuntimeError as error:
                    os._exit(0 if "forked" in str(error) else 1)
                except BaseException:
                    os._exit(2)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            assert os.WIFEXITED(status), f"the child was ended by signal {os.WTERMSIG(status)}"
            assert os.WEXITSTATUS(status) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    pool.check_invariants()
