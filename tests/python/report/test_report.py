"""The report of the demo: one file, whole, and true to what it was given."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kvpool.report import render_demo
from kvpool.report.occupancy import Drawing, occupancy_chart, stacked, steps

DRAWING = Drawing("wide", 960, 400, last_second=4.0, top_block=40, n_ticks=8)


def corners(points: str) -> list[tuple[float, float]]:
    pairs = [pair.split(",") for pair in points.split()]
    return [(float(x), float(y)) for x, y in pairs]


def test_nothing_is_loaded_from_anywhere(result: dict[str, Any], read: Any) -> None:
    page = render_demo(result)
    reader = read(page)
    for tag, attributes in reader.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "source")
        for name in ("src", "href", "xlink:href", "action", "srcset", "data"):
            assert name not in attributes
    assert not re.search(r"https?:|@import|url\(|fetch\(|XMLHttpRequest|import\(", page)


def test_the_page_is_whole_html_for_phone_print_light_and_dark(
    result: dict[str, Any], read: Any
) -> None:
    page = render_demo(result)
    reader = read(page)
    assert page.startswith("<!DOCTYPE html>")
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in (
        reader.all("meta")
    )
    for rule in ("prefers-color-scheme: dark", "@media print", "max-width: 40rem"):
        assert rule in page
    assert [drawing["class"] for drawing in reader.all("svg")] == ["wide", "narrow"]


def test_what_people_and_models_wrote_cannot_become_markup(
    result: dict[str, Any], read: Any
) -> None:
    hostile = '</script><script>alert(1)</script><img src="x">&amp;'
    result["requests"][0]["text"] = hostile
    result["requests"][1]["question"] = hostile
    result["command"] = hostile
    result["model"]["weights"] = hostile
    result["refusal"]["message"] = hostile
    result["occupancy"]["requests"][0]["name"] = hostile
    reader = read(render_demo(result))
    assert reader.all("img") == []
    assert len(reader.all("script")) == 2
    assert reader.text.count(hostile) >= 5


def test_the_data_in_the_page_are_the_data_given(result: dict[str, Any]) -> None:
    result["occupancy"]["requests"][0]["name"] = "</script>"
    page = render_demo(result)
    match = re.search(r'<script type="application/json" id="occupancy">(.*?)</script>', page)
    assert match is not None
    assert json.loads(match[1]) == result["occupancy"]


def test_areas_are_stacked_in_steps(result: dict[str, Any], read: Any) -> None:
    chart = occupancy_chart(result["occupancy"], 16)
    wide = read(chart.split("</svg>")[0] + "</svg></div>").all("polygon")
    first, second = (corners(area["points"] or "") for area in wide)
    x, y = DRAWING.x, DRAWING.y
    rounded = [(round(a, 1), round(b, 1)) for a, b in [
        (x(0), y(0)), (x(1), y(0)), (x(1), y(16)), (x(3), y(16)), (x(3), y(0)), (x(4), y(0)),
        (x(4), y(0)), (x(0), y(0)),
    ]]  # fmt: skip
    assert first == rounded
    # The second stands on the first: it begins where that one's top is, and ends on the floor.
    assert (round(x(2), 1), round(y(24), 1)) in second
    assert (round(x(3), 1), round(y(8), 1)) in second
    assert (round(x(1), 1), round(y(16), 1)) in second


def test_the_line_of_tokens_stored_is_in_blocks(result: dict[str, Any], read: Any) -> None:
    chart = occupancy_chart(result["occupancy"], 16)
    points = read(chart).all("polyline", "stored")[0]["points"]
    # 160 and 64 slots of 16 are 14 blocks.
    assert (round(DRAWING.x(2), 1), round(DRAWING.y(14), 1)) in corners(points or "")


def test_the_top_of_the_stack_is_what_is_live(result: dict[str, Any]) -> None:
    occupancy = result["occupancy"]
    levels = stacked([request["blocks"] for request in occupancy["requests"]])
    assert levels[0] == [0, 0, 0, 0, 0]
    assert levels[-1] == occupancy["blocks_live"]


def test_steps_keep_each_value_until_the_next_sample() -> None:
    x, y = DRAWING.x, DRAWING.y
    assert steps(DRAWING, [0, 1, 2, 4], [3, 3, 5, 5]) == [
        (x(0), y(3)),
        (x(2), y(3)),
        (x(2), y(5)),
        (x(4), y(5)),
    ]


@pytest.mark.parametrize(("managed", "shown"), [(40, True), (1_000_000, False)])
def test_a_pool_much_larger_than_its_use_does_not_press_the_areas_flat(
    managed: int, shown: bool, result: dict[str, Any], read: Any
) -> None:
    occupancy = result["occupancy"]
    occupancy["blocks_managed"] = [managed] * 5
    reader = read(occupancy_chart(occupancy, 16))
    assert bool(reader.all("line", "limit")) is shown
    heights = [y for _, y in corners(reader.all("polygon")[1]["points"] or "")]
    assert max(heights) - min(heights) > 100


def test_one_sample_and_no_blocks_can_be_drawn(result: dict[str, Any], read: Any) -> None:
    occupancy = {
        "seconds": [0.0],
        "blocks_managed": [10],
        "blocks_live": [0],
        "requests": [{"name": "request 1", "blocks": [0], "slots_used": [0]}],
    }
    assert len(read(occupancy_chart(occupancy, 16)).all("polygon")) == 2
    assert read(occupancy_chart({**occupancy, "requests": []}, 16)).all("polygon") == []


def test_the_refusal_is_marked_where_it_happened(result: dict[str, Any], read: Any) -> None:
    reader = read(render_demo(result))
    assert next(line["x1"] for line in reader.all("line", "event")) == f"{DRAWING.x(2):.1f}"
    assert "400 <blocks> wanted" in reader.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"identical": False}, ["✗ Tokens differ"]),
        ({"given_back": False}, ["✗ Not everything given back"]),
        ({"balanced": False}, ["✗ The books did not balance"]),
    ],
)
def test_verdicts(
    change: dict[str, Any], said: list[str], result: dict[str, Any], read: Any
) -> None:
    reader = read(render_demo({**result, **change}))
    assert [text for text in reader.text if text.startswith("✗")] == said
    assert len(reader.all("li", "bad")) == len(said)


def test_a_run_without_a_refusal_and_with_a_refused_request_can_be_shown(
    result: dict[str, Any], read: Any
) -> None:
    result["refusal"] = None
    pooled = result["requests"][0]["pooled"]
    pooled.update(finish="refused", message="no room for it", tokens=[], decode_tokens_per_s=None)
    result["requests"][0].update(identical=False, first_difference=0)
    result["decode_speed_ratio"] = None
    reader = read(render_demo(result))
    assert "no room for it" in reader.text
    assert "no, from token 0" in reader.text
