"""Timing: loops that last long enough, and medians of things that took turns."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

SHORTEST_LOOP = 0.02
"""Seconds that a timed loop lasts at least."""


def seconds_a_turn(loop: Callable[[int], float]) -> float:
    """Return the seconds that one turn of a loop takes.

    Parameters
    ----------
    loop : callable
        Makes as many turns as it is told and returns the seconds they took.
    """
    n_turns = 1
    while True:
        seconds = loop(n_turns)
        if seconds >= SHORTEST_LOOP:
            return seconds / n_turns
        # Aim a little beyond the shortest loop, but never trust a tiny measurement much.
        wanted = n_turns * SHORTEST_LOOP * 1.2 / max(seconds, 1e-9)
        n_turns = int(min(max(wanted, n_turns + 1), n_turns * 100))


@contextmanager
def stopwatch() -> Iterator[list[float]]:
    """Time a block, with the garbage collector off; the list then holds the seconds."""
    result: list[float] = []
    collects = gc.isenabled()
    gc.disable()
    start = time.perf_counter()
    try:
        yield result
    finally:
        result.append(time.perf_counter() - start)
        if collects:
            gc.enable()


def take_turns(measures: Mapping[str, Callable[[], Any]], repetitions: int) -> dict[str, list[Any]]:
    """Measure several things in turn, the first to go changing with each repetition.

    Parameters
    ----------
    measures : mapping of str to callable
        What to measure.
    repetitions : int
        How often.

    Returns
    -------
    dict of str to list
        What each returned, by repetition.
    """
    results: dict[str, list[Any]] = {name: [] for name in measures}
    names = list(measures)
    for repetition in range(repetitions):
        first = repetition % len(names)
        for name in names[first:] + names[:first]:
            results[name].append(measures[name]())
    return results


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return the median, the quartiles and the number of some values."""
    if len(values) < 2:
        low = high = values[0]
    else:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return {
        "median": statistics.median(values),
        "lower_quartile": low,
        "upper_quartile": high,
        "n": len(values),
    }
