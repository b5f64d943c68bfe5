"""``kvpool bench``: that it measures, compares and tells; never how fast anything is."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from kvpool.cli import main
from kvpool.cli.bench import alloc, cxx_program, instructions, measure, python_cases
from kvpool.cli.bench.counting import watched
from kvpool.cli.bench.tiny import N_LAYERS, tiny_model
from kvpool.cli.errors import CommandError

pytestmark = pytest.mark.usefixtures("hurried")


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SHORTEST_LOOP", 1e-4)


@pytest.fixture
def without_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alloc, "REFERENCE_PACKAGE", "no-such-package")


@pytest.fixture
def few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alloc, "CASES", python_cases.CASES[:2])


def google_benchmark_output(cpu_ns: dict[str, list[float]], mimalloc: str = "loaded") -> Any:
    runs = [
        {
            "run_name": name,
            "run_type": "iteration",
            "cpu_time": time,
            "time_unit": "ns",
            "items_per_second": 1e9 / time,
        }
        for name, times in cpu_ns.items()
        for time in times
    ]
    aggregate = {"run_name": "pool/1", "run_type": "aggregate", "cpu_time": 1.0, "time_unit": "ns"}
    return {"context": {"mimalloc": mimalloc}, "benchmarks": [*runs, aggregate]}


def all_times() -> dict[str, list[float]]:
    times = {line.ours: [60.0, 70.0, 500.0] for line in cxx_program.LINES}
    times["pool/1"] = [50.0, 60.0, 70.0]
    for suffix in {line.heap for line in cxx_program.LINES}:
        times[f"malloc{suffix}"] = [30.0, 30.0, 30.0]
        times[f"mimalloc{suffix}"] = [20.0, 10.0, 1000.0]
    return times


def write_program(folder: Path, body: str) -> Path:
    import sys

    program = folder / "pool_bench"
    program.write_text(f"#!{sys.executable}\n{body}\n")
    program.chmod(0o755)
    return program


@pytest.mark.usefixtures("without_reference")
def test_alloc_prints_one_json_object_without_the_reference(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", "alloc", "--json", "--repetitions", "1"]) == 0
    out, err = capfd.readouterr()
    result = json.loads(out)
    assert out.count("\n") == 1
    assert "pip install 'kvpool[bench]'" in " ".join(err.split())
    assert "cmake --preset bench" in " ".join(err.split())
    python = result["python"]
    assert python["reference"] is None
    assert [case["name"] for case in python["cases"]] == [case.name for case in python_cases.CASES]
    for case in python["cases"]:
        assert case["kvpool"] > 0
        assert case["ratio"] is case["met"] is None
    assert python["heavy_modules_imported"] == []
    assert result["cxx"] is None


@pytest.mark.usefixtures("few_cases")
def test_alloc_compares_with_the_reference_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Any package that is installed, and a module with the names of the API.
    monkeypatch.setattr(alloc, "REFERENCE_PACKAGE", "pytest")
    monkeypatch.setattr(alloc, "REFERENCE", "kvpool.memory")
    assert main(["bench", "alloc", "--json", "--repetitions", "2"]) == 0
    python = json.loads(capsys.readouterr().out)["python"]
    assert python["reference"].startswith("pytest ")
    for case in python["cases"]:
        ours, theirs = case["repetitions"]["kvpool"], case["repetitions"]["reference"]
        assert len(ours) == len(theirs) == 2
        assert case["ratio"] == statistics.median(theirs) / statistics.median(ours)
        assert case["met"] == (case["ratio"] >= case["wanted"])


@pytest.mark.usefixtures("few_cases", "without_reference")
def test_alloc_runs_the_program_and_shows_the_limit_beside_the_ratio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = google_benchmark_output(all_times())
    program = write_program(
        tmp_path,
        "import sys\n"
        "assert '--benchmark_enable_random_interleaving=true' in sys.argv\n"
        "assert '--benchmark_repetitions=3' in sys.argv\n"
        f"print({json.dumps(json.dumps(output))})",
    )
    assert main(["bench", "alloc", "--repetitions", "3", "--program", str(program)]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(line for line in lines if "/ mimalloc" in line)
    line = next(line for line in lines[lines.index(header) :] if line.startswith("allocate(1)"))
    assert line.split()[3:] == ["60.0", "ns", "30.0", "ns", "20.0", "ns", "2.00", "3.00", "<=",
                                "4", "mimalloc"]  # fmt: skip


@pytest.mark.parametrize("body", ["raise SystemExit(1)", "print('no JSON')", "print('{}')"])
@pytest.mark.usefixtures("few_cases", "without_reference")
def test_alloc_says_that_the_program_failed(
    body: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = write_program(tmp_path, body)
    assert main(["bench", "alloc", "--repetitions", "1", "--program", str(program)]) == 1
    assert capsys.readouterr().err.startswith(f"kvpool: The benchmark program '{program}' failed")


def test_medians_of_iterations_are_compared_and_aggregates_left_out() -> None:
    first = cxx_program.compare(google_benchmark_output(all_times()))["lines"][0]
    assert first["kvpool"] == pytest.approx(60e-9)
    assert first["ratio_mimalloc"] == pytest.approx(3.0)
    assert first["ratio_malloc"] == pytest.approx(2.0)


def test_without_mimalloc_only_malloc_is_compared() -> None:
    times = {name: t for name, t in all_times().items() if not name.startswith("mimalloc")}
    result = cxx_program.compare(google_benchmark_output(times, mimalloc="absent"))
    assert not result["mimalloc"]
    assert all("ratio_mimalloc" not in line for line in result["lines"])


def test_a_benchmark_that_failed_is_no_result() -> None:
    output = google_benchmark_output(all_times())
    output["benchmarks"][0]["error_occurred"] = True
    with pytest.raises(KeyError):
        cxx_program.compare(output)


def test_a_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as error:
        cxx_program.find_program(tmp_path / "nothing")
    assert error.value.exit_code == 2


def test_what_takes_turns_changes_who_goes_first() -> None:
    order: list[str] = []

    def note(name: str) -> int:
        order.append(name)
        return len(order)

    results = measure.take_turns({"a": lambda: note("a"), "b": lambda: note("b")}, 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert results == {"a": [1, 4, 5], "b": [2, 3, 6]}


def test_a_loop_is_lengthened_until_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SHORTEST_LOOP", 0.5)
    turns: list[int] = []

    def loop(n_turns: int) -> float:
        turns.append(n_turns)
        return n_turns * 1e-4

    assert measure.seconds_a_turn(loop) == pytest.approx(1e-4)
    assert turns[0] == 1
    assert turns == sorted(turns)
    assert turns[-1] * 1e-4 >= 0.5


def test_decode_prints_one_json_object(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decode", "--tiny", "--json", "--tokens", "6", "--prompt-tokens", "12",
                 "--repetitions", "2"]) == 0  # fmt: skip
    out, err = capfd.readouterr()
    result = json.loads(out)
    assert out.count("\n") == 1
    assert result["identical"]
    assert result["given_back"]
    assert result["speed_ratio"]["n"] == 12
    assert result["own"]["n_concatenations"] == result["pooled"]["n_concatenations"]
    assert result["own"]["update_seconds"]["n"] == result["pooled"]["update_seconds"]["n"] > 0
    assert "Identical tokens: yes." in err


def test_decode_counts_concatenations_of_growth(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decode", "--tiny", "--json", "--tokens", "8", "--prompt-tokens", "252",
                 "--repetitions", "1"]) == 0  # fmt: skip
    result = json.loads(capsys.readouterr().out)
    # Keys and values of every layer grow once on the way.
    assert result["own"]["n_concatenations"] == 2 * N_LAYERS
    assert result["pooled"]["n_concatenations"] <= 2 * N_LAYERS


def test_decode_fails_when_tokens_differ(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvpool.mlx import PoolBackedKVCache

    update_and_fetch = PoolBackedKVCache.update_and_fetch

    def faulty(cache: Any, keys: Any, values: Any) -> Any:
        all_keys, all_values = update_and_fetch(cache, keys, values)
        return all_keys, -all_values

    monkeypatch.setattr(PoolBackedKVCache, "update_and_fetch", faulty)
    assert main(["bench", "decode", "--tiny", "--json", "--tokens", "6", "--prompt-tokens", "12",
                 "--repetitions", "1"]) == 1  # fmt: skip
    assert not json.loads(capsys.readouterr().out)["identical"]


def test_instructions_need_valgrind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(instructions.shutil, "which", lambda _: None)
    assert main(["bench", "decode", "--tiny", "--instructions"]) == 1
    assert "apt-get install valgrind" in capsys.readouterr().err


def test_instructions_are_counted_by_the_difference_of_two_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    valgrind = write_program(
        tmp_path,
        "import sys\n"
        "side, n_tokens = sys.argv[-2:]\n"
        "a_token = {'own': 1000, 'pooled': 900}[side]\n"
        "sys.stderr.write(f'==7== I   refs:      {5_000_000 + a_token * int(n_tokens):,}')",
    )
    monkeypatch.setattr(instructions.shutil, "which", lambda _: str(valgrind))
    assert main(["bench", "decode", "--tiny", "--instructions", "--json", "--tokens", "2",
                 "--prompt-tokens", "4", "--repetitions", "1"]) == 0  # fmt: skip
    out, err = capsys.readouterr()
    assert json.loads(out)["instructions_a_token"] == {"own": 1000, "pooled": 900}
    assert "0.900" in err


def test_what_is_counted_gives_the_same_tokens_on_both_sides() -> None:
    assert instructions.decode("own", 5) == instructions.decode("pooled", 5)


def test_a_report_without_a_count_is_an_error() -> None:
    with pytest.raises(CommandError, match="nonsense"):
        instructions.read_count("nonsense")


def test_watching_ends_with_the_block() -> None:
    import mlx.core as mx
    from mlx_lm.models.cache import KVCache, make_prompt_cache

    concatenate, update_and_fetch = mx.concatenate, KVCache.update_and_fetch
    caches = make_prompt_cache(tiny_model())
    tokens = mx.zeros((1, 2, 300, 16))
    with watched(caches) as calls:
        caches[0].update_and_fetch(tokens, tokens)
        caches[0].update_and_fetch(tokens, tokens)
    assert calls.n_concatenations == 2
    assert len(calls.update_seconds) == 2
    assert mx.concatenate is concatenate
    assert KVCache.update_and_fetch is update_and_fetch
