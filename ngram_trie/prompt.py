"""A tokenised prompt with its parts, or a later turn, whose prompt follows the answers to the earlier turns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ngram_trie.tree import IntArray


def question_number(question_id: str) -> int:
    """The last number in a question's id, by which it is odd or even: 560 of "560", 7 of "summarization-007".

    Raises:
        ValueError: it holds none.
    """
    numbers = re.findall(r"\d+", question_id)
    if not numbers:
        raise ValueError(f"question id {question_id!r} holds no number that could be odd or even")
    return int(numbers[-1])


def column_name(dataset: str, noise_kind: str) -> str:
    """What tables call a data set with noise of a kind in its contexts: "qa+paragraph". Only printed, never parsed."""
    return f"{dataset}+{noise_kind}" if noise_kind else dataset


@dataclass(frozen=True)
class Prompt:
    """A tokenised prompt, and where its parts lie in it.

    Attributes:
        ids: (l,) token ids, template and BOS included: exactly what the target model reads.
        spans: token ranges [start, end) by name. "user" is the user's turn without the template, "context" the part of
            it that was handed over to be read (article, passages), "question" what is asked about that, "system" what
            the template says first; "prompt", the whole, always exists.
        dataset, question_id, turn: which question this is; the record repeats them.
        noise: (k,) unrelated tokens that tries read behind their part of the prompt, and the model never sees: the way
            in which the paper's released code makes a context noisy (Table 4).
        num_cut: tokens of the context that were left out because the prompt was too long.
        texts: where the paper's released code builds its trie from several texts, each tokenised on its own, the token
            ids of each; they stand for the span "released".
        noise_kind: of the noise in this question's context (`NoiseSettings.kinds`); "" without.
    """

    ids: IntArray
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    dataset: str = ""
    question_id: str = ""
    turn: int = 0
    noise: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    num_cut: int = 0
    texts: tuple[IntArray, ...] = ()
    noise_kind: str = ""

    @property
    def question(self) -> tuple[str, str]:
        """Which question this is, whatever noise is in it."""
        return self.dataset, self.question_id

    def last_places(self) -> IntArray:
        """(r,) increasing: where each of the prompt's tokens stands for the last time."""
        _, from_behind = np.unique(self.ids[::-1], return_index=True)
        return np.sort(len(self.ids) - 1 - from_behind)

    def _span(self, name: str) -> tuple[int, int]:
        spans = {**self.spans, "prompt": (0, len(self.ids))}
        for each in name.split("|"):
            if each in spans:
                return spans[each]
        raise ValueError(f"context={name!r}: this prompt has the parts {', '.join(['prompt', *self.spans])}")

    def part(self, name: str) -> IntArray:
        """(k,) token ids of the span `name`; of several, as in "context|user", the first that the prompt has.

        Raises:
            ValueError: the prompt has no such span.
        """
        start, end = self._span(name)
        return self.ids[start:end]

    def read_by_tries(self, name: str) -> list[IntArray]:
        """The texts, (k,) token ids each, that a trie of the part `name` is built from: one, unless that is "released"
        and these are several. Noise follows the first, as in the released code.

        Raises:
            ValueError: the prompt has no such part.
        """
        start, end = self._span(name)
        first, *others = self.texts if name == "released" and self.texts else [self.ids[start:end]]
        return [np.concatenate([first, self.noise]), *others]

    def ends_with(self, name: str) -> bool:
        """Whether the output follows the part `name` without a gap."""
        return self._span(name)[1] == len(self.ids)


@dataclass(frozen=True)
class LaterTurn:
    """A turn whose prompt holds vanilla's answers to the turns before, so that every method sees the same prompts.

    Attributes:
        dataset, question_id, turn, noise_kind: which turn; the earlier ones are 0 to turn - 1.
        said: the texts that are known beforehand: what the run's identity is taken from.
        build: from vanilla's answers, token ids each, to the prompt.
    """

    dataset: str
    question_id: str
    turn: int
    said: Sequence[str]
    build: Callable[[Sequence[list[int]]], Prompt]
    noise_kind: str = ""


class GrowingText:
    """Token ids in one array, which is made anew, twice as large, when it is full.

    Args:
        ids: (n,) the first ones.
        dtype: how they are held.
    """

    def __init__(self, ids: np.ndarray | Sequence[int], dtype: Any = np.int64) -> None:
        self._size = len(ids)
        self._buffer = np.empty(2 * self._size + 256, dtype)
        self._buffer[: self._size] = ids

    def __len__(self) -> int:
        return self._size

    @property
    def ids(self) -> np.ndarray:
        """(n,) a view of all."""
        return self._buffer[: self._size]

    def extend(self, ids: np.ndarray | Sequence[int]) -> None:
        end = self._size + len(ids)
        if end > len(self._buffer):
            grown = np.empty(2 * end, self._buffer.dtype)
            grown[: self._size] = self.ids
            self._buffer = grown
        self._buffer[self._size : end] = ids
        self._size = end
