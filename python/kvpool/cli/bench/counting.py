"""What caches do while a request is decoded, counted and timed from outside."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Calls:
    """What was seen.

    Attributes
    ----------
    n_concatenations : int
        Calls of ``mx.concatenate``.
    update_seconds : list of float
        Duration of each ``update_and_fetch``: what Python does to write down the work, which MLX
        does later.
    """

    n_concatenations: int = 0
    update_seconds: list[float] = field(default_factory=list)


@contextmanager
def watched(caches: Sequence[Any]) -> Iterator[Calls]:
    """Watch the caches of one request as long as the block lasts.

    Not for two threads at once: methods of the caches' classes are replaced meanwhile.
    """
    import mlx.core as mx

    calls = Calls()
    concatenate = mx.concatenate

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.n_concatenations += 1
        return concatenate(*args, **kwargs)

    with ExitStack() as stack:
        stack.enter_context(_replaced(mx, "concatenate", counted))
        for kind in {type(cache) for cache in caches}:
            timed = _timed(kind.update_and_fetch, calls.update_seconds)
            stack.enter_context(_replaced(kind, "update_and_fetch", timed))
        yield calls


def _timed(method: Any, seconds: list[float]) -> Any:
    def timed(*args: Any) -> Any:
        start = time.perf_counter()
        result = method(*args)
        seconds.append(time.perf_counter() - start)
        return result

    return timed


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)
