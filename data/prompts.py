"""From questions to token ids: the chat template of the model, and where the parts of the prompt lie in the tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from transformers import PreTrainedTokenizerBase

from ngram_trie.drafter import Prompt


@dataclass(frozen=True)
class Question:
    """One entry of a data set. The user's message is `before + context + after`.

    Attributes:
        context: what was handed over to be read: the article, the passages.
        reference: an answer to compare with; may be empty.
        key_facts: texts that a right answer contains, all of them; may be empty.
        answers: short answers of which any one is right, for exact match and F1; may be empty.
        turn: how many turns went before; they are in `history`.
        history: the user's earlier messages, each with the answer that it got: the same for every method. None in an
            answer's place: what vanilla answers in this run.
        released_span: the part of the prompt that the paper's released code builds its trie from for this data set: its
            drafters find it as the span "released".
    """

    dataset: str
    question_id: str
    before: str
    context: str
    after: str
    reference: str = ""
    key_facts: tuple[str, ...] = field(default_factory=tuple)
    answers: tuple[str, ...] = ()
    turn: int = 0
    history: tuple[tuple[str, str | None], ...] = ()
    released_span: str = "user"

    @property
    def message(self) -> str:
        return self.before + self.context + self.after


def build_prompt(question: Question, tokenizer: PreTrainedTokenizerBase) -> Prompt:
    """The tokenised prompt of a question, through the tokenizer's own chat template.

    Raises:
        ValueError: the tokenizer has no chat template, doubles the BOS, or changes the message.
    """
    if not tokenizer.chat_template:
        raise ValueError(f"{tokenizer.name_or_path}: the tokenizer has no chat template; add one to its folder")
    messages = []
    for asked, answered in question.history:
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    messages.append({"role": "user", "content": question.message})
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    if question.message not in text:
        raise ValueError(f"{question.question_id}: the chat template changes the message; strip its outer white space")
    # The template writes the special tokens itself, so the tokenizer must not add them again.
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = np.array(encoded["input_ids"], np.int64)
    if len(ids) > 1 and ids[0] == ids[1] == tokenizer.bos_token_id:
        raise ValueError(f"{tokenizer.name_or_path}: the prompt begins with two BOS tokens")
    offsets = np.array(encoded["offset_mapping"])
    user = text.rindex(question.message)
    context = user + len(question.before)
    spans = {
        "user": token_span(offsets, user, user + len(question.message)),
        "context": token_span(offsets, context, context + len(question.context)),
    }
    return Prompt(ids, spans, question.dataset, question.question_id, question.turn)


def token_span(offsets: np.ndarray, start: int, end: int) -> tuple[int, int]:
    """The tokens [first, last) that overlap the characters [start, end).

    Args:
        offsets: (l, 2) character range of each token.
    """
    inside = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0)
