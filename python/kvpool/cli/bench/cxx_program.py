"""The C++ side: the Google Benchmark program ``bench/pool_bench.cc``, run and read."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvpool.cli.errors import CommandError, usage_error

NAME = "kvpool-bench-pool"

HOW_TO_BUILD = (
    "The C++ side is left out: there is no benchmark program. In a checkout, build it with "
    "`cmake --preset bench && cmake --build --preset bench` (needs Google Benchmark: Debian's "
    "libbenchmark-dev) and name it: --program build/bench/bench/pool_bench"
)

_SECONDS_A_REPETITION = 0.1


@dataclass(frozen=True)
class Line:
    """One comparison.

    Attributes
    ----------
    name : str
        What is done.
    ours, heap : str
        Name of the benchmark of the pool, and what follows the heap's name in that of a heap.
    wanted : float or None
        How many times mimalloc's time it may take.
    by_rate : bool
        Compare work done a second of wall time, not processor time a turn.
    """

    name: str
    ours: str
    heap: str
    wanted: float | None = None
    by_rate: bool = False


LINES = (
    Line("allocate(1) + free", "pool/1", "/1", wanted=4.0),
    Line("the same, holding 16K blocks", "pool_holding_16384/1", "/1"),
    Line("a lease of one block", "lease/1", "/1"),
    Line("allocate(16) + free", "pool/16", "/16"),
    Line(
        "allocate(1) + free, 8 threads",
        "pool/1/real_time/threads:8",
        "/1/real_time/threads:8",
        by_rate=True,
    ),
)


def find_program(given: Path | None) -> Path | None:
    """Return the program: the one given, or one of its installed name on the PATH.

    Raises
    ------
    CommandError
        If the one given is not there.
    """
    if given is not None:
        if not given.is_file():
            raise usage_error(f"--program: there is no file {str(given)!r}. {HOW_TO_BUILD}")
        return given.absolute()
    found = shutil.which(NAME)
    return None if found is None else Path(found)


def run_program(program: Path, repetitions: int) -> dict[str, Any]:
    """Run the program and compare.

    Returns
    -------
    dict
        ``mimalloc`` (whether it could be loaded) and ``lines``: for each its seconds with the pool
        and with each heap (medians), ratios over the heaps, and the ratio wanted.

    Raises
    ------
    CommandError
        If the program fails.
    """
    command = [
        str(program),
        "--benchmark_format=json",
        f"--benchmark_repetitions={repetitions}",
        "--benchmark_enable_random_interleaving=true",
        f"--benchmark_min_time={_SECONDS_A_REPETITION}",
    ]
    try:
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return compare(json.loads(output))
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError) as error:
        raise CommandError(f"The benchmark program {str(program)!r} failed: {error}") from error


def compare(output: dict[str, Any]) -> dict[str, Any]:
    """Return the comparison; `output` is what Google Benchmark prints as JSON."""
    lines = []
    heaps = ["malloc"]
    has_mimalloc = output["context"]["mimalloc"] == "loaded"
    if has_mimalloc:
        heaps.append("mimalloc")
    for line in LINES:
        ours = _seconds(output, line.ours, line.by_rate)
        others = {heap: _seconds(output, heap + line.heap, line.by_rate) for heap in heaps}
        lines.append(
            {
                "name": line.name,
                "kvpool": ours,
                **others,
                **{f"ratio_{heap}": ours / seconds for heap, seconds in others.items()},
                "wanted": line.wanted,
            }
        )
    return {"mimalloc": has_mimalloc, "lines": lines}


def _seconds(output: dict[str, Any], name: str, by_rate: bool) -> float:
    """Return the median seconds of one turn."""
    runs = [
        run
        for run in output["benchmarks"]
        if run["run_name"] == name and run["run_type"] == "iteration"
    ]
    if not runs or any(run.get("error_occurred") for run in runs):
        raise KeyError(f"no result for {name!r}")
    if by_rate:
        return float(statistics.median(1 / run["items_per_second"] for run in runs))
    units = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
    return float(statistics.median(run["cpu_time"] * units[run["time_unit"]] for run in runs))
