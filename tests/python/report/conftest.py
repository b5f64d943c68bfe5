"""A result of the demo, made up, and a reader of HTML."""

from __future__ import annotations

import copy
from html.parser import HTMLParser
from typing import Any

import pytest

_RECORD = {
    "tokens": [5, 6, 7],
    "finish": "length",
    "message": "",
    "prefill_seconds": 0.5,
    "decode_tokens_per_s": 8.0,
    "peak_bytes": 3 * 2**20,
    "growth_steps": 4,
}
_RESULT = {
    "program": "kvpool demo",
    "command": "kvpool demo --requests 2",
    "machine": {
        "kvpool": "0.1.0",
        "mlx": "0.32.4",
        "mlx_lm": "0.32.2",
        "python": "3.11.2",
        "platform": "Linux",
        "device": "cpu",
        "n_cpus": 2,
        "openblas": None,
    },
    "model": {"name": "tiny", "weights": "as in the directory", "n_caches": 2},
    "ok": True,
    "identical": True,
    "given_back": True,
    "balanced": True,
    "decode_speed_ratio": 1.0,
    "requests": [
        {
            "name": f"request {number}",
            "question": "Why is 1 < 2 & 3 > 2?",
            "n_prompt_tokens": 20,
            "text": "Because.",
            "identical": True,
            "first_difference": None,
            "own": dict(_RECORD),
            "pooled": dict(_RECORD),
        }
        for number in (1, 2)
    ],
    "totals": {
        side: {
            "n_tokens": 6,
            "decode_tokens_per_s": 8.0,
            "prefill_tokens_per_s": 40.0,
            "peak_bytes": 6 * 2**20,
            "growth_steps": 8,
        }
        for side in ("own", "pooled")
    },
    "pool": {
        "block_size": 16,
        "n_blocks": 40,
        "peak_blocks_in_use": 24,
        "blocks_in_use_at_end": 0,
        "waste_at_peak": 0.25,
        "waste_over_time": 0.5,
        "n_allocations": 28,
        "n_frees": 28,
        "n_reused": 4,
        "n_exhausted": 1,
    },
    "refusal": {
        "n_prompt_tokens": 400,
        "handled": True,
        "refused": True,
        "message": "400 <blocks> wanted",
        "blocks_free": 16,
        "books_unchanged": True,
        "n_live_requests": 2,
        "seconds": 2.0,
    },
    "occupancy": {
        "seconds": [0.0, 1.0, 2.0, 3.0, 4.0],
        "blocks_managed": [40, 40, 40, 40, 40],
        "blocks_free": [40, 24, 16, 32, 40],
        "blocks_live": [0, 16, 24, 8, 0],
        "requests": [
            {"name": "request 1", "blocks": [0, 16, 16, 0, 0], "slots_used": [0, 128, 160, 0, 0]},
            {"name": "request 2", "blocks": [0, 0, 8, 8, 0], "slots_used": [0, 0, 64, 96, 0]},
        ],
    },
    "seconds": 4.5,
    "report": "kvpool-demo.html",
}

_VOID = {"meta", "link", "br", "hr", "img", "input"}
_SELF_CLOSED_IN_SVG = {"line", "polyline", "polygon", "path"}


@pytest.fixture
def result() -> dict[str, Any]:
    return copy.deepcopy(_RESULT)


class Reader(HTMLParser):
    """Collects elements and text, and checks that what is opened is closed."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _SELF_CLOSED_IN_SVG
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] not in ("style", "script"):
            self.text.append(data)

    def all(self, tag: str, kind: str = "") -> list[dict[str, str | None]]:
        return [
            attributes
            for name, attributes in self.elements
            if name == tag and (not kind or kind in (attributes.get("class") or "").split())
        ]


@pytest.fixture
def read() -> type[Reader]:
    return Reader
