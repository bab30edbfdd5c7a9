"""The interface of a method: a drafter reads a prompt, observes the output and proposes draft trees.

To add a method, write one class with `propose` and one YAML under `configs/method/` (docs/extending.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from ngram_trie.prompt import GrowingText, Prompt
from ngram_trie.tree import DraftTree, FloatArray, IntArray, Sources

State = Literal["cold", "warm", "preloaded", "trained"]
Verify = Literal["tree", "rows"]
Shape = Literal["tree", "chain"]


#: No number that is counted or allocated by may be larger: beyond it lies no method but a slip of the keyboard.
MAX_COUNT = 1 << 24
#: The largest seed.
MAX_SEED = (1 << 63) - 1


def check_int(field: str, value: object, least: int, most: int = MAX_COUNT) -> None:
    """Raises:
    ValueError: `value` is not an integer in [least, most].
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        is_large = isinstance(value, int) and value > most
        bound = f"from {least} to {most}" if most < MAX_COUNT or is_large else f"of at least {least}"
        raise ValueError(f"{field}={value!r}: must be an integer {bound}")


def check_token(field: str, token: int | None, model: Any) -> None:
    """Raises:
    ValueError: `token` is not in the vocabulary of `model`; without a model any may be.
    """
    if token is not None and model is not None and token >= (size := model.get_input_embeddings().num_embeddings):
        raise ValueError(f"{field}={token}: not in the model's vocabulary, which has the tokens from 0 to {size - 1}")


def check_bool(field: str, value: object) -> None:
    """Raises:
    ValueError: `value` is not a bool.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{field}={value!r}: must be true or false")


def check_choice(field: str, value: object, allowed: Sequence[str]) -> None:
    """Raises:
    ValueError: `value` is not one of `allowed`.
    """
    if value not in allowed:
        raise ValueError(f"{field}={value!r}: must be one of {', '.join(allowed)}")


def check_positive(field: str, value: object, otherwise: str = "") -> None:
    """Raises:
    ValueError: `value` is not a finite number above 0; `otherwise` tells what else the field takes.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ValueError(f"{field}={value!r}: must be a number above 0{otherwise}")


def check_amount(field: str, value: object) -> None:
    """Raises:
    ValueError: `value` is not a finite number of at least 0.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ValueError(f"{field}={value!r}: must be a finite number of at least 0")


def check_share(field: str, value: object) -> None:
    """Raises:
    ValueError: `value` is not a number from 0 to 1.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(f"{field}={value!r}: must be a number from 0 to 1")


def check_place(field: str, value: object, otherwise: str = "") -> None:
    """Raises:
    ValueError: `value` cannot be a path or a hub id; `otherwise` tells what else the field takes.
    """
    if not isinstance(value, str | Path) or not str(value):
        raise ValueError(f"{field}={value!r}: must be a path{otherwise}")


def check_context(context: object) -> None:
    """Raises:
    ValueError: `context` cannot name a part of a prompt.
    """
    if not isinstance(context, str) or not context:
        raise ValueError(f"context={context!r}: must be the name of a part of the prompt, such as 'prompt'")


class TopK(NamedTuple):
    """The k likeliest next tokens behind some tokens, as the target's last forward holds them (`target.top_k`).

    Attributes:
        places: (r,) which tokens they stand behind: nodes of the tree that was verified, or, of `top_k_in_prompt`,
            positions in the prompt.
        tokens, probs: (r, k) the likeliest first, and their probabilities.
    """

    places: IntArray
    tokens: IntArray
    probs: FloatArray


@dataclass(frozen=True)
class Traits:
    """What a drafter is to the loop and to tables. A class declares it; an instance whose settings decide has its own.

    Attributes:
        state: what it has beside the prompt, and what methods are ranked within: nothing ("cold"), earlier outputs
            ("warm"), a store that was built before ("preloaded"), or weights that were trained for it ("trained").
        keeps_answers: whether it keeps earlier outputs beside a store; a warm one does.
        context: the part of the prompt that drafts are made from, a name of `Prompt.part`.
        reads: what drafts are made from: "tokens", which is all that a replay has, or what else of the target's forward
            ("hidden states", "logits", "top-k tokens").
        reads_top_k: how many of the likeliest tokens behind every node it asks for after each step (`target.top_k`); 0
            where it does not ask for all nodes. A backend may find them on the way.
        uses_device: whether it runs a model of its own: begun during the target's prefill, it would wait for it and be
            timed with it.
        scores_nodes: whether its draft trees say how likely their nodes are (`DraftTree.probs`), so that a size rule
            can cut them.
        drafts_chains: whether its drafts are chains, or nothing at all, so that `shape=chain` leaves them as they are.
        verify: how the target verifies its drafts, as in `engine.verify`, and takes the plain steps that it is compared
            with; None for the run's own way.
        own_model, own_revision: folder or hub id of a target of its own, which takes the place of the run's. The method
            comes with a model that was trained for it, and is compared with that model's own vanilla.
    """

    state: State = "cold"
    keeps_answers: bool = False
    context: str = "prompt"
    reads: str = "tokens"
    reads_top_k: int = 0
    uses_device: bool = False
    scores_nodes: bool = False
    drafts_chains: bool = False
    verify: Verify | None = None
    own_model: str | None = None
    own_revision: str | None = None

    @property
    def remembers(self) -> bool:
        """Whether it keeps something of earlier answers, so that it meets questions in order and each one once."""
        return self.keeps_answers or self.state == "warm"

    @property
    def needs_tokens_alone(self) -> bool:
        """Whether it drafts without any model's forwards."""
        return self.reads == "tokens" and not self.uses_device and not self.own_model


class Drafter(ABC):
    """Proposes continuations from the tokens seen so far.

    The loop calls `start` once a prompt, then `observe` with every token as it is emitted (the first one comes from
    prefill), and `propose` before each step in which a draft has room. A drafter that reads only tokens can be replayed
    exactly. One that reads more takes the target in `bind` and finds in `target.last` the last forward.

    Attributes:
        root: the last observed token, which every draft tree begins with. `start` and `observe` keep it.
        traits: what it is to the loop.

    Raises:
        ValueError: by every drafter's constructor: a value that is not allowed; the message names it and what is.
    """

    root: int
    traits = Traits()
    #: Attributes that no copy in another process takes along (mapped files, weights): it makes its own. Each has a
    #: default on the class.
    not_sent: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls) -> None:
        for name in vars(cls).keys() & Traits.__dataclass_fields__.keys():
            raise TypeError(f"{cls.__name__}.{name}: give it as a trait: traits = Traits({name}=...)")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in self.not_sent}

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """The settings, in place of its own, under which it drafts up to `num_nodes` nodes and no more: what
        `budget=equal` gives every method of a table. A method whose size is not called num_draft, or whose tree has a
        shape, says how it spends the nodes.
        """
        return {"num_draft": num_nodes}

    def weights(self) -> Mapping[str, str | None]:
        """The folders or hub ids of weights that it brings along, each with its revision. Who measures fetches them
        first; then `parts` says whether they are here.
        """
        return {}

    def parts(self) -> Mapping[Path, str]:
        """What it needs beside the target (weights, a datastore, a table): each folder, or the file that completes it,
        and what to do to get it.
        """
        return {}

    def identity(self) -> str:
        """What decides its drafts beside its settings and parts, hashed; empty where nothing does."""
        return ""

    def bind(self, target: Any) -> None:
        """Take the target; called before the first prompt, and again with one whose cache had to grow. `target.model`
        is None where answers are replayed.

        Raises:
            ValueError: a part does not fit this target.
        """
        return

    def start(self, prompt: Prompt) -> None:
        """Forget the previous prompt and read this one."""
        if len(prompt.ids):  # of a recorded answer it may be empty
            self.root = int(prompt.ids[-1])

    def observe(self, new_ids: Sequence[int]) -> None:
        """Take note of the tokens that were just emitted, in order."""
        if len(new_ids):
            self.root = int(new_ids[-1])

    def learn(self) -> Any:  # noqa: B027  # most have nothing to learn
        """Take over what the model's last forward said, of a drafter that reads more than tokens: `propose` does so
        first, so this is for steps in which it is not asked.
        """

    @abstractmethod
    def propose(self, budget: int) -> DraftTree:
        """Draft at most `budget`, at least 1, nodes that continue the text behind `root`."""

    def sources_of(self, tree: DraftTree) -> Sources | None:
        """Where the nodes of the draft that was just proposed come from, if it can tell."""
        return tree.sources

    def remind(self, prompt: Prompt, output_ids: Sequence[int]) -> None:
        """Take note of an answer that was recorded before an interruption, if it remembers answers. What drafters keep
        of the model's forwards is lost.
        """
        if self.traits.remembers and self.traits.reads == "tokens":
            self.start(prompt)
            self.observe(output_ids)


class WrappedDrafter(Drafter):
    """A drafter around another one, which does the drafting; it is to the loop what the other one is.

    Args:
        drafter: the other one.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.drafter, self.traits = drafter, drafter.traits

    def weights(self) -> Mapping[str, str | None]:
        return self.drafter.weights()

    def parts(self) -> Mapping[Path, str]:
        return self.drafter.parts()

    def identity(self) -> str:
        return self.drafter.identity()

    def bind(self, target: Any) -> None:
        self.drafter.bind(target)

    def start(self, prompt: Prompt) -> None:
        self.drafter.start(prompt)

    def observe(self, new_ids: Sequence[int]) -> None:
        self.drafter.observe(new_ids)

    def learn(self) -> Any:
        return self.drafter.learn()

    def sources_of(self, tree: DraftTree) -> Sources | None:
        return self.drafter.sources_of(tree)

    def remind(self, prompt: Prompt, output_ids: Sequence[int]) -> None:
        self.drafter.remind(prompt, output_ids)


def layers(drafter: Drafter) -> list[Drafter]:
    """A drafter and those within it, the innermost last."""
    found = [drafter]
    while isinstance(drafter, WrappedDrafter):
        drafter = drafter.drafter
        found.append(drafter)
    return found


class HistoryDrafter(Drafter):
    """A drafter that reads the whole text so far, prompt and output."""

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._text = GrowingText(prompt.ids)

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        self._text.extend(new_ids)

    @property
    def text(self) -> IntArray:
        """(k,) a view of all tokens, prompt and output."""
        return self._text.ids
