"""Rebuild the tokenizer from a GGUF file's metadata.

A byte-level BPE: text is cut into single digits, the rest by GPT-2's pattern, each piece's
bytes are written as printable characters and merged by rank. This is what the pre-tokenizer
name "smollm" stands for.

SmolLM2's vocabulary lacks a few bytes: six control characters, and the first byte of U+40000 to
U+BFFFF (planes without characters). They vanish in encoding; all other text survives a round trip.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvpool.models.errors import ModelFormatError
from kvpool.models.gguf import LlamaSizes, Metadata

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Token types of GGUF that occur in such a vocabulary.
_NORMAL, _SPECIAL = 1, 3


class TokenIds(NamedTuple):
    """Ids of the special tokens that generation refers to."""

    bos: int
    eos: int
    padding: int
    unknown: int


class TokenizerParts(NamedTuple):
    """What the metadata says about the tokenizer."""

    tokens: list[str]
    merges: list[tuple[str, str]]
    special: list[str]
    ids: TokenIds
    chat_template: str


def read_tokenizer(metadata: Metadata, sizes: LlamaSizes) -> TokenizerParts:
    """Take the tokenizer from the metadata.

    Parameters
    ----------
    metadata
        Metadata of the GGUF file.
    sizes
        The model's sizes; the vocabulary must have `sizes.vocab_size` tokens.

    Returns
    -------
    TokenizerParts
        Tokens by id, merges by rank, the special tokens in order of their ids, the ids that
        generation needs, and the chat template (Jinja).

    Raises
    ------
    ModelFormatError
        Another kind of tokenizer, or parts that do not fit together.
    """
    metadata.require("tokenizer.ggml.model", "gpt2")
    metadata.require("tokenizer.ggml.pre", "smollm")
    metadata.require("tokenizer.ggml.add_bos_token", False)
    metadata.require("tokenizer.ggml.add_space_prefix", False)
    tokens = metadata.texts("tokenizer.ggml.tokens")
    types = metadata.integers("tokenizer.ggml.token_type")
    n_different = len(set(tokens))
    if not len(tokens) == n_different == len(types) == sizes.vocab_size:
        raise ModelFormatError(
            f"the vocabulary must have {sizes.vocab_size} different tokens with a type each, "
            f"found {len(tokens)} tokens ({n_different} different) and {len(types)} types"
        )
    if not set(types) <= {_NORMAL, _SPECIAL}:
        raise ModelFormatError(
            f"token types must be {_NORMAL} (normal) or {_SPECIAL} (special), "
            f"found {sorted(set(types))}"
        )
    return TokenizerParts(
        tokens=tokens,
        merges=_read_merges(metadata.texts("tokenizer.ggml.merges"), set(tokens)),
        special=[token for token, kind in zip(tokens, types, strict=True) if kind == _SPECIAL],
        ids=TokenIds(
            bos=_token_id(metadata, "bos", len(tokens)),
            eos=_token_id(metadata, "eos", len(tokens)),
            padding=_token_id(metadata, "padding", len(tokens)),
            unknown=_token_id(metadata, "unknown", len(tokens)),
        ),
        chat_template=metadata.text("tokenizer.chat_template"),
    )


def build_tokenizer(parts: TokenizerParts) -> Tokenizer:
    """Build the tokenizer that the parts describe."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {token: token_id for token_id, token in enumerate(parts.tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=parts.merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in parts.special]
    )
    return tokenizer


def save_tokenizer(folder: Path, parts: TokenizerParts, sizes: LlamaSizes) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``.

    Parameters
    ----------
    folder
        An existing directory.
    parts
        The tokenizer.
    sizes
        The model's sizes, for the longest input.
    """
    build_tokenizer(parts).save(str(folder / "tokenizer.json"))
    tokens, ids = parts.tokens, parts.ids
    # The generic class keeps the pre-tokenizer of tokenizer.json; GPT2Tokenizer would put
    # its own, without the digits, in its place.
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[ids.bos],
        "eos_token": tokens[ids.eos],
        "pad_token": tokens[ids.padding],
        "unk_token": tokens[ids.unknown],
        "chat_template": parts.chat_template,
        "clean_up_tokenization_spaces": False,
        "model_max_length": sizes.context_length,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", "utf-8")


def _read_merges(lines: list[str], tokens: set[str]) -> list[tuple[str, str]]:
    merges = []
    for line in lines:
        left, _, right = line.partition(" ")
        if not {left, right, left + right} <= tokens:
            raise ModelFormatError(
                f"a merge must be two tokens, separated by a space, that make a third; "
                f"found {line!r}"
            )
        merges.append((left, right))
    return merges


def _token_id(metadata: Metadata, role: str, n_tokens: int) -> int:
    key = f"tokenizer.ggml.{role}_token_id"
    value = metadata.number(key)
    if not (isinstance(value, int) and 0 <= value < n_tokens):
        raise ModelFormatError(
            f"GGUF metadata {key!r} must be the id of one of {n_tokens} tokens, found {value}"
        )
    return value
