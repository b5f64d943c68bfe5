"""A model directory that mlx_lm loads, small enough to be made for the tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CHAT_TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
N_LAYERS = 2


def write_tokenizer(folder: Path) -> int:
    """Write a tokenizer that has one token a byte; returns the size of its vocabulary."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|start|>", "<|end|>", "<unk>"]
    vocabulary = {token: index for index, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|start|>",
        "eos_token": "<|end|>",
        "unk_token": "<unk>",
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return len(vocabulary)


def write_model(folder: Path, vocabulary: int) -> None:
    """Write a Llama model with random weights."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.models import llama

    config = {
        "model_type": "llama",
        "hidden_size": 32,
        "num_hidden_layers": N_LAYERS,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
        "eos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    mx.random.seed(3)
    model = llama.Model(llama.ModelArgs.from_dict(config))
    # Larger than a new model's weights, so that the next token depends on all before.
    weights = {name: 4 * array for name, array in tree_flatten(model.parameters())}
    mx.save_safetensors(str(folder / "model.safetensors"), weights)


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    folder.mkdir()
    write_model(folder, write_tokenizer(folder))
    return folder


@pytest.fixture(scope="session")
def recurrent_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Mamba model: its caches are of one size whatever the prompt."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.models import mamba

    folder = tmp_path_factory.mktemp("models") / "tiny-mamba"
    folder.mkdir()
    config = {
        "model_type": "mamba",
        "vocab_size": write_tokenizer(folder),
        "hidden_size": 32,
        "intermediate_size": 64,
        "state_size": 8,
        "num_hidden_layers": N_LAYERS,
        "conv_kernel": 4,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_rank": 4,
        "eos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    mx.random.seed(3)
    model = mamba.Model(mamba.ModelArgs.from_dict(config))
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    return folder
