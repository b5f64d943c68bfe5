"""The model that a command runs, and the machine it runs on."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import kvpool
from kvpool.cli.blas import preloaded_openblas
from kvpool.cli.errors import CommandError, usage_error

if TYPE_CHECKING:
    import mlx.nn as nn

Weights = Literal["4bit", "dense"]


def require_mlx() -> None:
    """Make sure that MLX and mlx_lm can be imported.

    Raises
    ------
    CommandError
        If not; says what to install.
    """
    try:
        import mlx.core  # noqa: F401
        import mlx_lm  # noqa: F401
    except ImportError as error:
        raise CommandError(
            f"This command needs MLX and mlx-lm ({error}). Install them with: "
            "pip install 'kvpool[mlx]'"
        ) from error


def load_model(
    directory: Path | None, weights: Weights, say: Callable[[str], None]
) -> tuple[nn.Module, Any]:
    """Load the model of a directory, or SmolLM2-135M-Instruct.

    Raises
    ------
    CommandError
        If there is no model to load; says why, and what to install.
    """
    from kvpool import models

    try:
        return models.load(directory, weights=weights, progress=say)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise usage_error(f"{error}") from error
    except (models.ModelPackageError, models.ModelFormatError) as error:
        raise CommandError(f"{error}") from error
    except Exception as error:
        # mlx_lm and transformers refuse broken directories by exceptions of many kinds.
        what = "SmolLM2-135M-Instruct" if directory is None else f"the model in {directory}"
        raise CommandError(f"mlx_lm can't load {what}: {type(error).__name__}: {error}") from error


def require_poolable(model: nn.Module) -> None:
    """Make sure that kvpool has a cache for every layer of the model.

    Raises
    ------
    CommandError
        If not; names the kind of cache that is missing.
    """
    from kvpool.memory import BlockPoolAllocator
    from kvpool.mlx import build_pooled_caches

    try:
        build_pooled_caches(model, BlockPoolAllocator(), -1)
    except ValueError as error:
        raise CommandError(f"This model can't be run with pooled caches: {error}.") from error


def choose_weights(weights: str) -> tuple[Weights, str]:
    """Choose SmolLM2's weights by what a person waits least for, and say why.

    Parameters
    ----------
    weights : str
        ``"auto"``, ``"4bit"`` or ``"dense"``.
    """
    import mlx.core as mx

    if weights == "4bit":
        return "4bit", "4-bit weights, as asked for"
    if weights == "dense":
        return "dense", "dense float32 weights, as asked for"
    if mx.default_device().type == mx.DeviceType.gpu:
        return "4bit", "4-bit weights: less memory to read on a GPU"
    library = preloaded_openblas()
    if library is not None:
        return "dense", (
            f"dense float32 weights with {library} preloaded: on a CPU they read prompts ten times "
            "faster than 4-bit ones, which do without BLAS"
        )
    return "dense", (
        "dense float32 weights: on a CPU they are faster than 4-bit ones. OpenBLAS, which reads "
        "prompts ten times faster still, is not preloaded (Debian: apt-get install "
        "libopenblas0-pthread)"
    )


def n_caches(model: nn.Module) -> int:
    """Return the number of caches that the model wants, one a layer."""
    from mlx_lm.models.cache import make_prompt_cache

    return len(make_prompt_cache(model))


def describe_machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    import mlx.core as mx

    return {
        "kvpool": kvpool.__version__,
        "mlx": metadata.version("mlx"),
        "mlx_lm": metadata.version("mlx-lm"),
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "device": mx.default_device().type.name,
        "n_cpus": os.cpu_count(),
        "openblas": preloaded_openblas(),
    }


def place_text(machine: dict[str, Any]) -> str:
    """Return what figures were measured on, in a few words; `machine` as `describe_machine`."""
    blas = f" with {machine['openblas']}" if machine["openblas"] else ""
    return (
        f"mlx {machine['mlx']}, mlx_lm {machine['mlx_lm']}, on the {machine['device'].upper()}"
        f"{blas}, {machine['n_cpus']} cores"
    )
