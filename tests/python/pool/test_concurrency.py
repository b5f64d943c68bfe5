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

from kvpool.memory import Block, BlockPoolAllocator, BlockPoolExhaustedError, PoolConfig


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


# Case 28.
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_case_28_fork_while_threads_allocate() -> None:
    pool = BlockPoolAllocator(PoolConfig(n_blocks=256))
    stop = threading.Event()

    def work(thread: int) -> None:
        while not stop.is_set():
            pool.free(pool.allocate("k", 40, owner=thread))

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
