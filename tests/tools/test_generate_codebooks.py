import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "generate_codebooks.py"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_codebooks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_tables_are_what_the_script_computes() -> None:
    result = subprocess.run(
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (result.returncode, result.stdout) == (0, "")


def test_a_number_that_is_off_is_found(generator: ModuleType) -> None:
    committed = generator.OUTPUT.read_text("utf-8")
    assert generator.difference(committed, committed) is None
    last_place = committed.replace("0.797884560802865", "0.797884560802866")
    assert generator.difference(committed, last_place) is None
    off = committed.replace("0.797884560802865", "0.797884560805865")
    assert "0.797884560805865" in generator.difference(off, committed)
    assert generator.difference(committed + "\n", committed) is not None


@pytest.mark.parametrize("bits", range(1, 9))
def test_centroids_are_the_means_of_their_cells(generator: ModuleType, bits: int) -> None:
    centroids = generator.normal_codebook(bits)
    step = generator.newton_step(generator.normal, centroids, float("inf"))
    assert max(map(abs, step)) < 1e-12
