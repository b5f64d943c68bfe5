"""The real conversion: what it writes, that it happens once, and what interrupts it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvpool import models
from kvpool.models import directory
from kvpool.models.cached_directory import MANIFEST, is_intact
from kvpool.models.directory import Weights
from kvpool.models.locate import ModelSource

CONVERT = """
import sys
from kvpool import models
sys.stdin.readline()
print(models.smollm2_directory(cache_dir=sys.argv[1]))
"""
FILES = {
    MANIFEST,
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rms_norm_eps": pytest.approx(1e-5, rel=1e-7),
    "rope_theta": 100000.0,
    "vocab_size": 49152,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
QUANTIZATION = {
    "group_size": 32,
    "bits": 4,
    "model.embed_tokens": {"group_size": 32, "bits": 8},
}


def read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]}


def test_four_bit_directory_is_described_in_full(converted: Callable[[Weights], Path]) -> None:
    folder = converted("4bit")
    assert {path.name for path in folder.iterdir()} == FILES
    assert read_json(folder / "config.json") == {**CONFIG, "quantization": QUANTIZATION}
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    assert read_json(folder / "generation_config.json") == ids


def test_dense_directory_has_no_quantization(converted: Callable[[Weights], Path]) -> None:
    folder = converted("dense")
    assert {path.name for path in folder.iterdir()} == FILES
    assert read_json(folder / "config.json") == CONFIG


def test_directories_are_named_by_variant_and_version(
    smollm2: ModelSource, converted: Callable[[Weights], Path]
) -> None:
    variants: tuple[Weights, Weights] = ("4bit", "dense")
    for weights in variants:
        folder = converted(weights)
        assert folder.name.startswith(f"smollm2-135m-instruct-{weights}-{smollm2.version}-")
        assert folder.parent.parts[-2:] == ("kvpool", "models")


def test_another_gguf_or_conversion_gets_another_directory(
    smollm2: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = []
    monkeypatch.setattr(
        directory, "ensure_directory", lambda target, fill, progress: targets.append(target)
    )
    models.smollm2_directory(cache_dir=tmp_path)
    changed = smollm2._replace(sha256="0" * 64)
    monkeypatch.setattr(directory, "find_smollm2", lambda: changed)
    models.smollm2_directory(cache_dir=tmp_path)
    monkeypatch.setattr(directory, "_CONVERSION", directory._CONVERSION + 1)
    models.smollm2_directory(cache_dir=tmp_path)
    assert len(set(targets)) == 3


def test_second_call_writes_nothing_and_says_nothing(
    converted: Callable[[Weights], Path],
) -> None:
    folder = converted("4bit")
    cache = folder.parents[2]
    before = times(folder)
    messages: list[str] = []
    again = models.smollm2_directory(weights="4bit", cache_dir=cache, progress=messages.append)
    assert again == folder
    assert times(folder) == before
    assert messages == []


def test_own_variable_names_the_cache_folder(
    converted: Callable[[Weights], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = converted("4bit")
    monkeypatch.setenv("KVPOOL_CACHE_DIR", str(folder.parents[2]))
    assert models.smollm2_directory(weights="4bit") == folder


def test_interrupted_conversion_leaves_nothing_and_damage_is_repaired(
    smollm2: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    messages: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr("kvpool.models.tokenizer.save_tokenizer", interrupt)
        with pytest.raises(KeyboardInterrupt):
            models.smollm2_directory(cache_dir=tmp_path, progress=messages.append)
    assert messages[-1] == "writing the tokenizer"
    parent = tmp_path / "kvpool" / "models"
    assert [path.suffix for path in parent.iterdir()] == [".lock"]

    folder = models.smollm2_directory(cache_dir=tmp_path)
    assert is_intact(folder)
    weights = folder / "model.safetensors"
    n_bytes = weights.stat().st_size
    with weights.open("r+b") as file:
        file.truncate(n_bytes // 2)
    assert models.smollm2_directory(cache_dir=tmp_path) == folder
    assert weights.stat().st_size == n_bytes


def test_two_processes_get_the_same_directory(smollm2: ModelSource, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CONVERT, str(tmp_path)]
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as first,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as second,
    ):
        for process in (first, second):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        outputs = [process.communicate()[0].strip() for process in (first, second)]
        assert (first.returncode, second.returncode) == (0, 0)
    assert outputs[0] == outputs[1]
    assert is_intact(Path(outputs[0]))


def test_damaged_package_is_found_before_anything_is_written(
    smollm2: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = smollm2._replace(sha256="0" * 64)
    monkeypatch.setattr(directory, "find_smollm2", lambda: damaged)
    with pytest.raises(models.ModelPackageError, match="is damaged: the SHA-256 digest"):
        models.smollm2_directory(cache_dir=tmp_path)
    assert [path.suffix for path in (tmp_path / "kvpool" / "models").iterdir()] == [".lock"]


def test_full_disk_is_an_error_that_names_the_variable(
    mx: Any, smollm2: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("[write] Unable to write 1024 bytes to file.")

    monkeypatch.setattr(mx, "save_safetensors", refuse)
    with pytest.raises(OSError, match=r"Unable to write 1024 bytes.*KVPOOL_CACHE_DIR"):
        models.smollm2_directory(cache_dir=tmp_path)


@pytest.mark.parametrize("weights", ["8bit", "", None, 4])
def test_unknown_weights_are_shown_with_what_is_allowed(weights: Any) -> None:
    with pytest.raises(ValueError, match=rf"'4bit', 'dense'\), got {weights!r}"):
        models.smollm2_directory(weights=weights)
