"""The demo on a terminal: text as it streams, and the table at the end."""

from __future__ import annotations

import textwrap
from typing import Any

from kvpool.cli.console import WIDTH, Console, StreamedText
from kvpool.cli.demo.books import Sample
from kvpool.cli.demo.requests import Request
from kvpool.cli.demo.runner import Lane, Refusal, Watcher
from kvpool.cli.streams import OWN, POOLED
from kvpool.cli.tables import bytes_text, table

_FINISHES = {
    "length": "(most tokens allowed)",
    "stop": "(end of text)",
    "refused": "(refused: the pool has no room)",
}


class Narrator(Watcher):
    """Tells a console what the run does.

    Parameters
    ----------
    console : Console
        Where to tell it.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._texts: dict[str, StreamedText] = {}

    def prefilling(self, request: Request) -> None:
        """Show the question."""
        label = f"[{request.name.rpartition(' ')[2]}] "
        self._texts[request.name] = StreamedText(self._console, label)
        question = textwrap.shorten(request.question, WIDTH - len(label) - 20, placeholder=" …")
        self._console.line(f"{label}{question}  ({len(request.prompt)} tokens)")

    def prefilled(self, request: Request, side: str, done: int, total: int) -> None:
        """Show how far the prompt is."""
        caches = "mlx_lm's own caches" if side == OWN else "pooled caches"
        self._console.status(f"{request.name}: prompt with {caches}: {done} of {total} tokens")

    def piece(self, request: Request, text: str) -> None:
        """Show text."""
        self._texts[request.name].add(text)

    def finished(self, request: Request, lane: Lane, sample: Sample) -> None:
        """Show how the text ended, and whether the other side said the same."""
        same = "same tokens on both sides" if lane.identical else "THE TOKENS DIFFER"
        record = lane.records[POOLED]
        self._texts[request.name].finish(
            f"{_FINISHES[record.finish]} {len(record.tokens)} tokens, {same}; "
            f"{sample.counts.live:,} blocks in use"
        )
        if record.message:
            self._console.paragraph(record.message, indent="    ")

    def refused(self, refusal: Refusal) -> None:
        """Show how the request too long for the pool fared."""
        for paragraph in refusal_sentences(
            refusal.n_prompt_tokens, refusal.refused, refusal.message, refusal.handled
        ):
            self._console.paragraph(paragraph, indent="    ", first="[!] ")

    def round(self, number: int, sample: Sample) -> None:
        """Show the books."""
        counts, n_live = sample.counts, sum(map(bool, sample.blocks))
        self._console.status(
            f"{counts.live:,} of {counts.managed:,} blocks in use by {n_live} "
            f"request{'' if n_live == 1 else 's'}"
        )


def refusal_sentences(n_tokens: int, refused: bool, message: str, handled: bool) -> list[str]:
    """Return what to say about the request too long for the pool."""
    if not refused:
        return [f"A request of {n_tokens:,} tokens was NOT refused, though the pool lacks room."]
    outcome = (
        "Nothing moved, and the others go on."
        if handled
        else "BUT THE BOOKS ARE NOT AS THEY WERE BEFORE."
    )
    return [f"A request of {n_tokens:,} tokens was refused: {message}", outcome]


def result_lines(result: dict[str, Any]) -> list[str]:
    """Lay out the result for a terminal.

    Parameters
    ----------
    result : dict
        What `kvpool.cli.demo.outcome.describe` returns.
    """
    return [
        *_request_table(result),
        "",
        *_totals_table(result),
        "",
        *_pool_table(result["pool"]),
        "",
        *verdict_lines(result),
    ]


def verdict_lines(result: dict[str, Any]) -> list[str]:
    """Return the sentences that say whether all is well."""
    pool, refusal = result["pool"], result["refusal"]
    n_same = sum(request["identical"] for request in result["requests"])
    n_requests = len(result["requests"])
    lines = [
        f"Identical tokens: {'yes' if result['identical'] else 'NO'} "
        f"({n_same} of {n_requests} requests)."
    ]
    if refusal is None:
        lines.append(
            "Exhaustion: not tried, since this model's caches do not grow with the prompt."
        )
    elif refusal["handled"]:
        lines.append(
            f"Exhaustion handled: yes (a request of {refusal['n_prompt_tokens']:,} tokens was "
            f"refused while {refusal['n_live_requests']} others went on)."
        )
    else:
        lines.append("Exhaustion handled: NO.")
    if not result["balanced"]:
        lines.append("THE BOOKS DID NOT BALANCE at every step.")
    if result["given_back"]:
        lines.append(f"Everything was given back: 0 of {pool['n_blocks']:,} blocks in use.")
    else:
        lines.append(f"NOT GIVEN BACK: {pool['blocks_in_use_at_end']:,} blocks are still in use.")
    return lines


def _request_table(result: dict[str, Any]) -> list[str]:
    rows = []
    for request in result["requests"]:
        own, pooled = request[OWN], request[POOLED]
        rows.append(
            [
                request["name"],
                str(request["n_prompt_tokens"]),
                str(len(pooled["tokens"])),
                _sameness(request),
                _rate(own["decode_tokens_per_s"]),
                _rate(pooled["decode_tokens_per_s"]),
                bytes_text(pooled["peak_bytes"]),
                str(pooled["growth_steps"]),
            ]
        )
    header = ["", "prompt", "tokens", "identical", "tok/s own", "pooled", "bytes held", "growth"]
    return table(header, rows)


def _sameness(request: dict[str, Any]) -> str:
    if request["identical"]:
        return "yes"
    if request["first_difference"] is None:
        return "NO"
    return f"NO, from {request['first_difference']}"


def _totals_table(result: dict[str, Any]) -> list[str]:
    own, pooled = result["totals"][OWN], result["totals"][POOLED]
    ratio = result["decode_speed_ratio"]
    rows = [
        ["decode, tokens/s (median step)", *map(_rate, _both(own, pooled, "decode_tokens_per_s"))],
        ["prompt, tokens/s", *map(_rate, _both(own, pooled, "prefill_tokens_per_s"))],
        ["bytes held at the peak", *map(bytes_text, _both(own, pooled, "peak_bytes"))],
        ["growth steps, all layers", *map(str, _both(own, pooled, "growth_steps"))],
    ]
    rows[0].append("" if ratio is None else f"{ratio:.3f}")
    for row in rows[1:]:
        row.append("")
    return table(["", "mlx_lm's own", "pooled", "pooled / own"], rows)


def _both(own: dict[str, Any], pooled: dict[str, Any], key: str) -> tuple[Any, Any]:
    return own[key], pooled[key]


def _rate(tokens_per_s: float | None) -> str:
    return "-" if tokens_per_s is None else f"{tokens_per_s:.2f}"


def _pool_table(pool: dict[str, Any]) -> list[str]:
    peak, total = pool["peak_blocks_in_use"], pool["n_blocks"]
    rows = [
        ["blocks in use at the peak", f"{peak:,} of {total:,} ({peak / total:.0%})"],
        ["blocks in use at the end", f"{pool['blocks_in_use_at_end']:,}"],
        ["slots held but not used, at the peak", f"{pool['waste_at_peak']:.1%}"],
        ["slots held but not used, over the run", f"{pool['waste_over_time']:.1%}"],
        ["blocks handed out / given back", f"{pool['n_allocations']:,} / {pool['n_frees']:,}"],
        ["of these, handed out before", f"{pool['n_reused']:,}"],
        ["requests refused", f"{pool['n_exhausted']:,}"],
    ]
    return table([f"pool, blocks of {pool['block_size']} token slots", ""], rows)
