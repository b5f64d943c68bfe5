"""When a command starts again with OpenBLAS preloaded."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

import kvpool.cli
from kvpool.cli import blas


@pytest.fixture
def on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(blas.ctypes.util, "find_library", lambda name: f"lib{name}.so.0")


@pytest.mark.usefixtures("on_linux")
def test_openblas_goes_in_front_of_what_is_preloaded() -> None:
    assert blas.environment_with_openblas({"HOME": "/h"}) == {
        "HOME": "/h",
        "LD_PRELOAD": "libopenblas.so.0",
        blas.MARK: "libopenblas.so.0",
    }
    environment = blas.environment_with_openblas({"LD_PRELOAD": "libjemalloc.so.2"})
    assert environment is not None
    assert environment["LD_PRELOAD"] == "libopenblas.so.0 libjemalloc.so.2"


@pytest.mark.usefixtures("on_linux")
@pytest.mark.parametrize(
    "environment", [{blas.MARK: "libopenblas.so.0"}, {"LD_PRELOAD": "/opt/libopenblas.so"}]
)
def test_it_never_starts_again_twice(environment: dict[str, str]) -> None:
    assert blas.environment_with_openblas(environment) is None


def test_it_does_not_start_again_without_openblas_or_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(blas.ctypes.util, "find_library", lambda _: None)
    assert blas.environment_with_openblas({}) is None
    monkeypatch.setattr(blas.ctypes.util, "find_library", lambda name: name)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert blas.environment_with_openblas({}) is None


class StartedError(Exception):
    """The process would have been replaced."""


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    def execve(*arguments: Any) -> None:
        calls.append(arguments)
        raise StartedError

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.delenv(blas.MARK, raising=False)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    return calls


@pytest.mark.usefixtures("on_linux")
def test_the_program_starts_again_with_the_same_arguments(
    starts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["kvpool", "demo", "--requests", "2"])
    with pytest.raises(StartedError):
        kvpool.cli.main()
    ((program, command, environment),) = starts
    assert program == sys.executable
    assert command[1:] == ["-m", "kvpool.cli", "demo", "--requests", "2"]
    assert environment["LD_PRELOAD"] == "libopenblas.so.0"


@pytest.mark.usefixtures("on_linux")
@pytest.mark.parametrize(
    "arguments", [["demo", "--no-blas"], ["bench", "decode", "--tiny"], ["demo", "--report", "/"]]
)
def test_a_call_from_python_and_no_blas_stay_in_this_process(
    arguments: list[str], starts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class RanError(Exception):
        pass

    def stop(*_: Any) -> None:
        raise RanError

    monkeypatch.setattr(kvpool.cli, "_run", stop)
    from_python = "--report" in arguments
    monkeypatch.setattr(sys, "argv", ["kvpool", *arguments])
    with pytest.raises(RanError):
        kvpool.cli.main(arguments if from_python else None)
    assert starts == []
