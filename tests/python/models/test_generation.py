"""The converted model computes what the GGUF file's model computes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest

PROMPT = [504, 3575, 282, 4649, 314]  # "The capital of France is"
PARIS = 7042  # " Paris"

# First tokens of the greedy answer to this prompt by llama.cpp (PyPI package xllamacpp) from
# the same GGUF file; it rounds activations to 8 bits, so later tokens may part.
QUESTION = "<|im_start|>user\nTell me about the sea.<|im_end|>\n<|im_start|>assistant\n"
ANSWER = [504, 3426, 2026, 357, 506, 253, 4749, 284, 11965, 7815, 28]


class Logits(NamedTuple):
    """Logits of both variants for `PROMPT`, shape (5, 49152)."""

    four_bit: Any
    dense: Any


@pytest.fixture(scope="module")
def logits(mx: Any, four_bit: Any, dense: Any) -> Logits:
    tokens = mx.array([PROMPT])
    return Logits(four_bit.model(tokens)[0], dense.model(tokens)[0])


@pytest.mark.parametrize("variant", Logits._fields)
def test_capital_of_france_is_paris(mx: Any, logits: Logits, variant: str) -> None:
    probabilities = mx.softmax(getattr(logits, variant)[-1])
    assert probabilities.argmax().item() == PARIS
    # 0.7719 in llama.cpp, which rounds activations to 8 bits.
    assert 0.75 < probabilities[PARIS].item() < 0.80


def test_packed_and_dense_weights_give_the_same_logits(mx: Any, logits: Logits) -> None:
    # Both compute the same sums in float32, maybe in another order. The roundings of a sum of n
    # terms are n independent errors of at most u = 2^-24 each, which grow like sqrt(n) u; here n
    # is at most 1,536. 30 layers add two such sums each to the residual stream and the last
    # projection makes one more, independent of each other as well. Factor 3 for the tail.
    n_sums, longest, unit = 2 * 30 + 1, 1536, 2.0**-24
    scale = mx.abs(logits.dense).max().item()
    bound = 3 * math.sqrt(n_sums * longest) * unit * scale
    assert mx.abs(logits.four_bit - logits.dense).max().item() <= bound


@pytest.mark.parametrize("variant", ["four_bit", "dense"])
def test_activations_and_cache_are_float32(
    mx: Any, variant: str, request: pytest.FixtureRequest
) -> None:
    from mlx_lm.models.cache import make_prompt_cache

    model = request.getfixturevalue(variant).model
    cache = make_prompt_cache(model)
    assert model.model.embed_tokens(mx.array([[1]])).dtype == mx.float32
    assert model(mx.array([[1]]), cache=cache).dtype == mx.float32
    assert {entry.keys.dtype for entry in cache} == {mx.float32}
    assert {entry.values.dtype for entry in cache} == {mx.float32}


def test_greedy_answer_starts_like_that_of_llama_cpp(four_bit: Any) -> None:
    import mlx_lm

    model, tokenizer = four_bit
    responses = mlx_lm.stream_generate(
        model, tokenizer, tokenizer.encode(QUESTION), max_tokens=len(ANSWER)
    )
    assert [response.token for response in responses] == ANSWER
