"""The command line: what may be given, and the command that it stands for."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kvpool
from kvpool.cli.console import Console

_MOST = 2**31 - 1


@dataclass(frozen=True)
class Command:
    """A command that is ready to run.

    Attributes
    ----------
    run : callable
        Tells a console what it does, and returns what it found; ``"ok"`` in that is the verdict.
    json : bool
        Whether to print what it found as JSON.
    wants_openblas : bool
        Whether it runs a model, which OpenBLAS makes faster.
    """

    run: Callable[[Console], dict[str, Any]]
    json: bool
    wants_openblas: bool = False


def parse(arguments: Sequence[str]) -> Command:
    """Return the command for a command line.

    Raises
    ------
    SystemExit
        For ``--help`` and ``--version`` (0), and for a command line that is wrong (2); the text
        has been printed then.
    """
    namespace = _parser().parse_args(arguments)
    typed = shlex.join(["kvpool", *arguments])
    command: Command = namespace.make(namespace, typed)
    return command


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpool",
        description="One pool of fixed-size blocks for the KV cache of every request.",
    )
    parser.add_argument("--version", action="version", version=f"kvpool {kvpool.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_demo(commands)
    bench = commands.add_parser("bench", help="measure, and compare with others")
    benches = bench.add_subparsers(title="benchmarks", required=True, metavar="BENCHMARK")
    _add_alloc(benches)
    _add_decode(benches)
    return parser


def _add_demo(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="generate text with mlx_lm's own caches and with pooled ones, side by side",
        description=(
            "Several requests with one system prompt go through one model, greedily: each token "
            "once with mlx_lm's own caches and once with caches from one pool. One more request, "
            "too big for the pool, has to be refused. Exit code 0 if all tokens are identical, "
            "that request was refused, and everything was given back; 1 if not."
        ),
    )
    _add_model(parser)
    parser.add_argument(
        "--requests", type=_positive, default=5, metavar="N", help="requests (default 5)"
    )
    parser.add_argument(
        "--max-tokens",
        type=_positive,
        default=40,
        metavar="N",
        help="most tokens that a request generates (default 40)",
    )
    _add_pool(parser)
    parser.add_argument(
        "--blocks",
        type=_positive,
        metavar="N",
        help="blocks in the pool (default: room for all requests at once and an eighth more)",
    )
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("kvpool-demo.html"),
        metavar="FILE",
        help="where the report goes (default kvpool-demo.html)",
    )
    _add_json(parser)
    parser.set_defaults(make=_make_demo)


def _add_alloc(benches: Any) -> None:
    parser = benches.add_parser(
        "alloc",
        help="the allocator against a reference package, malloc and mimalloc",
        description=(
            "From Python, the allocator against that of the package veloxquant-mlx where it is "
            "installed; from C++, against 64 KiB from malloc and from mimalloc, where the "
            "benchmark program is built. Medians of interleaved repetitions."
        ),
    )
    _add_repetitions(parser, 5)
    parser.add_argument(
        "--program",
        type=Path,
        metavar="FILE",
        help=(
            "the C++ benchmark program, pool_bench as the CMake preset 'bench' builds it "
            "(default: kvpool-bench-pool on the PATH)"
        ),
    )
    _add_json(parser)
    parser.set_defaults(make=_make_alloc)


def _add_decode(benches: Any) -> None:
    parser = benches.add_parser(
        "decode",
        help="tokens a second with pooled caches against mlx_lm's own",
        description=(
            "One request is decoded with mlx_lm's own caches and with pooled ones, token by token "
            "in turn, and the steps are compared in pairs."
        ),
    )
    _add_model(parser)
    parser.add_argument(
        "--tiny", action="store_true", help="a tiny model with random weights, to be quick"
    )
    parser.add_argument(
        "--tokens", type=_positive, default=64, metavar="N", help="tokens to decode (default 64)"
    )
    parser.add_argument(
        "--prompt-tokens",
        type=_positive,
        default=224,
        metavar="N",
        help="tokens in the caches before that (default 224, so that the caches grow on the way)",
    )
    _add_pool(parser)
    parser.add_argument(
        "--instructions",
        action="store_true",
        help="count instructions too, with a tiny model under valgrind (two minutes)",
    )
    _add_repetitions(parser, 3)
    _add_json(parser)
    parser.set_defaults(make=_make_decode)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        type=Path,
        metavar="DIR",
        help="a local mlx_lm model directory (default: SmolLM2-135M-Instruct)",
    )
    parser.add_argument(
        "--weights",
        choices=("auto", "4bit", "dense"),
        default="auto",
        help="weights of SmolLM2-135M-Instruct (default auto: what is fastest on this machine)",
    )
    parser.add_argument(
        "--no-blas",
        action="store_true",
        help="do not start again with OpenBLAS preloaded (Linux)",
    )


def _add_pool(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--block-size",
        type=_positive,
        default=16,
        metavar="N",
        help="token slots in a block (default 16)",
    )
    parser.add_argument(
        "--step",
        type=_positive,
        metavar="N",
        help="tokens by which pooled caches grow (default: as mlx_lm's own, 256)",
    )


def _add_repetitions(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--repetitions",
        type=_positive,
        default=default,
        metavar="N",
        help=f"interleaved repetitions (default {default})",
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object on standard output, and all else on standard error",
    )


def _make_demo(given: argparse.Namespace, typed: str) -> Command:
    from kvpool.cli.demo.command import DemoOptions, run_demo

    options = DemoOptions(
        model=given.model,
        weights=given.weights,
        n_requests=given.requests,
        max_tokens=given.max_tokens,
        block_size=given.block_size,
        n_blocks=given.blocks,
        step=given.step,
        report=given.report,
        command=typed,
    )
    return Command(lambda console: run_demo(options, console), given.json, not given.no_blas)


def _make_alloc(given: argparse.Namespace, typed: str) -> Command:
    from kvpool.cli.bench.alloc import AllocOptions, bench_alloc

    options = AllocOptions(given.repetitions, given.program, typed)
    return Command(lambda console: bench_alloc(options, console), given.json)


def _make_decode(given: argparse.Namespace, typed: str) -> Command:
    from kvpool.cli.bench.decode import DecodeOptions, bench_decode

    options = DecodeOptions(
        model=given.model,
        weights=given.weights,
        tiny=given.tiny,
        n_tokens=given.tokens,
        n_prompt_tokens=given.prompt_tokens,
        block_size=given.block_size,
        step=given.step,
        repetitions=given.repetitions,
        instructions=given.instructions,
        command=typed,
    )
    return Command(
        lambda console: bench_decode(options, console),
        given.json,
        not given.no_blas and not given.tiny,
    )


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= _MOST:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {_MOST}, got {text!r}")
    return value
