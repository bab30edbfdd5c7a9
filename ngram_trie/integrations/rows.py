"""Which request a row of a batch is, told by its text alone: engines hand rows over without names, and move them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from ngram_trie.blend.ppm import Numbers
from ngram_trie.drafter import Drafter, layers
from ngram_trie.prompt import GrowingText, Prompt


class Request:
    """A text that grows, and the drafter that reads it.

    Attributes:
        drafter: it has read `text`.
        draft: what was drafted behind the text, not yet answered; `said`, how likely each token was said to be.
        prompt_length: tokens before the answer; what came before this object knew of the request counts as prompt.
        seen: the call in which it was last there.
    """

    def __init__(self, drafter: Drafter, prompt: Numbers, seen: int) -> None:
        self.drafter, self.seen = drafter, seen
        self.prompt_length = len(prompt)
        self._text = GrowingText(prompt, np.int32)
        self.draft: list[int] = []
        self.said: list[float] = []
        drafter.start(Prompt(prompt.astype(np.int64)))

    @property
    def text(self) -> Numbers:
        """(n,) a view."""
        return self._text.ids

    def begins(self, row: Numbers) -> bool:
        """Whether `row` is this text, or goes on from it."""
        size = len(self._text)
        return size <= len(row) and row[size - 1] == self.text[-1] and np.array_equal(row[:size], self.text)

    def extend(self, new_ids: Numbers) -> None:
        self._text.extend(new_ids)
        self.drafter.observe(new_ids.tolist())


class Requests:
    """The requests of a server, as rows of token ids show them: in any order, with gaps, and gone without a word.

    A row that continues a known text continues that request: the index is extended. So it is when the row has moved,
    when a request was preempted and comes back, and when a finished chat comes back with another turn. What is longest
    unseen is forgotten.

    Args:
        make: a drafter that knows nothing yet.
        max_requests: most that are remembered, those being answered included.
        max_step: most tokens of one step; where more are new, some of them are a prompt's.
        on_gone: called with a request that was not seen for `patience` calls; again if it then went on.
    """

    def __init__(
        self,
        make: Callable[[], Drafter],
        max_requests: int,
        max_step: int,
        on_gone: Callable[[Request], None] | None = None,
        patience: int = 16,
    ) -> None:
        self._make, self.max_requests, self._max_step = make, max_requests, max_step
        self._on_gone, self._patience = on_gone, patience
        #: Longest unseen first.
        self._requests: OrderedDict[int, Request] = OrderedDict()
        self._rows: dict[int, Request] = {}
        self._calls = 0

    def next_call(self) -> None:
        """A step of the engine begins."""
        self._calls += 1
        if self._on_gone:
            for request in self._requests.values():
                if request.seen == self._calls - self._patience:
                    self._on_gone(request)
        while len(self._requests) > self.max_requests:
            _, request = self._requests.popitem(last=False)
            self._rows = {row: each for row, each in self._rows.items() if each is not request}

    def find(self, row: int, text: Numbers, num_new: int) -> tuple[Request, bool]:
        """The request in a row, its drafter told all of its text; and whether it goes on from the last step.

        Args:
            text: (n,) all tokens.
            num_new: how many of them this step emitted, at least 1.
        """
        found = self._rows.get(row)
        if found is None or not found.begins(text):
            known = (each for each in self._requests.values() if each.begins(text))
            found = max(known, key=lambda each: len(each.text), default=None)
        if found is not None and not self._reads_on(found, len(text) - len(found.text)):
            found = None
        is_known = found is not None and len(text) - len(found.text) <= self._max_step
        if found is None:
            found = Request(self._make(), text[: len(text) - num_new], self._calls)
            self._requests[id(found)] = found
        if len(text) > len(found.text):
            if not is_known:
                found.draft, found.said = [], []
            found.extend(text[len(found.text) :])
        found.seen = self._calls
        self._requests.move_to_end(id(found))
        self._rows[row] = found
        return found, is_known

    def _reads_on(self, request: Request, num_new: int) -> bool:
        """Whether a drafter may be told so many tokens as answer: not a new turn, if it indexes prompts alone, or over
        other answers than are kept now.
        """
        if num_new <= self._max_step:
            return True
        inner = layers(request.drafter)[-1]
        return bool(getattr(inner, "update_with_output", True) and getattr(inner, "is_current", True))
