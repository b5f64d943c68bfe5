"""The command ``kvpool bench decode``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvpool.cli.bench.counting import Calls, watched
from kvpool.cli.bench.instructions import instructions_a_token, require_valgrind
from kvpool.cli.bench.measure import spread
from kvpool.cli.bench.tiny import VOCABULARY, tiny_model
from kvpool.cli.console import Console
from kvpool.cli.model import (
    choose_weights,
    describe_machine,
    load_model,
    place_text,
    require_mlx,
    require_poolable,
)
from kvpool.cli.streams import OWN, POOLED, SIDES, GreedyStream
from kvpool.cli.tables import seconds_text, table
from kvpool.memory import BlockPoolAllocator, PoolConfig

if TYPE_CHECKING:
    import mlx.nn as nn

RATIO_WANTED = 0.99

_TEXT = "A lighthouse stands on the northern cape of the island. "


@dataclass(frozen=True)
class DecodeOptions:
    """What the command line asks for.

    Attributes
    ----------
    model : Path or None
        An mlx_lm model directory; None for SmolLM2-135M-Instruct.
    weights : str
        ``"auto"``, ``"4bit"`` or ``"dense"``; only for SmolLM2-135M-Instruct.
    tiny : bool
        Whether to take a tiny model with random weights instead.
    n_tokens, n_prompt_tokens : int
        Tokens to decode, and tokens in the caches before that.
    block_size : int
        Token slots a block.
    step : int or None
        Tokens by which pooled caches grow; None for the default.
    repetitions : int
        How often all of it is done.
    instructions : bool
        Whether to count instructions too, under valgrind.
    command : str
        The command as a person would type it.
    """

    model: Path | None
    weights: str
    tiny: bool
    n_tokens: int
    n_prompt_tokens: int
    block_size: int
    step: int | None
    repetitions: int
    instructions: bool
    command: str


def bench_decode(options: DecodeOptions, console: Console) -> dict[str, Any]:
    """Measure, and tell a console.

    Returns
    -------
    dict
        For each side tokens a second (of the median step), concatenations, and microseconds of one
        ``update_and_fetch``; the ratios of speeds over pairs of steps; ``ok`` if both sides
        generated the same tokens and the pool got everything back.

    Raises
    ------
    CommandError
        If the model can't be loaded.
    """
    require_mlx()
    valgrind = require_valgrind() if options.instructions else None
    name, model, prompt = _load(options, console)
    require_poolable(model)
    pool = BlockPoolAllocator(
        PoolConfig(block_size=options.block_size, grow_on_exhaustion=True, n_blocks=2)
    )
    bench = _Bench(model, pool, prompt, options)
    console.status("warming up")
    calls, tokens = bench.count()
    steps: dict[str, list[float]] = {side: [] for side in SIDES}
    for repetition in range(options.repetitions):
        console.status(f"repetition {repetition + 1} of {options.repetitions}")
        for side, seconds in bench.time(own_first=repetition % 2 == 0).items():
            steps[side] += seconds
    instructions = None
    if valgrind is not None:
        console.status("counting instructions under valgrind: about two minutes")
        instructions = instructions_a_token(valgrind)
    result: dict[str, Any] = {
        "program": "kvpool bench decode",
        "command": options.command,
        "machine": describe_machine(),
        "model": name,
        "n_prompt_tokens": options.n_prompt_tokens,
        "n_tokens": options.n_tokens,
        "repetitions": options.repetitions,
        "ok": tokens[OWN] == tokens[POOLED] and pool.stats.blocks_in_use() == 0,
        "identical": tokens[OWN] == tokens[POOLED],
        "given_back": pool.stats.blocks_in_use() == 0,
        "speed_ratio": spread(
            [own / pooled for own, pooled in zip(steps[OWN], steps[POOLED], strict=True)]
        ),
        "wanted": RATIO_WANTED,
        "instructions_a_token": instructions,
        **{side: _describe(steps[side], calls[side]) for side in SIDES},
    }
    console.paragraph(
        f"{name}: {options.n_tokens} tokens after {options.n_prompt_tokens}, "
        f"{options.repetitions} repetitions; {place_text(result['machine'])}."
    )
    console.line()
    for line in _lines(result):
        console.line(line)
    return result


class _Bench:
    def __init__(
        self,
        model: nn.Module,
        pool: BlockPoolAllocator,
        prompt: Sequence[int],
        options: DecodeOptions,
    ) -> None:
        self._model = model
        self._pool = pool
        self._prompt = tuple(prompt)
        self._options = options

    def count(self) -> tuple[dict[str, Calls], dict[str, list[int]]]:
        """Decode once a side with the caches watched; it serves as the warm-up too."""
        calls, tokens = {}, {}
        for side in SIDES:
            stream = self._stream(side)
            with watched(stream.caches) as calls[side]:
                while not stream.finished:
                    stream.advance()
            tokens[side] = stream.record.tokens
        return calls, tokens

    def time(self, own_first: bool) -> dict[str, list[float]]:
        """Decode on both sides, token by token in turn; returns the seconds of each step."""
        streams = {side: self._stream(side) for side in SIDES}
        while not all(stream.finished for stream in streams.values()):
            for side in SIDES if own_first else reversed(SIDES):
                streams[side].advance()
            own_first = not own_first
        return {side: stream.record.step_seconds for side, stream in streams.items()}

    def _stream(self, side: str) -> GreedyStream:
        from mlx_lm.models.cache import make_prompt_cache

        from kvpool.mlx import build_pooled_caches

        caches = (
            build_pooled_caches(self._model, self._pool, -1, step=self._options.step)
            if side == POOLED
            else make_prompt_cache(self._model)
        )
        # The first token comes with the prompt.
        return GreedyStream(self._model, set(), self._prompt, caches, self._options.n_tokens + 1)


def _load(options: DecodeOptions, console: Console) -> tuple[str, nn.Module, list[int]]:
    """Return the model's name, the model, and a prompt of the length asked for."""
    n_tokens = options.n_prompt_tokens
    if options.tiny:
        return "tiny", tiny_model(), [(7 * index) % VOCABULARY for index in range(n_tokens)]
    weights, why = choose_weights(options.weights)
    model, tokenizer = load_model(options.model, weights, console.line)
    if options.model is None:
        console.paragraph(f"SmolLM2-135M-Instruct, {why}.")
    sentence = list(tokenizer.encode(_TEXT))
    prompt = (sentence * -(-n_tokens // len(sentence)))[:n_tokens]
    return "SmolLM2-135M-Instruct" if options.model is None else options.model.name, model, prompt


def _describe(steps: Sequence[float], calls: Calls) -> dict[str, Any]:
    return {
        "tokens_per_s": 1 / statistics.median(steps),
        "step_seconds": spread(steps),
        "n_concatenations": calls.n_concatenations,
        "update_seconds": spread(calls.update_seconds),
    }


def _lines(result: dict[str, Any]) -> list[str]:
    own, pooled, ratio = result[OWN], result[POOLED], result["speed_ratio"]
    quartiles = f"{ratio['lower_quartile']:.3f} to {ratio['upper_quartile']:.3f}"
    rows = [
        [
            "decode, tokens/s (median step)",
            f"{own['tokens_per_s']:.2f}",
            f"{pooled['tokens_per_s']:.2f}",
            f"{ratio['median']:.3f}",
            f">= {result['wanted']}",
        ],
        [
            "concatenations, prompt and decode",
            str(own["n_concatenations"]),
            str(pooled["n_concatenations"]),
            "",
            "no more",
        ],
        [
            "one update_and_fetch (median)",
            seconds_text(own["update_seconds"]["median"]),
            seconds_text(pooled["update_seconds"]["median"]),
            f"{pooled['update_seconds']['median'] / own['update_seconds']['median']:.2f}",
            "",
        ],
    ]
    counts = result["instructions_a_token"]
    if counts is not None:
        rows.append(
            [
                "instructions a token (tiny model)",
                f"{counts[OWN]:,.0f}",
                f"{counts[POOLED]:,.0f}",
                f"{counts[POOLED] / counts[OWN]:.3f}",
                f"<= {1 / result['wanted']:.2f}",
            ]
        )
    return [
        *table(["", "mlx_lm's own", "pooled", "pooled / own", "wanted"], rows),
        "",
        f"The ratio of speeds is the median over {ratio['n']} pairs of steps; half of the pairs "
        f"are in {quartiles}.",
        f"Identical tokens: {'yes' if result['identical'] else 'NO'}. "
        f"Everything given back: {'yes' if result['given_back'] else 'NO'}.",
    ]
