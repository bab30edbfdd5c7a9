"""Noisy contexts (the paper's Table 4), two ways, over any data set; of recorded answers:
ngram_trie/bench/trace_noise.py.

paragraph: what the paper's released code does: one fixed paragraph of unrelated English behind the text that the trie
is built from. The model never sees it, so its answers are those to the clean prompt, and only tries are disturbed.

passages: passages of other questions' contexts, mixed into this one's at a given share of its words: what a poor
retriever hands over. The model reads them and may answer otherwise, so vanilla answers the same noisy prompts.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal, Protocol

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from ngram_trie.data.prompts import Question
from ngram_trie.prompt import column_name

Kind = Literal["paragraph", "passages"]

#: Unrelated English, about 100 words, for every question the same.
PARAGRAPH = (
    "Sourdough begins with flour and water that are left to themselves for a week. Wild yeast settles in the paste and "
    "raises it; bacteria turn it sour and keep mould away. Bakers feed such a starter once a day and throw half of it "
    "out, which seems a waste until the first loaf comes from the oven. A warm kitchen makes the dough rise within "
    "four hours, a cold one lets it take a night, and the slower loaf has more flavour. The crust wants steam during "
    "the first ten minutes and dry heat after that. When the bottom sounds hollow under a knuckle, the bread is done."
)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class NoiseSettings:
    """`noise=`: how contexts are made noisy.

    Attributes:
        kinds: "paragraph", unrelated text behind what tries are built from, as in the paper's released code;
            "passages", unrelated passages in the context.
        share: of a context with "passages", how much is noise; at least 0, below 1.
        seed: which passages, and where they go.
    """

    kinds: Annotated[list[Kind], Field(min_length=1)]
    share: Annotated[float, Field(strict=True, ge=0, lt=1)] = 0.3
    seed: Annotated[int, Field(strict=True)] = 0


class Dataset(Protocol):
    """What every data set offers."""

    name: str
    questions: Sequence[Question]
    warmup: Sequence[Question]


class NoisyDataset:
    """Another data set with noise in its contexts.

    Args:
        dataset: the clean one.
        kind: "paragraph" or "passages".
        share: of the words of a noisy context, how many come from other questions. Only for "passages".
        seed: which passages, and where they go.

    Attributes:
        name: the clean set's with `+kind`: tables put the two beside each other.

    Raises:
        ValueError: a set whose questions have no context to mix in.
    """

    def __init__(self, dataset: Dataset, kind: Kind, share: float, seed: int) -> None:
        self.name = column_name(dataset.name, kind)
        self.warmup = dataset.warmup
        self.questions: Sequence[Question]
        own = [replace(question, noise_kind=kind) for question in dataset.questions]
        if kind == "paragraph":
            self.questions = [replace(question, noise=PARAGRAPH) for question in own]
            return
        pool: dict[str, list[str]] = {}
        for question in own:  # of all its turns
            pool.setdefault(question.question_id, []).extend(passages_of(question.context)[0])
        if len(pool) < 2:
            raise ValueError(f"dataset {dataset.name}: noise comes from other questions, and there is only one")
        self.questions = [mix_in(question, pool, share, seed) for question in own]


def with_noise(datasets: Mapping[str, Dataset], noise: NoiseSettings) -> dict[str, Dataset]:
    """Each data set, and after it the same with each kind of noise."""
    noisy: dict[str, Dataset] = {}
    for name, dataset in datasets.items():
        noisy[name] = dataset
        for kind in noise.kinds:
            disturbed = NoisyDataset(dataset, kind, noise.share, noise.seed)
            noisy[disturbed.name] = disturbed
    return noisy


def passages_of(context: str) -> tuple[list[str], str]:
    """The passages of a context and what stands between them: blank lines, else line ends, else sentences."""
    for separator in ("\n\n", "\n"):
        parts = context.split(separator)
        if len(parts) > 1:
            return parts, separator
    return re.split(r"(?<=[.!?]) ", context), " "


def mix_in(question: Question, pool: dict[str, list[str]], share: float, seed: int) -> Question:
    """`question` with passages of the other questions in `pool` at random places of its context, until they make up
    `share` of its words, or a little more: whole passages are taken.
    """
    passages, separator = passages_of(question.context)
    if not question.context.strip():
        return question
    rng = random.Random(f"{seed} {question.question_id}")
    others = [passage for name, part in pool.items() if name != question.question_id for passage in part]
    rng.shuffle(others)
    wanted = len(question.context.split()) * share / (1 - share)
    while wanted > 0 and others:
        distractor = others.pop()
        if distractor.strip() and distractor not in passages:
            passages.insert(rng.randrange(len(passages) + 1), distractor)
            wanted -= len(distractor.split())
    texts = tuple(passages) if question.released_texts else ()
    return replace(question, context=separator.join(passages), released_texts=texts)
