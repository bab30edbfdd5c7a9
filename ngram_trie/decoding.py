"""The decoding loop: draft, verify, accept, commit. One loop for every drafter, live or replayed.

The target is anything with the four calls of `Target`: a network (`ngram_trie.targets.model`) or recorded tokens.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

from ngram_trie.drafter import Drafter, Traits, layers
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import first_line
from ngram_trie.tree import DraftTree, IntArray


@dataclass
class Seen:
    """What a target makes of a draft, or of a prompt, which is a draft of one node: its last token.

    Attributes:
        choices: (m,) the greedy next token after each node.
        build_seconds: what laying out the tree took (mask, positions).
        saved_seconds: what reading the prompt did not take because another method had just read the same one.
    """

    choices: IntArray
    build_seconds: float = 0.0
    saved_seconds: float = 0.0


class Target(Protocol):
    """What the loop asks of a target model. `verify` is told how many of the likeliest tokens behind each node the
    drafter will read (`Traits.reads_top_k`), and `commit` how many tokens were cached before `verify`.

    Attributes:
        model: of transformers; None for recorded tokens.
        draft_limit: length of a text up to which drafts may be verified behind the prompt that was read.
    """

    model: Any
    context_limit: int
    draft_limit: int
    max_draft: int

    def prefill(self, prompt_ids: IntArray) -> Seen: ...
    def verify(self, tree: DraftTree, top_k: int = 0) -> Seen: ...
    def commit(self, past: int, path: list[int]) -> None: ...
    def synchronize(self) -> None: ...


@runtime_checkable
class ReadsAhead(Protocol):
    """A target whose `prefill` comes in two halves, of which the first does not wait for the device."""

    def begin_prefill(self, prompt_ids: IntArray) -> None: ...
    def end_prefill(self) -> Seen: ...


class Sampler(Protocol):
    """Chooses next tokens otherwise than by the largest logit, from what the target's last forward said."""

    def first(self, prompt_ids: IntArray, target: Any) -> int:
        """The token after the prompt, which the target has just read."""

    def next_tokens(self, new_ids: Sequence[int], target: Any) -> IntArray:
        """(m,) a token after each node of the draft that was just verified; the step before emitted `new_ids`."""


class PromptTooLong(ValueError):
    """The prompt leaves no room for an answer within the model's context."""


class DrafterError(ValueError):
    """A drafter that fails, or whose draft would change the answer: no tree, a wrong root, a token that the vocabulary
    has not. The message names drafter and step.
    """


@dataclass(frozen=True)
class Stop:
    """When an answer ends; the token that ends it is kept, nothing after it.

    Attributes:
        max_new_tokens: limit of the answer's length.
        eos_ids: any of these tokens ends it.
        stop_strings: any of these texts ends it, at the token that completes it, wherever token and draft borders lie.
        decode: token ids to text; needed for `stop_strings`.
    """

    max_new_tokens: int = 1024
    eos_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    decode: Callable[[Sequence[int]], str] | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens={self.max_new_tokens}: at least 1")
        if self.stop_strings and self.decode is None:
            raise ValueError("stop_strings need decode, the tokenizer's ids-to-text function")
        if "" in self.stop_strings:
            raise ValueError("stop_strings: an empty string would stop everywhere")

    def also(self, eos_ids: frozenset[int]) -> Stop:
        """One that these tokens end as well."""
        return replace(self, eos_ids=self.eos_ids | eos_ids)

    def reason(self, output_ids: Sequence[int]) -> str | None:
        """Why the answer ends with the last token of `output_ids`, or None if it goes on."""
        if output_ids[-1] in self.eos_ids:
            return "eos"
        if self.stop_strings:
            assert self.decode is not None
            # A token holds at least one byte, so a stop string lies within that many tokens; a few more keep
            # multi-byte characters whole.
            window = max(len(stop.encode()) for stop in self.stop_strings) + 8
            text = self.decode(output_ids[-window:])
            if any(stop in text for stop in self.stop_strings):
                return "stop_string"
        return "max_new_tokens" if len(output_ids) >= self.max_new_tokens else None

    def trim(self, output_ids: list[int], emitted: list[int], room: int) -> tuple[list[int], str | None]:
        """The part of `emitted` that belongs to the answer behind `output_ids`, and why it ends there, if it does.

        `room` is what the context leaves for the whole answer.
        """
        answer = list(output_ids)
        for count, token in enumerate(emitted, 1):
            answer.append(token)
            reason = self.reason(answer) or ("context_limit" if len(answer) >= room else None)
            if reason:
                return emitted[:count], reason
        return emitted, None


@dataclass(frozen=True)
class PhaseSeconds:
    """Wall-clock of one answer, seconds. `total` runs from before prefill to the last token, tokenising excluded; what
    the named phases leave over is the loop's own bookkeeping. A Decoder that owns its loop reports only `total`
    (and `prefill` where it can be told apart).

    Attributes:
        index: the drafter reads the prompt (builds its trie).
        draft: it observes what was emitted and proposes, over all steps.
        verify: the target's forwards; `build` is the part of it that lays out mask and positions of the trees.
        commit: the accepted rows of the cache are kept.
    """

    total: float
    prefill: float = 0.0
    index: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    commit: float = 0.0
    build: float = 0.0


@dataclass
class GenerationResult:
    """An answer and how it came about; the same fields as in `PromptRecord`."""

    output_ids: list[int]
    accept_lengths: list[int]
    tree_sizes: list[int]
    seconds: PhaseSeconds
    stop_reason: str
    draft_us: list[float] = field(default_factory=list)


class Decoder(ABC):
    """Answers prompts. `SpeculativeDecoder` runs the project's loop; an outside system subclasses this with a loop of
    its own and is marked so in every table.

    Attributes:
        kind: "drafter" for the project's loop, "decoder" for any other.
        traits: those of its drafter; outside loops have no drafts that `shape=chain` could cut.
        baseline: the method that it is compared with, in speed and token by token.
        target: the model that `bind` was given.
    """

    kind: str = "decoder"
    traits = Traits(drafts_chains=True)
    baseline: str = "vanilla"
    target: Any

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """As `Drafter.sized`; nothing of a loop that does not draft, or whose drafts have no size."""
        return {}

    @abstractmethod
    def bind(self, target: Any) -> None:
        """Take the target model; called once, when the weights are loaded."""

    @property
    def learned(self) -> Any:
        """What an adaptive length has learned so far (`budget.adaptive.Learned`); None without one."""
        return getattr(getattr(self, "drafter", None), "learned", None)

    def room(self, prompt: Prompt) -> int:
        """How many tokens the context leaves for an answer.

        Raises:
            PromptTooLong: none.
        """
        room: int = self.target.context_limit - len(prompt.ids)
        if room < 1:
            raise PromptTooLong(f"{len(prompt.ids)} prompt tokens, context limit {self.target.context_limit}")
        return room

    @abstractmethod
    def generate(self, prompt: Prompt, stop: Stop) -> GenerationResult:
        """Answer `prompt`; the clock runs from before prefill to the last token.

        Raises:
            PromptTooLong: the prompt fills the model's context.
        """


def verify_greedy(tree: DraftTree, next_tokens: IntArray) -> list[int]:
    """The accepted path: node indices from the root to the deepest candidate whose every token is the target's own
    choice.

    Args:
        tree: the draft, m nodes.
        next_tokens: (m,) the target's token after each node: the greedy one, or one that was drawn for it.

    Returns:
        Increasing node indices, the root first. The step emits the path's tokens after the root and then
        `next_tokens[path[-1]]`, which is exactly what greedy decoding would have emitted (Leviathan et al. 2023,
        temperature 0). Of equally deep nodes, which can only be duplicates, the first is taken. For drawn tokens see
        `ngram_trie.targets.sampling`: the path then follows the draws.
    """
    accepted = {0}
    deepest = 0
    tokens, parents, chosen = tree.tokens.tolist(), tree.parents.tolist(), next_tokens.tolist()
    for node in range(1, len(tokens) - tree.probes):
        if parents[node] in accepted and tokens[node] == chosen[parents[node]]:
            accepted.add(node)
            if tree.depths[node] > tree.depths[deepest]:
                deepest = node
    return tree.path_to(deepest)


class Stopwatch:
    """Seconds spent in each phase: `with watch("draft"): ...`.

    Only prefill and verify end with a result on the host. On a GPU, commit's copies run on while the next draft is made
    and what is left of them is counted with the next verify; the total is true.
    """

    def __init__(self) -> None:
        self.laps: dict[str, list[float]] = {phase: [] for phase in ("prefill", "index", "draft", "verify", "commit")}
        self.charged = self.build = 0.0
        self.started = perf_counter()

    def __call__(self, phase: str) -> Stopwatch:
        self._phase = phase
        return self

    def __enter__(self) -> None:
        self._entered = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.laps[self._phase].append(perf_counter() - self._entered)

    def charge(self, phase: str, seconds: float) -> None:
        """Count work that was not done again as what it took when it was."""
        self.laps[phase].append(seconds)
        self.charged += seconds

    def read(self) -> PhaseSeconds:
        """The sums; `build` is the part of verify that went into laying out trees."""
        total = perf_counter() - self.started + self.charged
        return PhaseSeconds(total=total, build=self.build, **{phase: sum(laps) for phase, laps in self.laps.items()})


class SpeculativeDecoder(Decoder):
    """Decoding of one prompt at a time with drafts from `drafter`, verified by `target`: greedy, or as a sampler says.

    With a drafter that proposes nothing this is plain greedy decoding: the denominator of every speedup.
    """

    kind = "drafter"

    def __init__(self, target: Target, drafter: Drafter, baseline: str = "vanilla") -> None:
        self.drafter = drafter
        self.baseline = baseline
        self.traits = drafter.traits
        self.bind(target)

    def bind(self, target: Target) -> None:
        self.target = target
        # of recorded tokens the vocabulary is not known
        self._vocabulary = target.model and target.model.get_input_embeddings().num_embeddings
        self.drafter.bind(target)

    def generate(
        self,
        prompt: Prompt,
        stop: Stop,
        sampler: Sampler | None = None,
        emit: Callable[[list[int]], None] | None = None,
    ) -> GenerationResult:
        """As `Decoder.generate`.

        Args:
            sampler: chooses the tokens; None takes the likeliest.
            emit: is given the answer's tokens, in order, as soon as they are known.
        """
        room = self.room(prompt)
        output: list[int] = []
        accept_lengths: list[int] = []
        tree_sizes: list[int] = []
        self.target.synchronize()
        watch = Stopwatch()

        seen = self._read(prompt, watch)
        watch.charge("prefill", seen.saved_seconds)
        emitted = [int(seen.choices[-1])]
        if sampler:
            with watch("prefill"):
                emitted = [sampler.first(prompt.ids, self.target)]
        while True:
            kept, reason = stop.trim(output, emitted, room)
            output += kept
            cached = len(prompt.ids) + len(output) - 1
            try:
                with watch("draft"), self._named(cached):
                    self.drafter.observe(kept)  # the end as well: some remember answers
            finally:  # only now: a drafter may time steps, and what the caller does with tokens is no part of one
                if emit:
                    emit(kept)
            if reason:
                break
            for_drafts = self.target.draft_limit - len(prompt.ids)
            max_depth = min(stop.max_new_tokens, room, for_drafts) - len(output) - 1
            emitted, num_draft = self.step(kept, cached, max_depth, watch, sampler)
            tree_sizes.append(num_draft)
            accept_lengths.append(len(emitted))

        self.target.synchronize()
        seconds = watch.read()
        # The last step may have emitted more than was kept.
        if accept_lengths:
            accept_lengths[-1] = len(kept)
        laps = watch.laps["draft"]  # of a step two: it observes, and proposes
        draft_us = [round(1e6 * sum(both), 1) for both in zip(laps[::2], laps[1::2], strict=False)]
        return GenerationResult(output, accept_lengths, tree_sizes, seconds, reason, draft_us)

    def _read(self, prompt: Prompt, watch: Stopwatch) -> Seen:
        """Target and drafter read the prompt. A drafter that needs nothing of what the
        target says, and no device, indexes on the host while a device reads.
        """
        on_host = self.drafter.traits.reads == "tokens" and not self.drafter.traits.uses_device
        if on_host and isinstance(self.target, ReadsAhead):
            with watch("prefill"):
                self.target.begin_prefill(prompt.ids)
            with watch("index"):
                self.drafter.start(prompt)
            with watch("prefill"):
                return self.target.end_prefill()
        with watch("prefill"):
            seen = self.target.prefill(prompt.ids)
        with watch("index"):
            self.drafter.start(prompt)
        return seen

    def step(
        self, new_ids: list[int], cached: int, max_depth: int, watch: Stopwatch, sampler: Sampler | None = None
    ) -> tuple[list[int], int]:
        """One decoding step.

        Args:
            new_ids: the tokens that the previous step emitted, which the drafter has observed; the last is the pending
                root of the draft.
            cached: number of tokens in the target's cache.
            max_depth: deepest draft that the answer still has room for.

        Returns:
            The tokens it emits (one more than were accepted) and the number of nodes drafted.
        """
        with watch("draft"):
            tree = self._draft(new_ids[-1], cached, max_depth)
        with watch("verify"):
            seen = self.target.verify(tree, self.drafter.traits.reads_top_k)
            next_tokens = sampler.next_tokens(new_ids, self.target) if sampler else seen.choices
            path = verify_greedy(tree, next_tokens)  # accept
        watch.build += seen.build_seconds
        with watch("commit"):
            self.target.commit(cached, path)
        return [*tree.tokens[path[1:]].tolist(), int(next_tokens[path[-1]])], tree.num_draft

    def _where(self, cached: int) -> str:
        return f"{type(layers(self.drafter)[-1]).__name__}, step behind {cached} cached tokens"

    @contextlib.contextmanager
    def _named(self, cached: int) -> Iterator[None]:
        """Whatever the drafter raises names it and the step."""
        try:
            yield
        except Exception as error:
            if "OutOfMemory" in type(error).__name__:  # torch's, which a run notes; there is no torch here
                raise
            raise DrafterError(f"{self._where(cached)}: {type(error).__name__}: {first_line(error)}") from error

    def _draft(self, root: int, cached: int, max_depth: int) -> DraftTree:
        """The drafter's tree behind the text, cut to the room there is. Without room the drafter is not asked.

        Raises:
            DrafterError: the tree would change the answer.
        """
        max_draft, where = self.target.max_draft, self._where(cached)
        if max_draft < 1 or max_depth < 1:
            return DraftTree.root_only(root)
        with self._named(cached):
            tree = self.drafter.propose(max_draft)
        if not isinstance(tree, DraftTree):
            raise DrafterError(f"{where}: it proposed a {type(tree).__name__}; a DraftTree is needed")
        if tree.tokens.dtype.kind not in "iu" or tree.parents.dtype.kind not in "iu":
            raise DrafterError(f"{where}: its tree is of {tree.tokens.dtype}; token ids and parents are integers")
        if tree.tokens[0] != root:
            raise DrafterError(f"{where}: the draft's root is {tree.tokens[0]}, the last token {root}")
        least, most = int(tree.tokens.min()), int(tree.tokens.max())
        if least < 0 or (self._vocabulary and most >= self._vocabulary):
            known = f"from 0 to {self._vocabulary - 1}" if self._vocabulary else "at least 0"
            raise DrafterError(f"{where}: drafted token {least if least < 0 else most}; tokens are {known}")
        return tree.pruned(max_draft, max_depth)
