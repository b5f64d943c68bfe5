"""The real model, run in processes of their own so that OpenBLAS can be preloaded where it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvpool import models
from kvpool.cli.blas import environment_with_openblas

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="session")
def model_directory() -> Path:
    """SmolLM2 with dense weights, in the user's cache folder, where the demo has it too."""
    pytest.importorskip("mlx_lm", reason="needs mlx_lm (pip install mlx-lm)")
    try:
        return models.smollm2_directory(weights="dense")
    except models.ModelPackageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def run_program(model_directory: Path) -> Callable[..., Any]:
    """Runs a program of `PROGRAMS` on the model; returns the JSON of its last line of output."""
    environment = environment_with_openblas(os.environ) or dict(os.environ)

    def run(name: str, *arguments: str, launcher: tuple[str, ...] = ()) -> Any:
        command = [sys.executable, *launcher, str(PROGRAMS / name), str(model_directory)]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run
