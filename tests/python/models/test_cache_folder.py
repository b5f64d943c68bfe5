from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kvpool.models.cache_folder import cache_folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("KVPOOL_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_argument_comes_before_every_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPOOL_CACHE_DIR", "/ours")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder("/given") == Path("/given")


def test_own_variable_comes_before_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPOOL_CACHE_DIR", "/ours")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/ours")


def test_xdg_comes_before_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg")


@pytest.mark.parametrize(
    ("platform", "folder"), [("linux", ".cache"), ("darwin", "Library/Caches")]
)
def test_home_by_platform(
    platform: str, folder: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert cache_folder() == home / folder


def test_empty_variables_count_as_unset(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("KVPOOL_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == home / ".cache"


def test_relative_xdg_is_ignored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == home / ".cache"


def test_own_variable_expands_home_and_becomes_absolute(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVPOOL_CACHE_DIR", "~/kept")
    assert cache_folder() == home / "kept"
    monkeypatch.chdir(home)
    monkeypatch.setenv("KVPOOL_CACHE_DIR", "here")
    assert cache_folder() == home / "here"
