"""Answers of finished requests, kept for the requests that come after, within limits of size and age."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

from ngram_trie.blend.background import NOTHING, AnswerStore, Background
from ngram_trie.drafter import check_int, check_positive
from ngram_trie.tree import IntArray


class RecentAnswers:
    """What a server answered lately, as a background for the blend. Whoever drafts from it may read, in what is
    drafted, what others were told: keep one for each group of users that may see each other's answers.

    A live index must not see its background change, so what `background` returns never does: it is built anew when an
    eighth of what is kept is new, or an answer in it has become too old.

    Args:
        max_tokens: of all answers together; the oldest are forgotten first.
        max_answers: how many; None for no such limit.
        max_seconds: how long an answer is kept; None for no such limit.
        clock: seconds, for tests.

    Raises:
        ValueError: a value that is not allowed.
    """

    def __init__(
        self,
        max_tokens: int = 65_536,
        *,
        max_answers: int | None = None,
        max_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_int("max_tokens", max_tokens, 4)
        if max_answers is not None:
            check_int("max_answers", max_answers, 1)
        if max_seconds is not None:
            check_positive("max_seconds", max_seconds)
        self.max_tokens, self.max_answers, self.max_seconds, self._clock = max_tokens, max_answers, max_seconds, clock
        self._answers: OrderedDict[Hashable, tuple[float, IntArray | Sequence[int]]] = OrderedDict()
        self._size = self._fresh = 0
        self._known: Background = NOTHING
        self._oldest = float("inf")

    def __len__(self) -> int:
        """Tokens of all answers."""
        return self._size

    def __contains__(self, key: Hashable) -> bool:
        return key in self._answers

    def keys(self) -> list[Hashable]:
        """The answers that are kept, oldest first."""
        return list(self._answers)

    def add(self, key: Hashable, answer: IntArray | Sequence[int]) -> None:
        """Keep an answer, in place of one of the same key; of one that is too long its end."""
        self.forget(key)
        answer = answer[-(self.max_tokens // 2) :]
        self._answers[key] = (self._clock(), answer)
        self._size += len(answer)
        self._fresh += len(answer)
        self._trim()

    def forget(self, key: Hashable) -> None:
        """Drop an answer, if it is kept; requests that start from now on do not see it."""
        if key in self._answers:
            self._size -= len(self._answers.pop(key)[1])
            self._fresh = self.max_tokens

    def _trim(self) -> None:
        most = float("inf") if self.max_answers is None else self.max_answers
        born = float("-inf") if self.max_seconds is None else self._clock() - self.max_seconds
        while self._answers and (
            self._size > self.max_tokens // 2 or len(self._answers) > most or self._first() < born
        ):
            self._size -= len(self._answers.popitem(last=False)[1][1])
        if self._oldest < born:
            self._fresh = self.max_tokens

    def _first(self) -> float:
        """When the oldest answer was given."""
        return next(iter(self._answers.values()))[0]

    def background(self) -> Background:
        """What is known; it stays as it is, whatever is added."""
        self._trim()
        if self._fresh and self._fresh * 8 >= self._size:
            store = AnswerStore(self.max_tokens)
            for _, answer in self._answers.values():
                store.add(answer)
            self._known = store.background() if self._answers else NOTHING
            self._oldest = self._first() if self._answers else float("inf")
            self._fresh = 0
        return self._known
