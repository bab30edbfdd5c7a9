"""Answers of finished requests, kept for the requests that come after, within limits of size and age."""

from __future__ import annotations

import time
from collections import deque

from ngram_trie.blend.background import NOTHING, AnswerStore, Background
from ngram_trie.tree import IntArray


class RecentAnswers:
    """What a server answered lately, as a background for the blend. Whoever drafts from it may read, in what is
    drafted, what others were told: keep one for each group of users that may see each other's answers.

    A live index must not see its background change, so what `background` returns never does: it is built anew when an
    eighth of what is kept is new, or an answer in it has become too old.

    Args:
        max_tokens: room for tokens, of which answers take half; the oldest are forgotten first.
        max_seconds: how long an answer is kept; None for no such limit.
    """

    def __init__(self, max_tokens: int = 65_536, *, max_seconds: float | None = None) -> None:
        self.max_tokens, self.max_seconds, self._clock = max_tokens, max_seconds, time.monotonic
        self._answers: deque[tuple[float, IntArray]] = deque()  # and when each was given, the oldest first
        self._size = self._fresh = 0
        self._known: Background = NOTHING
        self._oldest = float("inf")

    def add(self, answer: IntArray) -> None:
        """Keep an answer; of one that is too long its end."""
        answer = answer[-(self.max_tokens // 2) :]
        self._answers.append((self._clock(), answer))
        self._size += len(answer)
        self._fresh += len(answer)
        self._trim()

    def _trim(self) -> None:
        born = float("-inf") if self.max_seconds is None else self._clock() - self.max_seconds
        while self._answers and (self._size > self.max_tokens // 2 or self._answers[0][0] < born):
            self._size -= len(self._answers.popleft()[1])
        if self._oldest < born:
            self._fresh = self.max_tokens

    def background(self) -> Background:
        """What is known; it stays as it is, whatever is added."""
        self._trim()
        if self._fresh and self._fresh * 8 >= self._size:
            store = AnswerStore(self.max_tokens)
            for _, answer in self._answers:
                store.add(answer)
            self._known = store.background() if self._answers else NOTHING
            self._oldest = self._answers[0][0] if self._answers else float("inf")
            self._fresh = 0
        return self._known
