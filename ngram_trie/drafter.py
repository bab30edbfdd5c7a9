"""What the decoding loop asks of a method: the prompt it starts from and the drafter that proposes trees.

To add a method, write one class with these three calls and one YAML under `configs/method/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree, IntArray

State = Literal["cold", "warm", "preloaded"]


def check_int(field: str, value: object, least: int, most: int | None = None) -> None:
    """Raises:
    ValueError: `value` is not an integer in [least, most].
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        bound = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{field}={value!r}: must be an integer {bound}")


def check_context(context: object) -> None:
    """Raises:
    ValueError: `context` cannot name a part of a prompt.
    """
    if not isinstance(context, str) or not context:
        raise ValueError(f"context={context!r}: must be the name of a part of the prompt, such as 'prompt'")


class Drafter(ABC):
    """Proposes continuations from the tokens seen so far.

    The loop calls `start` once a prompt, then `observe` with every token as it is emitted (the first one comes from
    prefill), and `propose` before each step. A drafter that reads tokens only can be replayed exactly; one that reads
    more is given the target by `bind` and finds in `target.last` what the last forward said.
    """

    #: What survives from one prompt to the next: nothing, earlier outputs, or a store that was built beforehand.
    state: ClassVar[State] = "cold"
    #: What drafts are made from: "tokens", or what else of the target's forward ("hidden states", "logits"). Replay has
    #: tokens only.
    reads: ClassVar[str] = "tokens"
    #: Whether it runs a model of its own: begun during the target's prefill, it would wait for it and be timed with it.
    uses_device: ClassVar[bool] = False
    #: The part of the prompt that drafts are made from, a name of `Prompt.part`.
    context: str = "prompt"
    #: Folder or hub id of a target of its own that takes the place of the run's: the method comes with a model that was
    #: trained for it, and is compared with that model's own vanilla.
    own_model: str | None = None
    own_revision: str | None = None

    def parts(self) -> Mapping[Path, str]:
        """What it needs beside the target (weights, a datastore, a table): each folder, or the file that completes it,
        and what to do to get it.
        """
        return {}

    def identity(self) -> str:
        """What decides its drafts beside its settings and parts, hashed; empty where nothing does."""
        return ""

    def bind(self, target: Any) -> None:
        """Take the target; called before the first prompt, and again with one whose cache had to grow.

        Raises:
            ValueError: a part does not fit this target.
        """
        return

    @abstractmethod
    def start(self, prompt: Prompt) -> None:
        """Forget the previous prompt and read this one."""

    @abstractmethod
    def observe(self, new_ids: Sequence[int]) -> None:
        """Take note of the tokens that were just emitted, in order."""

    @abstractmethod
    def propose(self, budget: int) -> DraftTree:
        """Draft at most `budget` nodes that continue the text; the root is the last observed token."""

    def remind(self, prompt: Prompt, output_ids: Sequence[int]) -> None:
        """Take note of an answer that was recorded before an interruption, if it remembers answers. What drafters keep
        of the model's forwards is lost.
        """
        if self.state == "warm" and self.reads == "tokens":
            self.start(prompt)
            self.observe(output_ids)


class TokenHistory:
    """The tokens seen so far in one growing array: prompt first, then output."""

    def __init__(self, prompt_ids: IntArray) -> None:
        self._size = len(prompt_ids)
        self._buffer = np.empty(2 * self._size + 256, np.int64)
        self._buffer[: self._size] = prompt_ids

    def append(self, new_ids: Sequence[int]) -> None:
        end = self._size + len(new_ids)
        if end > len(self._buffer):
            grown = np.empty(2 * end, np.int64)
            grown[: self._size] = self.ids
            self._buffer = grown
        self._buffer[self._size : end] = new_ids
        self._size = end

    def __len__(self) -> int:
        return self._size

    @property
    def ids(self) -> IntArray:
        """(k,) a view of all tokens, prompt and output."""
        return self._buffer[: self._size]


class HistoryDrafter(Drafter):
    """A drafter that reads the text so far, prompt and output, in `_history`."""

    _history: TokenHistory

    def start(self, prompt: Prompt) -> None:
        self._history = TokenHistory(prompt.ids)

    def observe(self, new_ids: Sequence[int]) -> None:
        self._history.append(new_ids)
