"""The report of ``kvpool demo``."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from kvpool.report.occupancy import N_COLOURS, occupancy_chart
from kvpool.report.page import page, paragraph, section, table

_FINISHES = {
    "length": "stopped at the most tokens allowed",
    "stop": "the model ended the text",
    "refused": "refused by the pool",
}


def render_demo(result: dict[str, Any]) -> str:
    """Return the report as one HTML document.

    Parameters
    ----------
    result : dict
        The object that ``kvpool demo --json`` prints.
    """
    return page("kvpool demo", _body(result))


def _body(result: dict[str, Any]) -> Iterator[str]:
    pool, refusal = result["pool"], result["refusal"]
    yield "<header>"
    yield "<h1>One pool, many requests</h1>"
    yield paragraph(_summary(result), "quiet")
    yield "</header>"
    yield from _verdicts(result)
    event = None if refusal is None else (refusal["seconds"], "oversized request refused")
    if refusal is not None and not refusal["refused"]:
        event = (refusal["seconds"], "oversized request let in")
    yield section(
        "Blocks in use, by request",
        occupancy_chart(result["occupancy"], pool["block_size"], event),
    )
    yield section("Both sides", _totals(result), _requests_table(result))
    yield section("The pool", *_pool(result))
    yield section("What was said", *_texts(result))
    yield section("How this was made", *_making(result))


def _summary(result: dict[str, Any]) -> str:
    return (
        f"{len(result['requests'])} requests with one system prompt through "
        f"{result['model']['name']}, greedily. Each token was generated once with mlx_lm's own "
        "caches and once with caches whose memory comes from one kvpool pool."
    )


def _verdicts(result: dict[str, Any]) -> Iterator[str]:
    pool, refusal = result["pool"], result["refusal"]
    n_requests = len(result["requests"])
    n_same = sum(request["identical"] for request in result["requests"])
    yield '<ul class="verdicts">'
    yield _verdict(
        result["identical"],
        "Identical tokens",
        "Tokens differ",
        f"{n_same} of {n_requests} requests gave the same tokens on both sides",
    )
    if refusal is not None:
        yield _verdict(
            refusal["handled"],
            "Exhaustion handled",
            "Exhaustion not handled",
            f"a request of {refusal['n_prompt_tokens']:,} tokens came while "
            f"{refusal['n_live_requests']} others were at work",
        )
    yield _verdict(
        result["given_back"],
        "Everything given back",
        "Not everything given back",
        f"{pool['blocks_in_use_at_end']:,} of {pool['n_blocks']:,} blocks in use at the end",
    )
    if not result["balanced"]:
        yield _verdict(False, "", "The books did not balance", "at some step of the run")
    yield "</ul>"


def _verdict(good: bool, if_good: str, if_bad: str, detail: str) -> str:
    kind, mark, title = ("good", "✓", if_good) if good else ("bad", "✗", if_bad)
    return (
        f'<li class="{kind}"><strong>{mark} {escape(title)}</strong>'
        f"<span>{escape(detail)}</span></li>"
    )


def _totals(result: dict[str, Any]) -> str:
    own, pooled = result["totals"]["own"], result["totals"]["pooled"]
    ratio = result["decode_speed_ratio"]
    rows = [
        [
            "tokens/s, decode",
            _rate(own["decode_tokens_per_s"]),
            _rate(pooled["decode_tokens_per_s"]),
            "–" if ratio is None else f"{ratio:.3f}",
        ],
        [
            "tokens/s, prompt",
            _rate(own["prefill_tokens_per_s"]),
            _rate(pooled["prefill_tokens_per_s"]),
            "",
        ],
        ["bytes held at the peak", _mib(own["peak_bytes"]), _mib(pooled["peak_bytes"]), ""],
        ["growth steps, all layers", str(own["growth_steps"]), str(pooled["growth_steps"]), ""],
    ]
    return table(
        ["", "mlx_lm's own", "pooled", "pooled ÷ own"],
        rows,
        "The sides took turns, token by token. Decode is the rate of the median step, and the "
        "quotient the median over pairs of steps.",
    )


def _requests_table(result: dict[str, Any]) -> str:
    rows = []
    for request in result["requests"]:
        own, pooled = request["own"], request["pooled"]
        rows.append(
            [
                request["name"],
                str(request["n_prompt_tokens"]),
                str(len(pooled["tokens"])),
                _sameness(request),
                _rate(own["decode_tokens_per_s"]),
                _rate(pooled["decode_tokens_per_s"]),
                _mib(pooled["peak_bytes"]),
                str(pooled["growth_steps"]),
            ]
        )
    header = [
        "",
        "prompt",
        "tokens",
        "identical",
        "tokens/s, own",
        "tokens/s, pooled",
        "bytes held",
        "growth steps",
    ]
    return table(header, rows, "Request by request.", kind="broad")


def _sameness(request: dict[str, Any]) -> str:
    if request["identical"]:
        return "yes"
    first = request["first_difference"]
    return "no" if first is None else f"no, from token {first}"


def _pool(result: dict[str, Any]) -> Iterator[str]:
    pool, refusal = result["pool"], result["refusal"]
    peak, total = pool["peak_blocks_in_use"], pool["n_blocks"]
    yield table(
        [f"blocks of {pool['block_size']} token slots", ""],
        [
            ["in use at the peak", f"{peak:,} of {total:,} ({peak / total:.0%})"],
            ["in use at the end", f"{pool['blocks_in_use_at_end']:,}"],
            ["handed out / given back", f"{pool['n_allocations']:,} / {pool['n_frees']:,}"],
            ["of these, handed out before", f"{pool['n_reused']:,}"],
            ["slots held but not used, at the peak", f"{pool['waste_at_peak']:.1%}"],
            ["slots held but not used, over the run", f"{pool['waste_over_time']:.1%}"],
            ["requests refused", f"{pool['n_exhausted']:,}"],
        ],
    )
    if refusal is not None and refusal["refused"]:
        yield paragraph(
            f"The request of {refusal['n_prompt_tokens']:,} tokens came when "
            f"{refusal['blocks_free']:,} blocks were free. The pool said:"
        )
        yield f"<pre>{escape(refusal['message'])}</pre>"


def _texts(result: dict[str, Any]) -> Iterator[str]:
    yield '<div class="requests">'
    for index, request in enumerate(result["requests"]):
        pooled = request["pooled"]
        remark = f"{len(pooled['tokens'])} tokens, {_FINISHES[pooled['finish']]}"
        yield f'<article style="border-left-color: var(--s{index % N_COLOURS})">'
        yield f"<h3>{escape(request['question'])}</h3>"
        yield f"<blockquote>{escape(request['text'])}</blockquote>"
        yield paragraph(f"{request['name']}: {remark}", "quiet small")
        if pooled["message"]:
            yield paragraph(pooled["message"], "small")
        yield "</article>"
    yield "</div>"


def _making(result: dict[str, Any]) -> Iterator[str]:
    machine, model = result["machine"], result["model"]
    yield f"<pre>{escape(result['command'])}</pre>"
    rows = [
        ["model", f"{model['name']}, {model['n_caches']} layers"],
        ["weights", model["weights"]],
        ["versions", f"kvpool {machine['kvpool']}, mlx {machine['mlx']}, mlx_lm "
         f"{machine['mlx_lm']}, Python {machine['python']}"],
        ["machine", f"{machine['platform']}, {machine['device'].upper()}, "
         f"{machine['n_cpus']} cores"],
        ["took", f"{result['seconds']:.0f} s"],
    ]  # fmt: skip
    yield table(["", ""], rows, n_text=2)


def _rate(tokens_per_s: float | None) -> str:
    return "–" if tokens_per_s is None else f"{tokens_per_s:.2f}"


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.1f} MiB"
