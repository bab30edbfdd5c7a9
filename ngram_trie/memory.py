"""What drafters know of earlier answers: recorded ones, and those that they remember themselves.

In neither is a question drafted from an answer to itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from ngram_trie.drafter import Drafter, check_bool, check_place
from ngram_trie.prompt import Prompt
from ngram_trie.store.lines import Row, is_token_ids, read_objects

T = TypeVar("T")
#: Data set and question id.
Key: TypeAlias = tuple[str, str]
#: Recorded answers are dealt to so many parts; for a question of one part the others are known.
FOLDS = 10


def read_answers(path: Path) -> list[dict[str, Any]]:
    """The answers of a file that `blend.background.AnswerStore.save` wrote, or of a recording
    (`ngram_trie.bench.traces`): data set, question id, turn and token ids of each.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line is no answer; the message names file, line and reason.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file of answers; give one of AnswerStore.save or a recording")
    # a recording says so of texts that were tokenised anew
    return [_answer(row) for _, row in read_objects(path) if row.get("token_count_matches") is not False]


def _answer(row: Row) -> dict[str, Any]:
    turn = row.get("turn", 0)
    if not is_token_ids(ids := row.get("output_token_ids")) or type(turn) is not int:
        raise ValueError(f"{row.where}: no answer: output_token_ids must be a list of token ids, turn an integer")
    names = {name: "" if row.get(name) is None else str(row[name]) for name in ("dataset", "category", "question_id")}
    about = {"dataset": names["dataset"] or names["category"], "question_id": names["question_id"]}
    return {**about, "turn": turn, "output_token_ids": ids}


def check_answers(prompt: Prompt, datasets: Collection[str], path: Path | None) -> None:
    """Raises:
    ValueError: whether a file with answers of these data sets holds one to this question cannot be known.
    """
    if path and prompt.question_id and prompt.dataset not in datasets:
        raise ValueError(
            f"answers={path}: of {', '.join(sorted(datasets))}, not of {prompt.dataset}: whether one answers question "
            f"{prompt.question_id} cannot be known; give answers that name its data set"
        )


class RecordedAnswers(Generic[T]):
    """What is made of recorded answers, for each question without its own: questions are dealt to `FOLDS` parts in
    turn, and one of theirs has what is made of the other parts, one of the same data sets that is not among them that
    of all.

    Args:
        path: a file of answers; None for none.
        make: of the answers of several questions, token ids each.

    Raises:
        FileNotFoundError, ValueError: see `read_answers`.
    """

    def __init__(self, path: Path | None, make: Callable[[list[list[int]]], T]) -> None:
        answers = read_answers(path) if path else []
        rows = [((row["dataset"], row["question_id"]), row["output_token_ids"]) for row in answers]
        self._path = path
        self._parts = {key: index % FOLDS for index, key in enumerate(dict.fromkeys(key for key, _ in rows))}
        self._made = [make([ids for key, ids in rows if self._parts[key] != part]) for part in range(FOLDS + 1)]

    def beside(self, prompt: Prompt) -> T:
        """What is made of answers to other questions.

        Raises:
            ValueError: whether one of them is to this question cannot be known.
        """
        check_answers(prompt, {dataset for dataset, _ in self._parts}, self._path)
        return self._made[self._parts.get(prompt.question, FOLDS)]


def answers_file(answers: object) -> Path | None:
    """The file that the setting `answers` gives.

    Raises:
        ValueError: it cannot be that of a file.
    """
    if answers is not None:
        check_place("answers", answers, " or null")
    return Path(str(answers)) if answers else None


class KeepingDrafter(Drafter):
    """A drafter with tables of what it has met, kept from one prompt to the next if that is asked for. It is then
    "warm". Another model begins with empty ones: it has another vocabulary.

    Args:
        keep_between_prompts: whether they are kept.
    """

    not_sent: ClassVar[Sequence[str]] = ("target", "_model")
    target: Any = None
    _model: Any = None

    def __init__(self, keep_between_prompts: bool) -> None:
        check_bool("keep_between_prompts", keep_between_prompts)
        self.keep_between_prompts = keep_between_prompts
        if keep_between_prompts:
            self.traits = replace(self.traits, state="warm")
        self.forget()

    @abstractmethod
    def forget(self) -> None:
        """Begin with empty tables."""

    def bind(self, target: Any) -> None:
        if target.model is not self._model:
            self.forget()
        self.target, self._model = target, target.model

    def start(self, prompt: Prompt) -> None:
        if not self.keep_between_prompts:
            self.forget()
        super().start(prompt)


class Memory(Generic[T]):
    """What is remembered of answers, the oldest first, each by its question and turn.

    Attributes:
        answers: by question and turn; those without a question id are all different.
    """

    def __init__(self) -> None:
        self.answers: OrderedDict[tuple[Key, int], T] = OrderedDict()
        self._unnamed = 0

    def add(self, question: Key, turn: int, answer: T) -> bool:
        """Remember an answer, unless one to the same question and turn is; whether it was added."""
        if not question[1]:
            self._unnamed += 1
            turn = -self._unnamed
        return self.answers.setdefault((question, turn), answer) is answer

    def beside(self, question: Key) -> list[T]:
        """Those to other questions; all, if this one has no id."""
        return [answer for (key, _), answer in self.answers.items() if not question[1] or key != question]


class RememberingDrafter(Drafter):
    """A drafter that may remember its answers, each when the next prompt starts."""

    _prompt: Prompt | None = None
    _output: list[int]

    @abstractmethod
    def take(self, prompt: Prompt, output: list[int]) -> None:
        """Remember an answer, which is not empty."""

    def remember(self) -> None:
        """Remember the answer so far; `start` does it with the previous one."""
        if self._prompt and self._output:
            self.take(self._prompt, self._output)
        self._prompt, self._output = None, []

    def start(self, prompt: Prompt) -> None:
        self.remember()
        super().start(prompt)
        self._prompt = prompt

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        self._output += map(int, new_ids)
