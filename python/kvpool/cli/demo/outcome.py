"""What a run of the demo came to, as one JSON-compatible object: what ``--json`` prints.

The table on the terminal and the report are drawn from this object and nothing else.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from kvpool.cli.demo.books import Sample, peak, waste, waste_over_time
from kvpool.cli.demo.runner import Lane, Refusal, Run
from kvpool.cli.streams import OWN, POOLED, SIDES, StreamRecord
from kvpool.memory import BlockPoolAllocator


def describe(run: Run, pool: BlockPoolAllocator) -> dict[str, Any]:
    """Return everything that was measured.

    Parameters
    ----------
    run : Run
        What happened.
    pool : BlockPoolAllocator
        The pool, after the last request.

    Returns
    -------
    dict
        ``ok`` (all identical, the oversized request refused, everything given back), ``requests``,
        ``totals`` by side, ``pool``, ``refusal`` (None if no prompt is too long with this model),
        ``given_back`` and ``occupancy``. Speeds are tokens a second, waste is between 0 and 1,
        sizes are bytes.
    """
    requests = [_describe_lane(lane) for lane in run.lanes]
    totals = {side: _describe_side(run, side) for side in SIDES}
    last = run.samples[-1]
    given_back = last.counts.live == last.counts.reserved == pool.stats.blocks_in_use() == 0
    identical = all(request["identical"] for request in requests)
    balanced = all(sample.balanced for sample in run.samples)
    return {
        "ok": identical and run.exhaustion_handled and balanced and given_back,
        "identical": identical,
        "given_back": given_back,
        "balanced": balanced,
        "decode_speed_ratio": _speed_ratio(run.lanes),
        "requests": requests,
        "totals": totals,
        "pool": _describe_pool(run, pool),
        "refusal": _describe_refusal(run.refusal),
        "occupancy": _describe_samples(run.samples, [lane.request.name for lane in run.lanes]),
    }


def _describe_lane(lane: Lane) -> dict[str, Any]:
    return {
        "name": lane.request.name,
        "question": lane.request.question,
        "n_prompt_tokens": len(lane.request.prompt),
        "text": lane.text.strip(),
        "identical": lane.identical,
        "first_difference": lane.first_difference,
        **{side: _describe_record(lane.records[side]) for side in SIDES},
    }


def _describe_record(record: StreamRecord) -> dict[str, Any]:
    return {
        "tokens": record.tokens,
        "finish": record.finish,
        "message": record.message,
        "prefill_seconds": record.prefill_seconds,
        "decode_tokens_per_s": _per_second(record.step_seconds),
        "peak_bytes": record.peak_bytes,
        "growth_steps": record.growth_steps,
    }


def _describe_side(run: Run, side: str) -> dict[str, Any]:
    records = [lane.records[side] for lane in run.lanes]
    steps = [seconds for record in records for seconds in record.step_seconds]
    prefill_seconds = sum(record.prefill_seconds for record in records)
    n_prompt_tokens = sum(
        len(lane.request.prompt) for lane in run.lanes if lane.records[side].prefill_seconds
    )
    return {
        "n_tokens": sum(len(record.tokens) for record in records),
        "decode_tokens_per_s": _per_second(steps),
        "prefill_tokens_per_s": n_prompt_tokens / prefill_seconds if prefill_seconds else None,
        "peak_bytes": run.peak_bytes[side],
        "growth_steps": sum(record.growth_steps for record in records),
    }


def _describe_pool(run: Run, pool: BlockPoolAllocator) -> dict[str, Any]:
    config, stats = pool.config, pool.stats
    highest = peak(run.samples)
    return {
        "block_size": config.block_size,
        "n_blocks": run.samples[-1].counts.managed,
        "peak_blocks_in_use": highest.counts.live,
        "blocks_in_use_at_end": stats.blocks_in_use(),
        "waste_at_peak": waste(highest, config.block_size),
        "waste_over_time": waste_over_time(run.samples, config.block_size),
        "n_allocations": stats.n_allocations,
        "n_frees": stats.n_frees,
        "n_reused": stats.n_reused,
        "n_exhausted": stats.n_exhausted,
    }


def _describe_refusal(refusal: Refusal | None) -> dict[str, Any] | None:
    if refusal is None:
        return None
    return {
        "n_prompt_tokens": refusal.n_prompt_tokens,
        "handled": refusal.handled,
        "refused": refusal.refused,
        "message": refusal.message,
        "blocks_free": refusal.before.free,
        "books_unchanged": refusal.before == refusal.after,
        "n_live_requests": refusal.n_live_requests,
        "seconds": refusal.seconds,
    }


def _describe_samples(samples: list[Sample], names: list[str]) -> dict[str, Any]:
    return {
        "seconds": [sample.seconds for sample in samples],
        "blocks_managed": [sample.counts.managed for sample in samples],
        "blocks_free": [sample.counts.free for sample in samples],
        "blocks_live": [sample.counts.live for sample in samples],
        "requests": [
            {
                "name": name,
                "blocks": [sample.blocks[index] for sample in samples],
                "slots_used": [sample.slots_used[index] for sample in samples],
            }
            for index, name in enumerate(names)
        ],
    }


def _per_second(seconds: Iterable[float]) -> float | None:
    """Return the rate of the median step: a pause of the machine moves it little."""
    steps = list(seconds)
    return 1 / statistics.median(steps) if steps else None


def _speed_ratio(lanes: list[Lane]) -> float | None:
    """Return the speed of the pooled side over the other, as the median over pairs of steps.

    Both steps of a pair made the same token of the same request, one right after the other, so
    that a slow moment of the machine tends to meet both.
    """
    ratios = [
        own / pooled
        for lane in lanes
        for own, pooled in zip(
            lane.records[OWN].step_seconds, lane.records[POOLED].step_seconds, strict=False
        )
    ]
    return statistics.median(ratios) if ratios else None
