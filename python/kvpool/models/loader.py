"""Load a model and its tokenizer from a directory, without a network."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvpool.models.directory import Weights, smollm2_directory
from kvpool.models.errors import ModelPackageError

if TYPE_CHECKING:
    from mlx.nn.layers.base import Module
    from mlx_lm.tokenizer_utils import TokenizerWrapper


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    weights: Weights = "4bit",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[Module, TokenizerWrapper]:
    """Load SmolLM2-135M-Instruct, or the model in a directory.

    Parameters
    ----------
    path
        A local model directory as mlx_lm writes or downloads it (``~`` is expanded), or None
        for SmolLM2-135M-Instruct. Unlike in ``mlx_lm.load``, a name of a model on a hub is
        not accepted.
    weights, cache_dir, progress
        As in `smollm2_directory`; they concern only SmolLM2-135M-Instruct.

    Returns
    -------
    tuple
        The model and its tokenizer, as ``mlx_lm.load`` returns them.

    Raises
    ------
    FileNotFoundError
        `path` does not exist, or holds no ``config.json``.
    NotADirectoryError
        `path` is a file.
    ModelPackageError
        mlx_lm is not installed, or as in `smollm2_directory`.
    """
    if path is None:
        directory = smollm2_directory(weights=weights, cache_dir=cache_dir, progress=progress)
    else:
        directory = _model_directory(path)
    try:
        from mlx_lm import load as load_directory
    except ImportError as error:
        raise ModelPackageError(
            f"loading a model needs mlx_lm ({error}); install it with: pip install mlx-lm"
        ) from error
    if progress is not None:
        progress(f"loading {directory}")
    loaded: Any = load_directory(str(directory))
    model, tokenizer = loaded
    return model, tokenizer


def _model_directory(path: str | os.PathLike[str]) -> Path:
    directory = Path(path).expanduser()
    if not directory.exists():
        raise FileNotFoundError(
            f"no model directory at {str(directory)!r}: give a local directory that mlx_lm can "
            f"load (models are not downloaded)"
        )
    if not directory.is_dir():
        raise NotADirectoryError(
            f"{str(directory)!r} is a file: give a directory with config.json, the weights as "
            f"model*.safetensors, and the tokenizer"
        )
    if not (directory / "config.json").is_file():
        names = sorted(entry.name for entry in directory.iterdir())
        raise FileNotFoundError(
            f"{str(directory)!r} is not a model directory: it has no config.json, only "
            f"{names[:10]}{' and more' if len(names) > 10 else ''}"
        )
    return directory
