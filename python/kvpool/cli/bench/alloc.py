"""The command ``kvpool bench alloc``."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import kvpool
from kvpool.cli.bench.cxx_program import HOW_TO_BUILD, find_program, run_program
from kvpool.cli.bench.measure import take_turns
from kvpool.cli.bench.python_cases import CASES, Case, heavy_modules, probe
from kvpool.cli.console import Console
from kvpool.cli.tables import ratio_text, seconds_text, table

OURS = "kvpool.memory"
REFERENCE = "veloxquant_mlx.memory"
REFERENCE_PACKAGE = "veloxquant-mlx"
HOW_TO_INSTALL = (
    "The comparison with the reference package is left out, since that is not installed. Install "
    "it with: pip install 'kvpool[bench]'"
)
BYTES_A_BLOCK_WANTED = 64


@dataclass(frozen=True)
class AllocOptions:
    """What the command line asks for.

    Attributes
    ----------
    repetitions : int
        Interleaved repetitions.
    program : Path or None
        The C++ benchmark program.
    command : str
        The command as a person would type it.
    """

    repetitions: int
    program: Path | None
    command: str


def bench_alloc(options: AllocOptions, console: Console) -> dict[str, Any]:
    """Measure, and tell a console.

    Returns
    -------
    dict
        ``python`` and ``cxx`` (None where there is no program), times in seconds.

    Raises
    ------
    CommandError
        If the program given is not there, or fails.
    """
    program = find_program(options.program)
    python = _measure_python(options.repetitions, console.status)
    for line in _python_lines(python, options.repetitions):
        console.line(line)
    console.line()
    cxx = None
    if program is None:
        console.paragraph(HOW_TO_BUILD)
    else:
        console.status(f"running {program}")
        cxx = run_program(program, options.repetitions)
        for line in _cxx_lines(cxx, options.repetitions):
            console.line(line)
    return {
        "program": "kvpool bench alloc",
        "command": options.command,
        "version": kvpool.__version__,
        "repetitions": options.repetitions,
        "ok": True,
        "python": python,
        "cxx": cxx,
    }


def _measure_python(repetitions: int, say: Callable[[str], None]) -> dict[str, Any]:
    has_reference = find_spec(REFERENCE_PACKAGE.replace("-", "_")) is not None
    modules = {"kvpool": OURS, **({"reference": REFERENCE} if has_reference else {})}
    cases = []
    for case in CASES:
        say(f"from Python: {case.name}")
        cases.append(_measure_case(case, modules, repetitions))
    say("from Python: memory of 1M blocks")
    memory = {}
    for name, module in modules.items():
        measured = probe(module)
        memory[name] = {key: measured[key] for key in measured if key.startswith("bytes")}
    return {
        "reference": f"{REFERENCE_PACKAGE} {metadata.version(REFERENCE_PACKAGE)}"
        if has_reference
        else None,
        "cases": cases,
        "memory": {**memory, "wanted": BYTES_A_BLOCK_WANTED},
        "heavy_modules_imported": heavy_modules(),
    }


def _measure_case(case: Case, modules: dict[str, str], repetitions: int) -> dict[str, Any]:
    measures = {name: partial(case.measure, module) for name, module in modules.items()}
    seconds = take_turns(measures, min(repetitions, case.at_most))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ratio = medians["reference"] / medians["kvpool"] if "reference" in medians else None
    return {
        "name": case.name,
        "kvpool": medians["kvpool"],
        "reference": medians.get("reference"),
        "ratio": ratio,
        "wanted": case.wanted,
        "met": None if ratio is None else ratio >= case.wanted,
        "repetitions": seconds,
    }


def _python_lines(python: dict[str, Any], repetitions: int) -> list[str]:
    reference = python["reference"]
    lines = [f"From Python, medians of {repetitions} interleaved repetitions", ""]
    rows = []
    for case in python["cases"]:
        row = [case["name"], seconds_text(case["kvpool"])]
        if reference is not None:
            row += [seconds_text(case["reference"]), ratio_text(case["ratio"])]
            row.append(f">= {ratio_text(case['wanted'])}")
        rows.append(row)
    memory = python["memory"]
    for key, what in (("bytes_a_block", "constructed"), ("bytes_a_block_handed_out", "handed out")):
        row = [f"bytes a block of 1M, {what}", _bytes(memory["kvpool"][key])]
        if reference is not None:
            row += [_bytes(memory["reference"][key]), "", f"<= {BYTES_A_BLOCK_WANTED} bytes"]
        rows.append(row)
    header = ["", "kvpool"]
    if reference is not None:
        header += [reference, "faster by", "wanted"]
    lines += table(header, rows)
    heavy = python["heavy_modules_imported"]
    lines += ["", f"Heavy packages that importing and using it loads: {', '.join(heavy) or 'none'}"]
    return lines if reference is not None else [*lines, "", *_wrapped(HOW_TO_INSTALL)]


def _cxx_lines(cxx: dict[str, Any], repetitions: int) -> list[str]:
    heaps = ["malloc", *(["mimalloc"] if cxx["mimalloc"] else [])]
    rows = []
    for line in cxx["lines"]:
        wanted = line["wanted"]
        rows.append(
            [
                line["name"],
                seconds_text(line["kvpool"]),
                *(seconds_text(line[heap]) for heap in heaps),
                *(f"{line[f'ratio_{heap}']:.2f}" for heap in heaps),
                "" if wanted is None or not cxx["mimalloc"] else f"<= {wanted:g} mimalloc",
            ]
        )
    header = ["", "kvpool", *heaps, *(f"/ {heap}" for heap in heaps), "wanted"]
    lines = [
        f"From C++, against 64 KiB from a heap and back, medians of {repetitions} interleaved "
        "repetitions",
        "",
        *table(header, rows),
    ]
    if not cxx["mimalloc"]:
        lines += ["", "mimalloc was not found (Debian: apt-get install libmimalloc2.0)."]
    return lines


def _bytes(value: float | None) -> str:
    return "not told" if value is None else f"{value:.1f}"


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 100, break_on_hyphens=False)
