"""From questions to token ids: the chat template of the model, and where the parts of the prompt lie in the tokens.

A template is the tokenizer's own, or one of data/templates, for models that were published without: FastChat's for
Vicuna and Llama-2 (`set_template`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from transformers import PreTrainedTokenizerBase

from ngram_trie.methods import choices, settings_of
from ngram_trie.prompt import LaterTurn, Prompt
from ngram_trie.targets.chat import render
from ngram_trie.targets.load import load_tokenizer
from ngram_trie.tree import IntArray

TEMPLATES = Path(__file__).parent / "templates"
#: Stands where a message would, to find its place.
MARK = "\ue000message\ue001"
#: For chat templates that take no tools: stands in the system message, before the functions, a line each.
CALLING = """\
You can call the functions below. Answer with the calls that the request needs and with nothing else, a line each: \
{"name": "FUNCTION", "parameters": {"NAME": VALUE}}

"""


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
        released_texts: where that code takes several texts, and tokenises each on its own, these texts.
        noise: unrelated text that tries read behind their context and the model never sees (Table 4, as released).
        system: the system message, if the question brings its own.
        tools: functions that the answer may call, each {"type": "function", "function": {...}} with a JSON schema of
            its parameters, as chat templates take them; a template that takes none has them in the system message.
        noise_kind: as in `Prompt`.
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
    released_texts: tuple[str, ...] = ()
    noise: str = ""
    system: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()
    noise_kind: str = ""

    @property
    def message(self) -> str:
        return self.before + self.context + self.after


def model_tokenizer(model: Any) -> PreTrainedTokenizerBase:
    """The tokenizer of a model's settings (a file of configs/model), with its chat template.

    Raises:
        FileNotFoundError: nothing to load, or no such template.
    """
    tokenizer = load_tokenizer(model.path, model.revision, **model.tokenizer)
    set_template(tokenizer, model.chat_template)
    return tokenizer


def named_tokenizer(name: str, copy: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer of a name in configs/model, a folder or a hub id.

    Args:
        copy: a folder with a copy of the named model's files, to be read in place of the hub's.

    Raises:
        FileNotFoundError: nothing to load.
    """
    if name not in (known := choices()["model"]):
        return load_tokenizer(copy or name)
    changes = {"path": copy, "revision": None} if copy else {}
    return model_tokenizer(OmegaConf.merge(settings_of(known[name]), changes))


def set_template(tokenizer: PreTrainedTokenizerBase, template: str | None) -> None:
    """Give the tokenizer the chat template that `template` names: one of data/templates, or a file; None keeps its own.

    Raises:
        FileNotFoundError: there is no such template.
    """
    if template is None:
        return
    known = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))
    path = TEMPLATES / f"{template}.jinja" if template in known else Path(template)
    if not path.is_file():
        raise FileNotFoundError(f"model.chat_template={template}: one of {', '.join(known)}, or a Jinja file")
    try:
        tokenizer.chat_template = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"model.chat_template={template}: no text in UTF-8: {error}") from None


def build_prompt(
    question: Question, tokenizer: PreTrainedTokenizerBase, max_tokens: int | None = None, truncation: str = "fail"
) -> Prompt:
    """The tokenised prompt of a question, through the tokenizer's chat template.

    Spans: "user", the user's message; "context", in it what was handed over to be read; "question", what is asked about
    that; "system", what the template says before the user's first message; "released", see `Question.released_span`.
    A part that is empty has no span.

    Args:
        max_tokens: most tokens that the prompt may have; None for any number.
        truncation: what is cut from a longer one: "fail", nothing (it becomes a failure record); its context's "end" or
            "middle". A prompt whose other parts are too long stays too long.

    Raises:
        ValueError: the tokenizer has no chat template, doubles the BOS, or changes the message.
    """
    prompt = _build(question, tokenizer)
    if truncation == "fail" or max_tokens is None:
        return prompt
    whole, spans = len(prompt.ids), prompt.spans
    # The cut text may be tokenised otherwise at the seam, so a second look is taken.
    while len(prompt.ids) > max_tokens and "context" in prompt.spans:
        question = _cut(question, tokenizer, len(prompt.ids) - max_tokens, truncation)
        prompt = _build(question, tokenizer)
    return replace(prompt, num_cut=whole - len(prompt.ids) if "context" in spans else 0)


def _cut(question: Question, tokenizer: PreTrainedTokenizerBase, excess: int, where: str) -> Question:
    """The question with `excess` tokens of its context gone, or with none of it left."""
    offsets = tokenizer(question.context, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    kept = max(0, len(offsets) - excess)
    head = kept if where == "end" else (kept + 1) // 2
    tail = kept - head
    # several tokens may stand for one character, which is kept or cut whole
    start = min(offsets[head - 1][1], offsets[head][0]) if head else 0
    end = max(offsets[-tail][0], offsets[-tail - 1][1]) if tail else len(question.context)
    # What no prompt holds, no trie reads: the span of what is left takes the place of the separate texts.
    return replace(question, context=question.context[:start] + question.context[end:], released_texts=())


def _build(question: Question, tokenizer: PreTrainedTokenizerBase) -> Prompt:
    if not tokenizer.chat_template:
        raise ValueError(
            f"{tokenizer.name_or_path}: the tokenizer has no chat template; name one: model.chat_template=vicuna_v1.1"
        )
    if question.tools and "tools" not in str(tokenizer.chat_template):
        described = CALLING + "\n".join(json.dumps(tool["function"]) for tool in question.tools)
        question = replace(question, system="\n\n".join(filter(None, (described, question.system))), tools=())
    tools = list(question.tools) or None
    messages: list[dict[str, str | None]] = [{"role": "system", "content": question.system}] if question.system else []
    for asked, answered in question.history:
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    messages.append({"role": "user", "content": question.message})
    text = render(tokenizer, messages, tools=tools, tokenize=False, add_generation_prompt=True)
    user, end = _place(text, messages, len(messages) - 1, tokenizer, tools)
    if text[user:end] == question.message.rstrip():  # many templates strip a message's end
        question = replace(question, after=question.after.rstrip())
    if text[user:end] != question.message:
        raise ValueError(f"{question.question_id}: the chat template changes the message; strip its outer white space")
    # The template writes the special tokens itself, so the tokenizer must not add them again.
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = np.array(encoded["input_ids"], np.int64)
    if len(ids) > 1 and ids[0] == ids[1] == tokenizer.bos_token_id:
        raise ValueError(f"{tokenizer.name_or_path}: the prompt begins with two BOS tokens")
    offsets = np.array(encoded["offset_mapping"])
    context = user + len(question.before)
    rest = context + len(question.context)
    first = _place(text, messages, 1 if question.system else 0, tokenizer, tools)[0]
    bos = tokenizer.bos_token or ""
    parts = {
        # without the space before the message, which its first token holds
        "system": (len(bos) if text.startswith(bos) else 0, len(text[:first].rstrip())),
        "user": (user, user + len(question.message)),
        "context": (context, rest),
        # what is asked stands before the context or behind it, and is the longer of the two
        "question": (user, context)
        if len(question.before.strip()) > len(question.after.strip())
        else (rest, rest + len(question.after)),
    }
    spans = {name: token_span(offsets, start, end) for name, (start, end) in parts.items() if text[start:end].strip()}
    spans["released"] = spans.get(question.released_span, (0, len(ids)))

    def alone(text: str) -> IntArray:
        return np.array(tokenizer(text, add_special_tokens=False)["input_ids"] if text else [], np.int64)

    noise, texts = alone(question.noise), tuple(alone(text) for text in question.released_texts)
    about = (question.dataset, question.question_id, question.turn)
    return Prompt(ids, spans, *about, noise=noise, texts=texts, noise_kind=question.noise_kind)


def _place(
    text: str, messages: list[dict[str, str | None]], number: int, tokenizer: PreTrainedTokenizerBase, tools: Any
) -> tuple[int, int]:
    """Where a message stands in the `text` of all, which may hold its words elsewhere, too: a mark in its place tells.

    Raises:
        ValueError: the template writes the other messages otherwise then.
    """
    marked = [*messages[:number], {**messages[number], "content": MARK}, *messages[number + 1 :]]
    marked_text = render(tokenizer, marked, tools=tools, tokenize=False, add_generation_prompt=True)
    before, _, after = marked_text.partition(MARK)
    if not text.startswith(before) or not text.endswith(after):
        raise ValueError(f"{tokenizer.name_or_path}: its chat template writes other words around other messages")
    return len(before), len(text) - len(after)


def build_prompts(
    questions: Sequence[Question], build: Callable[[Question], Prompt], decode: Callable[[list[int]], str]
) -> list[Prompt | LaterTurn]:
    """The prompts of questions; one that waits for vanilla's answers to earlier turns as a `LaterTurn`.

    Args:
        build: from a question to its prompt.
        decode: from an answer's token ids to its text, special tokens left out.
    """

    def later(question: Question) -> LaterTurn:
        def build_later(answers: Sequence[list[int]]) -> Prompt:
            # FastChat and Spec-Bench strip an answer before it goes into the conversation.
            history = tuple(
                (asked, answered if answered is not None else decode(ids).strip())
                for (asked, answered), ids in zip(question.history, answers, strict=True)
            )
            return build(replace(question, history=history))

        said = [text for pair in question.history for text in pair if text] + [question.message]
        about = (question.dataset, question.question_id, question.turn)
        placeholders = tuple((asked, answered or "-") for asked, answered in question.history)
        build(replace(question, history=placeholders))  # what is wrong with it is said before anything is measured
        return LaterTurn(*about, said, build_later, question.noise_kind)

    return [
        later(question) if any(answered is None for _, answered in question.history) else build(question)
        for question in questions
    ]


def token_span(offsets: np.ndarray, start: int, end: int) -> tuple[int, int]:
    """The tokens [first, last) that overlap the characters [start, end).

    Args:
        offsets: (l, 2) character range of each token.
    """
    inside = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0)
