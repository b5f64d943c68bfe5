"""Run all requests on both sides by one schedule, and watch the pool meanwhile.

::

    round       1   2   3   4   5   6   7   8   9
    request 1   P   t   t   t   t   t   t             P: prompt and first token, t: one token
    request 2               P   t   t   t   t   t     each of them on both sides, one right after
    request 3                           P   t   t     the other, and the first to go alternates

A request's blocks are given back as soon as its text ends. Once all have been admitted, one more
comes whose prompt is longer than the pool has room for; it has to be refused without a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvpool.cli.demo.books import BookKeeper, Sample
from kvpool.cli.demo.requests import Request
from kvpool.cli.streams import OWN, POOLED, SIDES, GreedyStream
from kvpool.memory import BlockPoolAllocator, PoolCounts

if TYPE_CHECKING:
    import mlx.nn as nn


class Watcher:
    """What the run tells while it goes on; this one listens to nothing."""

    def prefilling(self, request: Request) -> None:
        """A request is about to have its prompt computed, on both sides."""

    def prefilled(self, request: Request, side: str, done: int, total: int) -> None:
        """So many of its prompt's tokens have been computed."""

    def piece(self, request: Request, text: str) -> None:
        """Text of the pooled side."""

    def finished(self, request: Request, lane: Lane, sample: Sample) -> None:
        """A request has ended on both sides, and its blocks have been given back."""

    def refused(self, refusal: Refusal) -> None:
        """The request too long for the pool has been tried."""

    def round(self, number: int, sample: Sample) -> None:
        """A round over all live requests has ended."""


class Lane:
    """One request on both sides.

    Parameters
    ----------
    request : Request
        What it is.
    streams : dict of str to GreedyStream
        By side.
    detokenizer : mlx_lm streaming detokenizer
        Turns the pooled side's tokens into text.
    """

    def __init__(
        self, request: Request, streams: dict[str, GreedyStream], detokenizer: Any
    ) -> None:
        self.request = request
        self.records = {side: stream.record for side, stream in streams.items()}
        self.text = ""
        self.streams = streams
        self._detokenizer = detokenizer

    @property
    def finished(self) -> bool:
        """Whether both sides have ended."""
        return all(record.finish for record in self.records.values())

    @property
    def identical(self) -> bool:
        """Whether both sides generated the same tokens, and ended for the same reason."""
        own, pooled = self.records[OWN], self.records[POOLED]
        return own.tokens == pooled.tokens and own.finish == pooled.finish

    @property
    def first_difference(self) -> int | None:
        """Index of the first token that differs; None if none does."""
        own, pooled = self.records[OWN].tokens, self.records[POOLED].tokens
        shorter = min(len(own), len(pooled))
        for index in range(shorter):
            if own[index] != pooled[index]:
                return index
        return None if len(own) == len(pooled) else shorter

    def detokenize(self, token: int) -> str:
        """Return the text that a pooled token completes."""
        self._detokenizer.add_token(token)
        return self._keep(self._detokenizer.last_segment)

    def end_text(self) -> str:
        """Return the text that was still waiting for tokens."""
        self._detokenizer.finalize()
        return self._keep(self._detokenizer.last_segment)

    def _keep(self, piece: str) -> str:
        self.text += piece
        return piece


@dataclass(frozen=True)
class Refusal:
    """How the request too long for the pool fared.

    Attributes
    ----------
    n_prompt_tokens : int
        Its length.
    refused : bool
        Whether the pool refused it.
    message : str
        What the pool said.
    before, after : PoolCounts
        The books around it.
    n_live_requests : int
        Requests that were in the middle of their text.
    seconds : float
        When, counted like the samples.
    """

    n_prompt_tokens: int
    refused: bool
    message: str
    before: PoolCounts
    after: PoolCounts
    n_live_requests: int
    seconds: float

    @property
    def handled(self) -> bool:
        """Whether it was refused and the books are as they were."""
        return self.refused and self.before == self.after


@dataclass
class Run:
    """What happened.

    Attributes
    ----------
    lanes : list of Lane
        One a request, in the order in which they were admitted.
    oversized : Request or None
        The request too long for the pool; None if no prompt is, with this model.
    refusal : Refusal or None
        None until that request was tried.
    peak_bytes : dict of str to int
        Most bytes that all live caches of a side held together.
    samples : list of Sample
        The books after each step of the pooled side.
    """

    lanes: list[Lane]
    oversized: Request | None = None
    refusal: Refusal | None = None
    peak_bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    samples: list[Sample] = field(default_factory=list)

    @property
    def exhaustion_handled(self) -> bool:
        """Whether the request too long for the pool, if any, was refused without a trace."""
        return self.oversized is None or (self.refusal is not None and self.refusal.handled)


class Runner:
    """Runs the demo's requests.

    Parameters
    ----------
    model, tokenizer
        As ``mlx_lm.load`` returns them.
    pool : BlockPoolAllocator
        Where the pooled side's blocks come from.
    max_tokens : int
        Most tokens a request.
    step : int or None
        Tokens by which pooled caches grow; None for the default.
    watcher : Watcher
        Is told what happens.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        pool: BlockPoolAllocator,
        max_tokens: int,
        step: int | None,
        watcher: Watcher,
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._pool = pool
        self._max_tokens = max_tokens
        self._step = step
        self._watcher = watcher
        self._live: list[Lane] = []

    def warm_up(self, prompt: tuple[int, ...]) -> None:
        """Run a few tokens on each side, so that nothing is compiled or loaded while timed.

        They have a pool of their own: the books of the other one are those of the requests.
        """
        pool = BlockPoolAllocator(self._pool.config)
        for side in SIDES:
            stream = self._stream(side, pool, prompt, "warm-up", max_tokens=2)
            while not stream.finished:
                stream.advance()

    def run(self, requests: Sequence[Request], oversized: Request | None, stagger: int) -> Run:
        """Run all requests to their ends.

        Parameters
        ----------
        requests : sequence of Request
            Admitted one after another.
        oversized : Request or None
            Tried once all are admitted.
        stagger : int
            Rounds between two admissions, at least 1.
        """
        all_requests = [*requests, *([] if oversized is None else [oversized])]
        keeper = BookKeeper(self._pool, [request.name for request in all_requests])
        run = Run([], oversized, samples=keeper.samples)
        keeper.sample({})
        waiting = list(requests)
        number = 0
        while waiting or self._live:
            if waiting and (number % stagger == 0 or not self._live):
                self._admit(run, waiting.pop(0))
            for index, lane in enumerate(list(self._live)):
                self._advance(run, keeper, lane, own_first=(number + index) % 2 == 0)
            if oversized is not None and not waiting and run.refusal is None:
                run.refusal = self._try_oversized(oversized, keeper)
                self._watcher.refused(run.refusal)
            self._watcher.round(number, keeper.samples[-1])
            number += 1
        return run

    def _admit(self, run: Run, request: Request) -> None:
        streams = {
            side: self._stream(
                side,
                self._pool,
                request.prompt,
                request.name,
                self._max_tokens,
                self._tell_of(request, side),
            )
            for side in SIDES
        }
        lane = Lane(request, streams, self._tokenizer.detokenizer)
        run.lanes.append(lane)
        self._live.append(lane)
        self._watcher.prefilling(request)

    def _advance(self, run: Run, keeper: BookKeeper, lane: Lane, own_first: bool) -> None:
        for side in SIDES if own_first else reversed(SIDES):
            stream = lane.streams[side]
            if stream.finished:
                continue
            token = stream.advance()
            held = sum(live.streams[side].n_bytes() for live in self._live)
            run.peak_bytes[side] = max(run.peak_bytes[side], held)
            if side == POOLED:
                keeper.sample(self._pooled_caches())
                if token is not None:
                    self._watcher.piece(lane.request, lane.detokenize(token))
        if lane.finished:
            self._watcher.piece(lane.request, lane.end_text())
            self._live.remove(lane)
            self._watcher.finished(lane.request, lane, keeper.sample(self._pooled_caches()))

    def _try_oversized(self, request: Request, keeper: BookKeeper) -> Refusal:
        before = self._pool.counts()
        stream = self._stream(POOLED, self._pool, request.prompt, request.name, max_tokens=1)
        while not stream.finished:
            stream.advance()
        return Refusal(
            n_prompt_tokens=len(request.prompt),
            refused=stream.record.finish == "refused",
            message=stream.record.message,
            before=before,
            after=self._pool.counts(),
            n_live_requests=len(self._live),
            seconds=keeper.sample(self._pooled_caches()).seconds,
        )

    def _pooled_caches(self) -> dict[str, list[Any]]:
        return {lane.request.name: lane.streams[POOLED].caches for lane in self._live}

    def _stream(
        self,
        side: str,
        pool: BlockPoolAllocator,
        prompt: tuple[int, ...],
        owner: str,
        max_tokens: int,
        on_prefill: Callable[[int, int], None] | None = None,
    ) -> GreedyStream:
        from mlx_lm.models.cache import make_prompt_cache

        from kvpool.mlx import build_pooled_caches

        caches = (
            build_pooled_caches(self._model, pool, owner, step=self._step)
            if side == POOLED
            else make_prompt_cache(self._model)
        )
        eos_token_ids = set(self._tokenizer.eos_token_ids)
        return GreedyStream(self._model, eos_token_ids, prompt, caches, max_tokens, on_prefill)

    def _tell_of(self, request: Request, side: str) -> Callable[[int, int], None]:
        return lambda done, total: self._watcher.prefilled(request, side, done, total)
