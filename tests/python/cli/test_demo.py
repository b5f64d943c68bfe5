"""``kvpool demo`` from end to end, with a tiny model."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvpool.cli import main
from kvpool.cli.demo import command as demo_command
from kvpool.cli.demo.runner import Refusal
from kvpool.memory import BlockPoolAllocator, PoolConfig

MAX_TOKENS = 8


def arguments(model: Path, report: Path, *more: str) -> list[str]:
    return ["demo", "--model", str(model), "--report", str(report), "--max-tokens", str(MAX_TOKENS),
            "--requests", "3", *more]  # fmt: skip


@pytest.fixture
def run_json(model_directory: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    """Run the demo with --json; returns the exit code and the object."""

    def run(*more: str) -> tuple[int, dict[str, Any]]:
        exit_code = main(arguments(model_directory, tmp_path / "report.html", "--json", *more))
        return exit_code, json.loads(capfd.readouterr().out)

    return run


def embedded_occupancy(page: str) -> Any:
    match = re.search(r'<script type="application/json" id="occupancy">(.*?)</script>', page)
    assert match is not None
    return json.loads(match[1])


def test_standard_output_is_one_json_object_and_all_else_is_on_standard_error(
    model_directory: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(model_directory, tmp_path / "report.html", "--json")) == 0
    out, err = capfd.readouterr()
    assert out.count("\n") == 1
    assert json.loads(out)["ok"] is True
    assert "Everything was given back" in err


def test_what_a_library_prints_does_not_get_into_the_json(
    run_json: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe = demo_command.describe

    def talkative(*args: Any) -> dict[str, Any]:
        sys.stdout.write("a library has something to say\n")
        return describe(*args)

    monkeypatch.setattr(demo_command, "describe", talkative)
    assert run_json()[0] == 0


def test_tokens_are_identical_and_every_block_is_given_back(run_json: Any) -> None:
    exit_code, result = run_json()
    assert exit_code == 0
    assert result["identical"]
    assert result["given_back"]
    assert result["balanced"]
    for request in result["requests"]:
        assert request["own"]["tokens"] == request["pooled"]["tokens"]
        assert len(request["pooled"]["tokens"]) == MAX_TOKENS or (
            request["pooled"]["finish"] == "stop"
        )
        assert request["own"]["growth_steps"] == request["pooled"]["growth_steps"] > 0
        assert request["own"]["peak_bytes"] == request["pooled"]["peak_bytes"] > 0
    pool = result["pool"]
    assert pool["n_allocations"] == pool["n_frees"] > 0
    assert pool["blocks_in_use_at_end"] == 0
    assert 0 < pool["waste_over_time"] < 1


def test_requests_are_alive_together_and_the_peak_is_what_the_samples_say(run_json: Any) -> None:
    _, result = run_json()
    occupancy = result["occupancy"]
    together = [
        sum(request["blocks"][index] > 0 for request in occupancy["requests"])
        for index in range(len(occupancy["seconds"]))
    ]
    assert max(together) > 1
    assert max(occupancy["blocks_live"]) == result["pool"]["peak_blocks_in_use"]
    for index, live in enumerate(occupancy["blocks_live"]):
        assert sum(request["blocks"][index] for request in occupancy["requests"]) == live
        assert live + occupancy["blocks_free"][index] == occupancy["blocks_managed"][index]
    assert occupancy["blocks_live"][0] == occupancy["blocks_live"][-1] == 0


def test_a_request_too_big_is_refused_while_others_go_on(run_json: Any) -> None:
    exit_code, result = run_json()
    refusal = result["refusal"]
    assert exit_code == 0
    assert refusal["handled"]
    assert refusal["books_unchanged"]
    assert refusal["n_live_requests"] > 0
    assert "BlockPoolAllocator" in refusal["message"]
    assert result["pool"]["n_exhausted"] == 1


@pytest.mark.parametrize(
    ("refused", "free_after", "handled"), [(True, 8, True), (True, 7, False), (False, 8, False)]
)
def test_a_refusal_is_handled_when_the_books_are_as_before(
    refused: bool, free_after: int, handled: bool
) -> None:
    refusal = Refusal(
        n_prompt_tokens=100,
        refused=refused,
        message="no room",
        before=SimpleNamespace(free=8),
        after=SimpleNamespace(free=free_after),
        n_live_requests=2,
        seconds=1.0,
    )
    assert refusal.handled is handled


def test_the_report_holds_the_sampled_books(
    run_json: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    describe = demo_command.describe

    def spy(run: Any, pool: BlockPoolAllocator) -> dict[str, Any]:
        runs.append(run)
        return describe(run, pool)

    monkeypatch.setattr(demo_command, "describe", spy)
    _, result = run_json()
    occupancy = embedded_occupancy((tmp_path / "report.html").read_text("utf-8"))
    assert occupancy == result["occupancy"]
    samples = runs[0].samples
    assert occupancy["seconds"] == [sample.seconds for sample in samples]
    for index, request in enumerate(occupancy["requests"]):
        assert request["blocks"] == [sample.blocks[index] for sample in samples]
        assert request["slots_used"] == [sample.slots_used[index] for sample in samples]


def test_a_person_sees_text_a_table_and_the_reports_path(
    model_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.html"
    assert main(arguments(model_directory, report)) == 0
    lines = capsys.readouterr().out.splitlines()
    text = "\n".join(lines)
    assert "Identical tokens: yes (3 of 3 requests)." in text
    assert "Exhaustion handled: yes" in text
    assert re.search(r"Everything was given back: 0 of [\d,]+ blocks in use\.", text)
    assert lines[-1] == f"Report: {report}"
    assert not re.search("[\x1b\r]", text)
    assert max(len(line) for line in lines if str(model_directory) not in line) <= 100


def test_exit_code_1_and_the_first_difference_when_tokens_differ(
    run_json: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvpool.mlx import PoolBackedKVCache

    update_and_fetch = PoolBackedKVCache.update_and_fetch

    def forgetful(cache: Any, keys: Any, values: Any) -> Any:
        all_keys, all_values = update_and_fetch(cache, keys, values)
        return all_keys, all_values * (0 if keys.shape[2] == 1 else 1)

    monkeypatch.setattr(PoolBackedKVCache, "update_and_fetch", forgetful)
    exit_code, result = run_json()
    assert exit_code == 1
    assert not result["identical"]
    assert result["given_back"]
    different = [request for request in result["requests"] if not request["identical"]]
    assert different
    for request in different:
        first = request["first_difference"]
        own, pooled = request["own"]["tokens"], request["pooled"]["tokens"]
        assert own[:first] == pooled[:first]
        assert own[first : first + 1] != pooled[first : first + 1]
    assert "Tokens differ" in (tmp_path / "report.html").read_text("utf-8")


def test_exit_code_1_when_blocks_are_not_given_back(
    run_json: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import kvpool.mlx

    build = kvpool.mlx.build_pooled_caches

    def leaking(model: Any, pool: BlockPoolAllocator, owner: str, step: Any = None) -> list[Any]:
        if owner == "request 2":
            pool.allocate("k", 1, "nobody")
        return list(build(model, pool, owner, step=step))

    monkeypatch.setattr(kvpool.mlx, "build_pooled_caches", leaking)
    exit_code, result = run_json()
    assert exit_code == 1
    assert result["identical"]
    assert not result["given_back"]
    assert not result["balanced"]
    assert result["pool"]["blocks_in_use_at_end"] == 1
    assert "Not everything given back" in (tmp_path / "report.html").read_text("utf-8")


def test_exit_code_1_when_the_request_too_big_is_let_in(
    run_json: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pool = demo_command.make_pool

    def growing(*args: Any) -> BlockPoolAllocator:
        config = make_pool(*args).config
        return BlockPoolAllocator(
            PoolConfig(
                block_size=config.block_size, n_blocks=config.n_blocks, grow_on_exhaustion=True
            )
        )

    monkeypatch.setattr(demo_command, "make_pool", growing)
    exit_code, result = run_json()
    assert exit_code == 1
    assert result["identical"]
    assert not result["refusal"]["handled"]
    assert result["given_back"]


def test_a_pool_too_small_refuses_requests_and_still_gets_everything_back(run_json: Any) -> None:
    exit_code, result = run_json("--blocks", "160")
    assert exit_code == 1
    finishes = [request["pooled"]["finish"] for request in result["requests"]]
    assert "refused" in finishes
    refused = result["requests"][finishes.index("refused")]
    assert "160" in refused["pooled"]["message"]
    assert result["given_back"]
    assert result["balanced"]


def test_block_size_and_step_reach_the_pool_and_the_caches(run_json: Any) -> None:
    _, coarse = run_json()
    _, fine = run_json("--block-size", "8", "--step", "16")
    assert fine["identical"]
    assert fine["pool"]["block_size"] == 8
    assert fine["pool"]["waste_over_time"] < coarse["pool"]["waste_over_time"]


def test_a_model_without_a_chat_template_gets_plain_text(
    model_directory: Path, tmp_path: Path, run_json: Any
) -> None:
    import shutil

    plain = shutil.copytree(model_directory, tmp_path / "plain")
    config = json.loads((plain / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (plain / "tokenizer_config.json").write_text(json.dumps(config))
    exit_code, result = run_json("--model", str(plain))
    assert exit_code == 0
    assert result["model"]["name"] == "plain"


def test_with_a_model_for_which_no_prompt_is_too_long_none_is_tried(
    recurrent_directory: Path, run_json: Any
) -> None:
    exit_code, result = run_json("--model", str(recurrent_directory))
    assert exit_code == 0
    assert result["identical"]
    assert result["given_back"]
    assert result["refusal"] is None
