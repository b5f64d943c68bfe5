"""What the allocator is measured at from Python, for any module with the names of its API."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvpool.cli.bench.measure import seconds_a_turn, stopwatch

BLOCK_SIZE = 16
N_HELD = 16 * 1024
N_THREADS = 8
N_BLOCKS_BUILT = 1_000_000
_N_SHOTS = 5  # of what can't be done in a loop

_IMPORT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
_HEAVY = ("mlx", "mlx_lm", "numpy", "transformers")
_LEAN = """
import sys
from kvpool.memory import BlockPoolAllocator
pool = BlockPoolAllocator()
pool.free(pool.allocate("k", 40, "owner"))
print(" ".join(name for name in {!r} if name in sys.modules))
"""


@dataclass(frozen=True)
class Case:
    """One line of the comparison.

    Attributes
    ----------
    name : str
        What is done.
    wanted : float
        How many times as fast as the reference the allocator should be.
    measure : callable
        Takes the name of a module and returns seconds.
    at_most : int
        Repetitions that are enough, for what takes the reference seconds.
    """

    name: str
    wanted: float
    measure: Callable[[str], float]
    at_most: int = 1_000


def allocate_free(module: str) -> float:
    """Return the seconds of one block out and back."""
    api = _load(module)
    return _allocate_free(api.BlockPoolAllocator(_config(api, 1024)))


def allocate_free_holding(module: str) -> float:
    """Return the same for an owner that holds 16K blocks meanwhile."""
    api = _load(module)
    pool = api.BlockPoolAllocator(_config(api, 2 * N_HELD + 64))
    held = pool.allocate("k", N_HELD * BLOCK_SIZE, "owner")
    seconds = _allocate_free(pool)
    pool.free_all("owner")
    del held
    return seconds


def free_all(module: str) -> float:
    """Return the seconds of giving back 16K blocks by their owner."""
    shots = []
    for _ in range(_N_SHOTS):
        pool, _blocks = _pool_of_held(module)
        with stopwatch() as seconds:
            pool.free_all("owner")
        shots += seconds
    return statistics.median(shots)


def free_in_reverse(module: str) -> float:
    """Return the seconds of giving back 16K blocks, the last first."""
    pool, blocks = _pool_of_held(module)
    blocks.reverse()
    with stopwatch() as seconds:
        pool.free(blocks)
    return seconds[0]


def mark_used(module: str) -> float:
    """Return the seconds of writing down how many slots of a block are in use."""
    api = _load(module)
    pool = api.BlockPoolAllocator(_config(api, 1024))
    block = pool.allocate("k", BLOCK_SIZE, "owner")[0]
    mark = pool.mark_used

    def loop(n_turns: int) -> float:
        with stopwatch() as seconds:
            for _ in range(n_turns):
                mark(block, 7)
                mark(block, 8)
        return seconds[0]

    return seconds_a_turn(loop) / 2


def operations_of_threads(module: str) -> float:
    """Return the seconds per block out and back of 8 threads together, each with its owner."""
    api = _load(module)
    pool = api.BlockPoolAllocator(_config(api, 1024))

    def work(owner: int, n_turns: int, barrier: threading.Barrier) -> None:
        allocate, free = pool.allocate, pool.free
        barrier.wait()
        for _ in range(n_turns):
            free(allocate("k", BLOCK_SIZE, owner))

    def loop(n_turns: int) -> float:
        barrier = threading.Barrier(N_THREADS + 1)
        threads = [
            threading.Thread(target=work, args=(owner, n_turns, barrier))
            for owner in range(N_THREADS)
        ]
        for thread in threads:
            thread.start()
        barrier.wait()
        with stopwatch() as seconds:
            for thread in threads:
                thread.join()
        return seconds[0]

    return seconds_a_turn(loop) / N_THREADS


def construct(module: str) -> float:
    """Return the seconds of constructing a pool of 1M blocks, in a process of its own."""
    return float(probe(module)["construct_seconds"])


def import_time(module: str) -> float:
    """Return the seconds of importing the module, in a process of its own."""
    return float(_python("-c", _IMPORT.format(module)))


def heavy_modules() -> list[str]:
    """Return which heavy packages the allocator's import and use have loaded: none is wanted."""
    return _python("-c", _LEAN.format(_HEAVY)).split()


def probe(module: str) -> dict[str, Any]:
    """Construct a pool of 1M blocks in a process of its own; see `kvpool.cli.bench.probe`."""
    result: dict[str, Any] = json.loads(
        _python("-m", "kvpool.cli.bench.probe", module, str(N_BLOCKS_BUILT))
    )
    return result


CASES = (
    Case("allocate(1) + free", 10, allocate_free),
    Case("the same, holding 16K blocks", 1000, allocate_free_holding),
    Case("free_all of 16K blocks", 20, free_all),
    Case("free of 16K blocks in reverse", 1000, free_in_reverse, at_most=3),
    Case("mark_used", 4, mark_used),
    Case("allocate(1) + free, 8 threads", 10, operations_of_threads),
    Case("construct 1M blocks", 30, construct, at_most=3),
    Case("import", 20, import_time),
)


def _load(module: str) -> Any:
    from importlib import import_module

    return import_module(module)


def _config(api: Any, n_blocks: int) -> Any:
    return api.PoolConfig(block_size=BLOCK_SIZE, n_blocks=n_blocks)


def _allocate_free(pool: Any) -> float:
    allocate, free = pool.allocate, pool.free

    def loop(n_turns: int) -> float:
        with stopwatch() as seconds:
            for _ in range(n_turns):
                free(allocate("k", BLOCK_SIZE, "owner"))
        return seconds[0]

    return seconds_a_turn(loop)


def _pool_of_held(module: str) -> tuple[Any, list[Any]]:
    api = _load(module)
    pool = api.BlockPoolAllocator(_config(api, 2 * N_HELD))
    return pool, pool.allocate("k", N_HELD * BLOCK_SIZE, "owner")


def _python(*arguments: str) -> str:
    """Run Python in a process of its own and return what it prints."""
    return subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
