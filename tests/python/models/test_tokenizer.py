"""The tokenizer rebuilt from the metadata, and loaded again through mlx_lm."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpool.models import ModelFormatError
from kvpool.models.directory import Weights
from kvpool.models.gguf import LlamaSizes, Metadata
from kvpool.models.tokenizer import TokenIds, build_tokenizer, read_tokenizer

# Ids that llama.cpp (PyPI package xllamacpp) gives for the same GGUF file.
GOLDEN: dict[str, list[int]] = json.loads(
    Path(__file__).with_name("golden_tokens.json").read_text("utf-8")
)
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<repo_name>",
    "<reponame>",
    "<file_sep>",
    "<filename>",
    "<gh_stars>",
    "<issue_start>",
    "<issue_comment>",
    "<issue_closed>",
    "<jupyter_start>",
    "<jupyter_text>",
    "<jupyter_code>",
    "<jupyter_output>",
    "<jupyter_script>",
    "<empty_output>",
]
# The vocabulary has no token for the bytes of these, nor for the first byte of U+40000 to U+BFFFF.
WITHOUT_TOKENS = "\x04\x06\x13\x14\x16\x1d"
SYSTEM = (
    "<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
)


@pytest.fixture(scope="module")
def tokenizer(converted: Callable[[Weights], Path]) -> Any:
    """The tokenizer as ``mlx_lm.load`` gives it, without the model."""
    from mlx_lm import utils

    load_tokenizer: Any = utils.load_tokenizer
    return load_tokenizer(converted("4bit"))


@pytest.mark.parametrize("text", GOLDEN)
def test_ids_equal_those_of_llama_cpp(tokenizer: Any, text: str) -> None:
    assert tokenizer.encode(text) == GOLDEN[text]


@pytest.mark.parametrize("text", GOLDEN)
def test_known_text_survives_a_round_trip(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(GOLDEN[text]) == text


def test_any_text_survives_a_round_trip(tokenizer: Any) -> None:
    characters = st.characters(
        codec="utf-8", max_codepoint=0x3FFFF, exclude_characters=WITHOUT_TOKENS
    )

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(st.text(characters, max_size=40))
    def survives(text: str) -> None:
        assert tokenizer.decode(tokenizer.encode(text)) == text

    survives()


@pytest.mark.parametrize("character", WITHOUT_TOKENS)
def test_characters_that_the_vocabulary_lacks_are_dropped(tokenizer: Any, character: str) -> None:
    assert tokenizer.encode(f"a{character}b") == [81, 82]  # as in llama.cpp


@pytest.mark.parametrize("digits", ["7", "42", "1999", "x86", "3.14", "٣٤"])
def test_each_digit_is_cut_off_alone(tokenizer: Any, digits: str) -> None:
    ids = tokenizer.encode(digits)
    by_characters = [tokenizer.encode(character) for character in digits]
    assert ids == [token for tokens in by_characters for token in tokens]


def test_special_tokens_have_the_first_ids_and_are_skipped_on_request(tokenizer: Any) -> None:
    assert tokenizer.convert_ids_to_tokens(list(range(len(SPECIAL)))) == SPECIAL
    for token_id, token in enumerate(SPECIAL):
        assert tokenizer.encode(f"a{token}b") == [81, token_id, 82]
        assert tokenizer.decode([81, token_id, 82], skip_special_tokens=True) == "ab"


def test_generation_tokens_are_those_of_the_metadata(tokenizer: Any) -> None:
    assert (tokenizer.bos_token_id, tokenizer.bos_token) == (1, "<|im_start|>")
    assert (tokenizer.eos_token_id, tokenizer.eos_token) == (2, "<|im_end|>")
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (2, 0)
    assert tokenizer.eos_token_ids == {2}
    assert tokenizer.clean_up_tokenization_spaces is False
    assert (len(tokenizer.get_vocab()), tokenizer.model_max_length) == (49152, 8192)


def test_chat_template_puts_the_default_system_prompt_first(tokenizer: Any) -> None:
    messages = [{"role": "user", "content": "What is 2+2?"}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    question = "<|im_start|>user\nWhat is 2+2?<|im_end|>\n"
    assert text == f"{SYSTEM}{question}<|im_start|>assistant\n"
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    assert ids == tokenizer.encode(text)


def test_chat_template_keeps_a_given_system_prompt(tokenizer: Any) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    assert text == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"


def test_text_streams_out_whole_characters(tokenizer: Any) -> None:
    text = "naïve 日本語 🎉 in 2024"
    detokenizer = tokenizer.detokenizer
    pieces = []
    for token in tokenizer.encode(text):
        detokenizer.add_token(token)
        pieces.append(detokenizer.last_segment)
    detokenizer.finalize()
    pieces.append(detokenizer.last_segment)
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


# A vocabulary small enough to reason about: "ab" merges before "bc" can.
TOKENS = ["<end>", "a", "b", "c", "ab", "bc", "1", "Ġ"]
SIZES = LlamaSizes(1, 1, 1, 32, 32, 32, len(TOKENS), 128, 1e4, 1e-5)


@pytest.fixture
def values(mx: Any) -> dict[str, Any]:
    names = ("bos", "eos", "padding", "unknown")
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.add_bos_token": mx.array(False),
        "tokenizer.ggml.add_space_prefix": mx.array(False),
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": mx.array([3, 1, 1, 1, 1, 1, 1, 1]),
        "tokenizer.ggml.merges": ["a b", "b c"],
        "tokenizer.chat_template": "{{ messages }}",
        **{f"tokenizer.ggml.{name}_token_id": mx.array(0, mx.uint32) for name in names},
    }


def test_parts_are_read_and_merges_go_by_rank(values: dict[str, Any]) -> None:
    pytest.importorskip("tokenizers")
    parts = read_tokenizer(Metadata(values), SIZES)
    assert parts.special == ["<end>"]
    assert parts.ids == TokenIds(0, 0, 0, 0)
    tokenizer = build_tokenizer(parts)
    assert tokenizer.encode("abc bc1<end>11").tokens == [
        "ab", "c", "Ġ", "bc", "1", "<end>", "1", "1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", "llama", "must be 'gpt2', found 'llama'"),
        ("pre", "qwen2", "must be 'smollm', found 'qwen2'"),
        ("add_bos_token", True, "must be False, found True"),
        ("add_space_prefix", True, "must be False, found True"),
        ("tokens", TOKENS[:-1], "must have 8 different tokens with a type each, found 7 tokens"),
        ("tokens", [*TOKENS[:-1], "a"], "found 8 tokens (7 different) and 8 types"),
        ("token_type", [3, 1], "found 8 tokens (8 different) and 2 types"),
        ("token_type", [3, 1, 6, 1, 1, 1, 4, 1], "found [1, 3, 4, 6]"),
        ("merges", ["a b", "a c"], "that make a third; found 'a c'"),
        ("merges", ["ab"], "that make a third; found 'ab'"),
        ("eos_token_id", 8, "must be the id of one of 8 tokens, found 8"),
        ("eos_token_id", -1, "must be the id of one of 8 tokens, found -1"),
        ("padding_token_id", 0.5, "must be the id of one of 8 tokens, found 0.5"),
    ],
)
def test_tokenizer_of_another_kind_is_shown(
    mx: Any, values: dict[str, Any], key: str, value: Any, message: str
) -> None:
    texts = isinstance(value, str) or (isinstance(value, list) and isinstance(value[0], str))
    values[f"tokenizer.ggml.{key}"] = value if texts else mx.array(value)
    with pytest.raises(ModelFormatError, match=re.escape(message)):
        read_tokenizer(Metadata(values), SIZES)


def test_missing_chat_template_is_an_error(values: dict[str, Any]) -> None:
    del values["tokenizer.chat_template"]
    with pytest.raises(ModelFormatError, match=r"chat_template' must be a string, found none"):
        read_tokenizer(Metadata(values), SIZES)
