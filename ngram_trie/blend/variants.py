"""The drafters of the blend: cold, over a table of successors, over earlier answers; see docs/blend.md."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from ngram_trie.blend.background import NOTHING, AnswerStore, Background, over
from ngram_trie.blend.bigram import of_answers, of_model
from ngram_trie.blend.context_index import BlendIndex
from ngram_trie.blend.occurrences import Part
from ngram_trie.blend.prediction import SOURCES
from ngram_trie.drafter import Drafter, TopK, Traits, check_choice, check_int, check_place, check_positive, check_share
from ngram_trie.memory import Memory, RecordedAnswers, RememberingDrafter, answers_file, check_answers
from ngram_trie.prompt import Prompt
from ngram_trie.store.ngram_tables import BUILD_COMMAND, NgramTables
from ngram_trie.tree import DraftTree, IntArray, Sources


@functools.lru_cache(maxsize=2)
def _of_tables(folder: Path, written: int, k: int, escape: float) -> Background:
    """Of a folder's tables, once in a process: an engine copies drafters for each request."""
    return of_model(NgramTables.open(folder), k, escape)


class BlendDrafter(Drafter):
    """Drafts the likeliest continuations of prompt and output under the blend of all orders; see `BlendIndex`.

    Args:
        num_draft: most nodes of a draft; `propose` takes its budget where that is smaller.
        escape, max_order, num_frequent, max_occurrences: as in `BlendIndex`.
        tables: folder of the model's own bigram (`scripts.build_ngram_tables`; N-Grammys, section 4.1), which the text
            falls back to, or what else the drafter knows; opened when it is first needed.
        k: successors of each token that are taken of the bigram.
    """

    traits = Traits(scores_nodes=True)
    #: Another process opens the tables itself, and starts a text of its own.
    not_sent: ClassVar[Sequence[str]] = ("_index", "_bigram")

    def __init__(
        self,
        *,
        num_draft: int = 32,
        escape: float = 3.5,
        max_order: int = 8,
        num_frequent: int = 64,
        max_occurrences: int = 128,
        tables: str | None = None,
        k: int = 10,
    ) -> None:
        check_int("num_draft", num_draft, 1)
        check_positive("escape", escape)
        check_int("max_order", max_order, 1)
        check_int("num_frequent", num_frequent, 0)
        check_int("max_occurrences", max_occurrences, 1)
        check_int("k", k, 1)
        self.num_draft, self.k = num_draft, k
        self._settings: dict[str, Any] = {
            "escape": float(escape),
            "max_order": max_order,
            "num_frequent": num_frequent,
            "max_occurrences": max_occurrences,
        }
        if tables is not None:
            check_place("tables", tables, " or null")
        self.tables = Path(tables) if tables else None
        if tables:
            self.traits = replace(self.traits, state="preloaded")

    def parts(self) -> Mapping[Path, str]:
        if not self.tables:
            return {}
        return {self.tables / "header.json": f"`{BUILD_COMMAND}{self.tables.name}` builds it"}

    def bind(self, target: Any) -> None:
        if self.tables and target.model:  # a recorded answer does not say which weights gave it
            NgramTables.open(self.tables).check(target.model, self.tables)

    @functools.cached_property
    def _bigram(self) -> Background:
        assert self.tables
        header = self.tables / "header.json"
        written = header.stat().st_mtime_ns if header.exists() else 0
        return _of_tables(self.tables, written, self.k, self._settings["escape"])

    def background(self, prompt: Prompt) -> Background:
        """What is known besides the prompt."""
        return self._bigram if self.tables else NOTHING

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._index = BlendIndex(prompt.ids, background=self.background(prompt), **self._settings)

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        self._index.extend(new_ids)

    def propose(self, budget: int) -> DraftTree:
        return self._index.draft(min(self.num_draft, budget))

    def sources_of(self, tree: DraftTree) -> Sources | None:
        return Sources(SOURCES, self._index.explain(tree).argmax(1))


class BlendBigramDrafter(BlendDrafter):
    """The blend over a table of successors: the model's own bigram, or that of recorded answers.

    Args:
        answers: a file of recorded answers (`read_answers`), which then give the table in place of `tables`. Their
            questions are dealt to ten parts in turn, and a question of theirs is drafted with what the other nine parts
            hold, one of the same data sets that is not among them with all.
        options: as in `BlendDrafter`.
    """

    traits = replace(BlendDrafter.traits, state="preloaded")
    not_sent = (*BlendDrafter.not_sent, "_of_answers")

    def __init__(self, *, tables: str | None = None, answers: str | None = None, **options: Any) -> None:
        if not tables and not answers:
            raise ValueError("blend_bigram needs tables, a folder, or answers, a file of recorded ones")
        self.answers = answers_file(answers)
        super().__init__(tables=None if answers else tables, **options)

    def parts(self) -> Mapping[Path, str]:
        known = {self.answers: "record answers: a live run writes traces.jsonl"} if self.answers else {}
        return {**super().parts(), **known}

    def background(self, prompt: Prompt) -> Background:
        return super().background(prompt) if self.tables else self._of_answers.beside(prompt)

    @functools.cached_property
    def _of_answers(self) -> RecordedAnswers[Background]:
        return RecordedAnswers(self.answers, lambda others: of_answers(others, self.k, self._settings["escape"]))


class BlendWarmDrafter(RememberingDrafter, BlendDrafter):
    """The blend over earlier answers: each is remembered when the next prompt starts, the oldest are forgotten.

    A question is never drafted from an answer to itself that is remembered; answers without a question id are.

    Args:
        max_tokens: as in `AnswerStore`.
        max_earlier: `max_occurrences` there.
        answers: a file of answers (`AnswerStore.save`, or recorded ones) that are remembered from the start.
        options: as in `BlendDrafter`.

    Attributes:
        store: what is remembered; `store.save(path)` keeps it.
    """

    traits = replace(BlendDrafter.traits, state="warm", keeps_answers=True)

    def __init__(
        self, *, max_tokens: int = 65_536, max_earlier: int = 32, answers: str | None = None, **options: Any
    ) -> None:
        check_int("max_tokens", max_tokens, 4)
        check_int("max_earlier", max_earlier, 1)
        super().__init__(**options)
        self._limits = max_tokens, max_earlier
        self.answers = answers_file(answers)
        if answers:
            self.traits = replace(self.traits, state="preloaded")
        self._store: AnswerStore | None = None

    def parts(self) -> Mapping[Path, str]:
        known = {self.answers: "give a file that AnswerStore.save wrote, or recorded answers"} if self.answers else {}
        return {**super().parts(), **known}

    @property
    def store(self) -> AnswerStore:
        if self._store is None:
            limits = self._limits
            self._store = AnswerStore.load(self.answers, *limits) if self.answers else AnswerStore(*limits)
        return self._store

    def bind(self, target: Any) -> None:
        super().bind(target)
        self._store = self.store  # read before a prompt is timed

    def take(self, prompt: Prompt, output: list[int]) -> None:
        self.store.add(output, *prompt.question, prompt.turn)

    def background(self, prompt: Prompt) -> Background:
        check_answers(prompt, self.store.datasets, self.answers)
        store = self.store.background(*prompt.question)
        return over(store, super().background(prompt)) if self.tables else store


#: The tokens that the model's head is computed for at the prompt's places.
Vocabulary = Literal["prompt", "all"]


class BlendLogitsDrafter(BlendDrafter):
    """The blend over what followed and what the model predicted: n-grams with hard and soft counts.

    At each earlier place whose context agrees, the token that followed counts, and the model's distribution there, by
    its `top_k` likeliest tokens; how much of the two, the tokens of the answer so far say (`BlendIndex.credit`). Places
    are those of the answer, those of the prompt where `prompt_step` says so, and drafted nodes that were not accepted:
    they have a distribution and no successor.

    Args:
        top_k, least, max_soft, max_rejected, hard, soft: as in `BlendIndex`.
        prompt_step: the model's head is computed at every prompt_step-th token of the prompt; 0: only at the last one.
        vocabulary: for which tokens it is computed there: the "prompt"'s own, or "all".
        options: as in `BlendDrafter`.
    """

    traits = replace(BlendDrafter.traits, reads="top-k tokens")
    not_sent = (*BlendDrafter.not_sent, "target", "_model")
    target: Any = None
    _model: Any = None

    def __init__(
        self,
        *,
        escape: float = 0.7,
        top_k: int = 16,
        least: float = 0.01,
        max_soft: int = 16,
        max_rejected: int = 16,
        hard: float = 1.0,
        soft: float = 1.0,
        prompt_step: int = 1,
        vocabulary: Vocabulary = "prompt",
        **options: Any,
    ) -> None:
        super().__init__(escape=escape, **options)
        check_int("top_k", top_k, 1)
        check_share("least", least)
        if least == 1:
            raise ValueError("least=1: must be below 1")
        check_int("max_soft", max_soft, 0)
        check_int("max_rejected", max_rejected, 0)
        check_positive("hard", hard)
        check_positive("soft", soft)
        check_int("prompt_step", prompt_step, 0)
        check_choice("vocabulary", vocabulary, get_args(Vocabulary))
        self.prompt_step, self.vocabulary = prompt_step, vocabulary
        self.traits = replace(self.traits, reads_top_k=top_k)
        self._settings |= {
            "top_k": top_k,
            "least": float(least),
            "max_soft": max_soft,
            "max_rejected": max_rejected,
            "hard": float(hard),
            "soft": float(soft),
        }

    def bind(self, target: Any) -> None:
        super().bind(target)
        self.target = target

    def recalled(self, prompt: Prompt) -> Iterable[Part]:
        """What is known of earlier answers."""
        return ()

    def start(self, prompt: Prompt) -> None:
        Drafter.start(self, prompt)
        self._index = BlendIndex(background=self.background(prompt), **self._settings)
        for part in self.recalled(prompt):
            self._index.recall(part)
        self._first = int(self._index.extend(prompt.ids)[0])
        self._among = np.unique(prompt.ids) if self.vocabulary == "prompt" else None

    def observe(self, new_ids: Sequence[int]) -> None:
        Drafter.observe(self, new_ids)
        root = self._index.last_place
        self._index.credit(new_ids)
        self._places = np.concatenate([[root], self._index.extend(new_ids)])

    def propose(self, budget: int) -> DraftTree:
        self.learn()
        return super().propose(budget)

    def learn(self) -> None:
        """Take over what the last forward said; `propose` does so first."""
        last, k, least = self.target.last, self._settings["top_k"], self._settings["least"]
        if last.prompt is None:
            places = self._index.reject(last.tree, last.path, self._places[: len(last.path)])
            self._attach(places, self.target.top_k(k, least=least))
            return
        end = int(self._places[0])
        prompt = np.arange(self._first, end + 1)
        if self.prompt_step and len(prompt) > 1:
            asked = np.arange(0, len(prompt) - 1, self.prompt_step)
            self._attach(prompt, self.target.top_k_in_prompt(asked, k, self._among, least))
        self._attach(prompt[-1:], self.target.top_k(k, least=least))

    def _attach(self, places: IntArray, likely: TopK) -> None:
        """Put distributions behind the index's `places` of the nodes, or of the prompt's positions."""
        self._index.attach(places[likely.places], likely.tokens, likely.probs)


class BlendLogitsWarmDrafter(RememberingDrafter, BlendLogitsDrafter):
    """The same over earlier answers as well, with their distributions and rejected drafts, in one index.

    An answer is remembered when the next prompt starts; the oldest are forgotten. A question is never drafted from what
    is remembered of itself; answers without a question id are.

    Args:
        max_places: of all answers together, tokens and rejected drafts. A place takes 24 bytes,
            and 12 for each token that was likely behind it.
        options: as in `BlendLogitsDrafter`.
    """

    traits = replace(BlendLogitsDrafter.traits, state="warm", keeps_answers=True)

    def __init__(self, *, max_places: int = 262_144, **options: Any) -> None:
        super().__init__(**options)
        check_int("max_places", max_places, 1)
        self.max_places = max_places
        self._memory: Memory[Part] = Memory()

    def bind(self, target: Any) -> None:
        if target.model is not self._model:
            self._memory, self._prompt = Memory(), None  # another model has another vocabulary
        self._model = target.model
        super().bind(target)

    def take(self, prompt: Prompt, output: list[int]) -> None:
        self._memory.add(prompt.question, prompt.turn, self._index.part(self._first + len(prompt.ids) - 1))
        while sum(len(part.ids) for part in self._memory.answers.values()) > self.max_places:
            self._memory.answers.popitem(last=False)

    def __getstate__(self) -> dict[str, Any]:
        self.remember()
        return super().__getstate__()

    def recalled(self, prompt: Prompt) -> Iterable[Part]:
        return self._memory.beside(prompt.question)
