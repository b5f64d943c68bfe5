"""The command ``kvpool demo``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvpool.cli.console import Console
from kvpool.cli.demo.outcome import describe
from kvpool.cli.demo.requests import make_oversized_request, make_requests
from kvpool.cli.demo.runner import Runner
from kvpool.cli.demo.sizing import has_unbounded_cache, make_pool, tokens_beyond
from kvpool.cli.demo.text import Narrator, result_lines
from kvpool.cli.errors import CommandError, usage_error
from kvpool.cli.model import (
    choose_weights,
    describe_machine,
    load_model,
    n_caches,
    place_text,
    require_mlx,
    require_poolable,
)
from kvpool.report import render_demo


@dataclass(frozen=True)
class DemoOptions:
    """What the command line asks for.

    Attributes
    ----------
    model : Path or None
        An mlx_lm model directory; None for SmolLM2-135M-Instruct.
    weights : str
        ``"auto"``, ``"4bit"`` or ``"dense"``; only for SmolLM2-135M-Instruct.
    n_requests, max_tokens : int
        How many requests, and the most tokens that each generates.
    block_size : int
        Token slots a block.
    n_blocks : int or None
        Blocks of the pool; None for room for all requests at once and an eighth more.
    step : int or None
        Tokens by which pooled caches grow; None for ``max(block_size, 256)``.
    report : Path
        Where the report goes.
    command : str
        The command as a person would type it.
    """

    model: Path | None
    weights: str
    n_requests: int
    max_tokens: int
    block_size: int
    n_blocks: int | None
    step: int | None
    report: Path
    command: str


def run_demo(options: DemoOptions, console: Console) -> dict[str, Any]:
    """Run the demo, tell it to a console, and write the report.

    Returns
    -------
    dict
        What `kvpool.cli.demo.outcome.describe` returns, and what it was measured on.

    Raises
    ------
    CommandError
        If the model can't be loaded or the report can't be written.
    """
    start = time.perf_counter()
    report = _check_report(options.report)
    require_mlx()
    weights, why = choose_weights(options.weights)
    model, tokenizer = load_model(options.model, weights, console.line)
    if options.model is None:
        console.paragraph(f"SmolLM2-135M-Instruct, {why}.")
    require_poolable(model)

    requests = make_requests(tokenizer, options.n_requests)
    pool = make_pool(
        model, requests, options.max_tokens, options.block_size, options.n_blocks, options.step
    )
    oversized = None
    if has_unbounded_cache(model):
        oversized = make_oversized_request(tokenizer, tokens_beyond(model, pool))
    console.paragraph(_plan(options, pool.config.n_blocks))
    console.line()

    runner = Runner(model, tokenizer, pool, options.max_tokens, options.step, Narrator(console))
    console.status("warming up")
    runner.warm_up(requests[0].prompt[:8])
    run = runner.run(requests, oversized, stagger=max(1, options.max_tokens // 12))

    result = {
        "program": "kvpool demo",
        "command": options.command,
        "machine": describe_machine(),
        "model": {
            "name": "SmolLM2-135M-Instruct" if options.model is None else options.model.name,
            "weights": why if options.model is None else "as in the directory",
            "n_caches": n_caches(model),
        },
        **describe(run, pool),
        "seconds": time.perf_counter() - start,
        "report": str(report),
    }
    _write_report(report, render_demo(result))
    console.line()
    for line in result_lines(result):
        console.line(line)
    console.line(f"Took {result['seconds']:.0f} s, {place_text(result['machine'])}.")
    console.line(f"Report: {report}")
    return result


def _plan(options: DemoOptions, n_blocks: int) -> str:
    return (
        f"{options.n_requests} requests with one system prompt, greedy, at most "
        f"{options.max_tokens} tokens each; every token once with mlx_lm's own caches and once "
        f"with caches from a pool of {n_blocks:,} blocks of {options.block_size} token slots."
    )


def _check_report(path: Path) -> Path:
    """Make sure before the long work that the report can be written."""
    path = path.expanduser().absolute()
    if path.is_dir():
        raise usage_error(f"--report needs a file, and {str(path)!r} is a directory.")
    if not path.parent.is_dir():
        raise usage_error(f"--report: there is no directory {str(path.parent)!r}.")
    try:
        path.open("a").close()
    except OSError as error:
        raise usage_error(f"--report: {str(path)!r} can't be written: {error.strerror}.") from error
    return path


def _write_report(path: Path, page: str) -> None:
    try:
        path.write_text(page, "utf-8")
    except OSError as error:
        raise CommandError(f"The report {str(path)!r} can't be written: {error}.") from error
