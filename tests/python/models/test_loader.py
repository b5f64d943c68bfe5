"""Loading by directory or by default, and never over a network."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from kvpool import models
from kvpool.models.directory import Weights


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every attempt to reach a host fail the test."""

    def refuse(*arguments: object, **_: object) -> None:
        pytest.fail(f"tried to reach a host: {arguments}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)


@pytest.mark.usefixtures("offline")
def test_nothing_stands_for_smollm2(
    converted: Callable[[Weights], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = converted("4bit")
    before = dict(os.environ)
    messages: list[str] = []
    model, tokenizer = models.load(
        None, weights="4bit", cache_dir=folder.parents[2], progress=messages.append
    )
    assert len(model.layers) == 30
    assert tokenizer.encode("Hello world") == [19556, 905]
    assert messages == [f"loading {folder}"]
    assert dict(os.environ) == before
    assert capfd.readouterr().out == ""


@pytest.mark.usefixtures("offline")
def test_any_model_directory_is_loaded(
    converted: Callable[[Weights], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine").symlink_to(converted("4bit"))
    model, _ = models.load("~/mine")
    assert len(model.layers) == 30


@pytest.mark.usefixtures("offline")
def test_missing_directory_is_not_looked_up_on_a_hub(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no model directory at .*absent"):
        models.load(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"'mlx-community/some-model'.*not downloaded"):
        models.load("mlx-community/some-model")


def test_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(NotADirectoryError, match=r"model\.gguf' is a file: give a directory"):
        models.load(path)


def test_directory_without_config_is_shown_with_what_it_holds(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"file{number:02}").touch()
    with pytest.raises(FileNotFoundError, match=r"no config\.json, only \['file00'.* and more$"):
        models.load(tmp_path)
