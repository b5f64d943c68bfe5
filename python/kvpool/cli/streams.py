"""Both sides of every comparison, mlx_lm's own caches and pooled ones: one request's tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvpool.memory import BlockPoolExhaustedError

if TYPE_CHECKING:
    import mlx.nn as nn

OWN = "own"
POOLED = "pooled"
SIDES = (OWN, POOLED)


@dataclass
class StreamRecord:
    """What one request did on one side.

    Attributes
    ----------
    tokens : list of int
        Generated tokens, without the one that ends the text.
    prefill_seconds : float
        From the start to the first token.
    step_seconds : list of float
        Time of each later token.
    peak_bytes : int
        Most bytes that the caches held.
    growth_steps : int
        How often the caches grew, over all layers.
    finish : str
        ``"length"``, ``"stop"``, ``"refused"``, or empty while it goes on.
    message : str
        Why it was refused.
    """

    tokens: list[int] = field(default_factory=list)
    prefill_seconds: float = 0.0
    step_seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    growth_steps: int = 0
    finish: str = ""
    message: str = ""


class GreedyStream:
    """One request's tokens by ``mlx_lm.generate.generate_step``, timed token by token.

    The caches are given back as soon as the text has ended.

    mlx_lm computes a step ahead of the token it hands out. Each step ends with a wait for that
    work, so that it counts for the stream that asked for it and not for the next one to run.

    Parameters
    ----------
    model : mlx.nn.Module
        A model as ``mlx_lm.load`` returns it.
    eos_token_ids : set of int
        Tokens that end the text.
    prompt : sequence of int
        Token ids.
    caches : list
        One cache a layer.
    max_tokens : int
        Most tokens to generate.
    on_prefill : callable, optional
        Called with the prompt tokens done and their total.
    """

    def __init__(
        self,
        model: nn.Module,
        eos_token_ids: set[int],
        prompt: tuple[int, ...],
        caches: list[Any],
        max_tokens: int,
        on_prefill: Callable[[int, int], None] | None = None,
    ) -> None:
        self.record = StreamRecord()
        self.caches = caches
        self._model = model
        self._eos_token_ids = eos_token_ids
        self._prompt = prompt
        self._max_tokens = max_tokens
        self._on_prefill = on_prefill
        self._steps = self._start()
        self._held_bytes = [0] * len(caches)

    @property
    def finished(self) -> bool:
        """Whether no more tokens will come."""
        return bool(self.record.finish)

    def advance(self) -> int | None:
        """Generate one token; None if the text has ended.

        A pool that can't give the blocks ends the stream as refused: nothing has moved then.
        """
        record = self.record
        start = time.perf_counter()
        try:
            token = next(self._steps)
        except BlockPoolExhaustedError as error:
            record.message = str(error)
            self._end("refused")
            return None
        seconds = time.perf_counter() - start
        if record.prefill_seconds:
            record.step_seconds.append(seconds)
        else:
            record.prefill_seconds = seconds
        self._note_bytes()
        if token in self._eos_token_ids:
            self._end("stop")
            return None
        record.tokens.append(token)
        if len(record.tokens) == self._max_tokens:
            self._end("length")
        return token

    def n_bytes(self) -> int:
        """Return the bytes that the caches hold now."""
        return sum(cache.nbytes for cache in self.caches)

    def _end(self, finish: str) -> None:
        """Give the caches back: pooled ones by the documented call, others by dropping them."""
        self.record.finish = finish
        self._steps.close()
        if hasattr(self.caches[0], "release"):
            self.caches[0].release()
        self.caches = []

    def _start(self) -> Generator[int, None, None]:
        import mlx.core as mx
        from mlx_lm.generate import generate_step, generation_stream

        # One chunk, so that a prompt too long for the pool is refused before any of it is computed.
        steps = generate_step(
            mx.array(self._prompt),
            self._model,
            max_tokens=self._max_tokens,
            prompt_cache=self.caches,
            prefill_step_size=max(2048, len(self._prompt)),
            prompt_progress_callback=self._on_prefill,
        )
        try:
            for token, _ in steps:
                mx.synchronize(generation_stream)
                yield int(token)
        finally:
            steps.close()

    def _note_bytes(self) -> None:
        held = [cache.nbytes for cache in self.caches]
        self.record.growth_steps += sum(
            now > before for now, before in zip(held, self._held_bytes, strict=True)
        )
        self.record.peak_bytes = max(self.record.peak_bytes, sum(held))
        self._held_bytes = held
