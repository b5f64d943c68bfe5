"""What the demo asks: questions behind one system prompt, and a text too long for the pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SYSTEM_PROMPT = (
    "You are a patient teacher. Explain things in plain English to somebody who is curious but "
    "new to the subject. Answer in two or three complete sentences, without lists. If you do not "
    "know the answer, say that you do not know it."
)

LONG_QUESTION = (
    "Here is a text. A lighthouse stands on the northern cape of the island. It was built in 1871 "
    "from grey stone, after three ships had run aground in one winter. For eighty years a keeper "
    "lived in it with his family, kept the lamp filled with oil, and wound up the clockwork that "
    "turned the lens. Since 1952 the lamp has been electric, and today a computer on the mainland "
    "watches over it. The tower is open to visitors in summer; from the gallery one sees the whole "
    "coast and, on clear days, the mountains of the neighbouring island, forty miles away. In "
    "winter the path up to it is closed, since waves may wash over the rocks, and only the gulls "
    "are left there. Who lived in the lighthouse, and what did he do there?"
)
"""With the default model its prompt ends shortly before 256 tokens, the step in which caches grow,
so that its caches grow while it is being answered."""

QUESTIONS = (
    "Why is the sky blue on a clear day?",
    LONG_QUESTION,
    "How do bees make honey?",
    "What is the capital of France, and what is it known for?",
    "Why does the Moon seem to change its shape?",
    "What does a baker need yeast for?",
    "What happens when water boils?",
    "Why do leaves turn yellow in autumn?",
)


@dataclass(frozen=True)
class Request:
    """One request of the demo.

    Attributes
    ----------
    name : str
        Its owner in the pool.
    question : str
        What is asked.
    prompt : tuple of int
        Token ids of the whole prompt.
    """

    name: str
    question: str
    prompt: tuple[int, ...]


def make_requests(tokenizer: Any, n_requests: int) -> list[Request]:
    """Return requests that share the system prompt; questions come again after the last.

    Parameters
    ----------
    tokenizer : mlx_lm TokenizerWrapper
        The model's tokenizer.
    n_requests : int
        How many.
    """
    requests = []
    for index in range(n_requests):
        question = QUESTIONS[index % len(QUESTIONS)]
        prompt = encode_prompt(tokenizer, question)
        requests.append(Request(f"request {index + 1}", question, tuple(prompt)))
    return requests


def make_oversized_request(tokenizer: Any, n_tokens: int) -> Request:
    """Return a request whose prompt has at least `n_tokens` tokens."""
    n_times = -(-n_tokens // len(tokenizer.encode(LONG_QUESTION)))
    prompt = encode_prompt(tokenizer, " ".join([LONG_QUESTION] * n_times))
    # Joining may merge tokens at the seams; the prompt is never computed, only its length counts.
    while len(prompt) < n_tokens:
        prompt = prompt + prompt[-(n_tokens - len(prompt)) :]
    return Request("oversized request", f"a text of {len(prompt):,} tokens", tuple(prompt))


def encode_prompt(tokenizer: Any, question: str) -> list[int]:
    """Return the token ids of the system prompt and a question, by the model's chat template.

    A template without a place for a system prompt gets it in front of the question, a model
    without a template gets plain text.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        text = f"{SYSTEM_PROMPT}\n\nQuestion: {question}\nAnswer:"
        return list(tokenizer.encode(text))
    from jinja2.exceptions import TemplateError

    system = {"role": "system", "content": SYSTEM_PROMPT}
    try:
        return _apply(tokenizer, [system, {"role": "user", "content": question}])
    except TemplateError:
        joined = f"{SYSTEM_PROMPT}\n\n{question}"
        return _apply(tokenizer, [{"role": "user", "content": joined}])


def _apply(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True))
