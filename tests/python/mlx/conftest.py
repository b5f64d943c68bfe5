"""Tiny random models, a tokenizer for them, and pools whose books are checked at the end."""

from __future__ import annotations

import importlib

import mlx.core as mx
import pytest
from mlx.utils import tree_map
from mlx_lm.generate import generate_step
from mlx_lm.tokenizer_utils import TokenizerWrapper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from kvpool.memory import BlockPoolAllocator, PoolConfig

VOCABULARY = 97

_COMMON = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
}

_MODELS = {
    "llama": {**_COMMON, "num_hidden_layers": 3, "head_dim": 32, "rope_theta": 10000.0},
    "gemma3_text": {
        **_COMMON,
        "num_hidden_layers": 4,
        "head_dim": 8,
        "sliding_window": 24,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 8,
    },
    "mamba": {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "state_size": 8,
        "num_hidden_layers": 2,
        "conv_kernel": 4,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_rank": 4,
    },
    "jamba": {
        **_COMMON,
        "num_hidden_layers": 4,
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "expert_layer_offset": 1,
        "expert_layer_period": 2,
        "mamba_d_conv": 4,
        "mamba_d_state": 8,
        "mamba_expand": 2,
        "num_experts": 1,
        "num_experts_per_tok": 1,
    },
    "falcon_h1": {
        **_COMMON,
        "num_hidden_layers": 2,
        "head_dim": 8,
        "mamba_d_conv": 4,
        "mamba_d_head": 16,
        "mamba_d_ssm": 32,
        "mamba_d_state": 8,
        "mamba_n_heads": 2,
        "tie_word_embeddings": True,
    },
    "llama4": {
        "text_config": {
            **_COMMON,
            "model_type": "llama4_text",
            "num_hidden_layers": 4,
            "head_dim": 8,
            "attention_bias": False,
            "attention_chunk_size": 24,
            "interleave_moe_layer_step": 5,
            "intermediate_size_mlp": 64,
            "num_experts_per_tok": 1,
            "num_local_experts": 2,
            "rope_scaling": None,
            "rope_theta": 10000.0,
            "use_qk_norm": True,
        }
    },
}


@pytest.fixture(scope="session")
def make_model():
    """Return a function that makes a small random model of mlx_lm's, by name, always the same."""
    made = {}

    def make(name):
        if name not in made:
            module = importlib.import_module(f"mlx_lm.models.{name}")
            args = module.ModelArgs.from_dict({"model_type": name, **_MODELS[name]})
            mx.random.seed(0)
            model = module.Model(args)
            # Weights large enough for logits that differ clearly.
            model.update(tree_map(lambda w: w * 3 if w.ndim == 2 else w, model.parameters()))
            mx.eval(model.parameters())
            made[name] = model
        return made[name]

    return make


@pytest.fixture
def model(make_model):
    """A small Llama."""
    return make_model("llama")


@pytest.fixture(scope="session")
def tokenizer():
    """A tokenizer of words "0", "1", … that stand for their numbers, without an end of text."""
    words = Tokenizer(WordLevel({str(i): i for i in range(VOCABULARY)}, unk_token="0"))
    words.pre_tokenizer = WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=words)
    return TokenizerWrapper(fast, eos_token_ids=[VOCABULARY + 1])


@pytest.fixture(scope="session")
def make_prompt():
    """Return a function that gives a prompt of `n` tokens, the same for the same seed."""

    def make(n, seed=0):
        return [(7 * i + 13 * seed + i * i * (seed + 1)) % VOCABULARY for i in range(1, n + 1)]

    return make


@pytest.fixture(scope="session")
def tokens_of():
    """Return a function that generates greedily from a prompt; mlx_lm's own caches by default."""

    def generate(model, prompt, n, cache=None, **kwargs):
        steps = generate_step(mx.array(prompt), model, max_tokens=n, prompt_cache=cache, **kwargs)
        return [token if isinstance(token, int) else token.item() for token, _ in steps]

    return generate


@pytest.fixture
def make_pool():
    """Return a function that makes pools, in the end of which every block is accounted for."""
    pools = []

    def make(n_blocks=8192, block_size=16, **config):
        pools.append(BlockPoolAllocator(PoolConfig(block_size, n_blocks, **config)))
        return pools[-1]

    yield make
    for pool in pools:
        pool.check_invariants()
        books = pool.counts()
        assert books.free + books.live + books.reserved + books.cached == books.managed


@pytest.fixture
def pool(make_pool):
    """A pool that is large enough for any test."""
    return make_pool()


@pytest.fixture
def used():
    """Return a function that gives what is not free of a pool: (live, reserved)."""

    def count(pool):
        books = pool.counts()
        return books.live, books.reserved

    return count


@pytest.fixture
def kv():
    """Return a function that makes random keys and values for `n` tokens."""

    def make(n, n_rows=1, n_heads=2, head_dim=32, v_dim=None, dtype=mx.float32):
        keys = mx.random.normal((n_rows, n_heads, n, head_dim)).astype(dtype)
        values = mx.random.normal((n_rows, n_heads, n, v_dim or head_dim)).astype(dtype)
        return keys, values

    return make
