"""The text world: short texts about invented bridges, museums, ships and people, with questions and reference answers.

The tiny model is trained on endless fresh samples of it and tested on subjects that training never sees
(`is_held_out`). The grammar is data (`data/tiny/grammar.yaml`); this module only draws from it.

Four tasks mirror the paper's four data sets: `summarization` and `rag` (Spec-Bench), `open_qa` (TriviaQA over retrieved
passages), `attributed_qa` (Hagrid). Answers say some things in words of their own and quote the rest, so that a drafter
that copies from the prompt is right often, but never always.
"""

from __future__ import annotations

import functools
import random
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

GRAMMAR = Path(__file__).parent / "tiny" / "grammar.yaml"
TASKS = ("summarization", "rag", "open_qa", "attributed_qa")
SLOT = re.compile(r"\{(\w+)\}")
YEARS = tuple(str(year) for year in range(1830, 2010))
NUMBERS = tuple(str(number) for number in range(20, 400, 3))
LARGE = tuple(f"{thousands},000" for thousands in range(12, 99))


@functools.cache
def grammar() -> dict[str, Any]:
    """The parsed grammar, with the number lists added to its word lists."""
    parsed: dict[str, Any] = yaml.safe_load(GRAMMAR.read_text(encoding="utf-8"))
    parsed["lists"] |= {"year": YEARS, "number": NUMBERS, "large": LARGE}
    return parsed


def fill(pattern: str, rng: random.Random, **known: str) -> str:
    """Replace every slot of `pattern`: by `known`, else by a random entry of the list of that name."""
    lists = grammar()["lists"]
    return SLOT.sub(lambda slot: known.get(slot[1]) or rng.choice(lists[slot[1]]), pattern)


def sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def is_held_out(name: str) -> bool:
    """Whether what has this name is kept for testing: one in eight, by a hash of the name."""
    return zlib.crc32(name.encode()) % 8 == 0


@dataclass(frozen=True)
class Fact:
    """One attribute of a subject: its value and the sentence that states it."""

    attribute: str
    value: str
    stated: str


@dataclass(frozen=True)
class Subject:
    kind: str
    name: str
    facts: tuple[Fact, ...]

    @property
    def spec(self) -> dict[str, Any]:
        return grammar()["kinds"][self.kind]

    @property
    def it(self) -> str:
        """How the subject is called the second time."""
        return SLOT.sub(self.name.split()[-1], self.spec["it"])

    def clause(self, fact: Fact, wording: int) -> str:
        """The answer, in words of its own, to the question asked with the same `wording`."""
        pattern = self.spec["attributes"][fact.attribute]["a"][wording]
        return sentence(pattern.format(v=fact.value, it=self.it))

    def question(self, facts: Sequence[Fact], wordings: Sequence[int]) -> str:
        parts = [
            self.spec["attributes"][fact.attribute]["q"][wording].format(name=self.name if first else self.it)
            for first, fact, wording in zip([True] + [False] * len(facts), facts, wordings, strict=False)
        ]
        return sentence(", and ".join(parts)) + "?"


def draw_subject(rng: random.Random, accept: Callable[[str], bool], kind: str | None = None) -> Subject:
    """A subject with a value and a statement for every attribute of its kind; its name satisfies `accept`."""
    kind = kind or rng.choice(list(grammar()["kinds"]))
    spec = grammar()["kinds"][kind]
    while not accept(name := fill(spec["name"], rng)):
        pass
    facts = []
    for attribute, wording in spec["attributes"].items():
        value = fill(wording["v"], rng)
        facts.append(Fact(attribute, value, sentence(fill(rng.choice(wording["s"]), rng, name=name, v=value))))
    return Subject(kind, name, tuple(facts))


def filler(rng: random.Random) -> str:
    return sentence(fill(rng.choice(grammar()["fillers"]), rng))


@dataclass(frozen=True)
class Passage:
    """A short text about one subject; `facts` are those that it states."""

    subject: Subject
    facts: tuple[Fact, ...]
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join(self.sentences)

    def quote(self, fact: Fact, length: int = 1) -> str:
        """`length` sentences from the one that states `fact` on."""
        start = self.sentences.index(fact.stated)
        return " ".join(self.sentences[start : start + length])


def write_passage(rng: random.Random, subject: Subject, facts: Sequence[Fact], num_fillers: int) -> Passage:
    """The statements of `facts` and some fillers; a fact comes first, so that the text names its subject."""
    rest = [fact.stated for fact in facts[1:]] + [filler(rng) for _ in range(num_fillers)]
    rng.shuffle(rest)
    return Passage(subject, tuple(facts), (facts[0].stated, *rest))


@dataclass(frozen=True)
class Turn:
    """A question about the context, the reference answer, and the values that a right answer must contain."""

    question: str
    answer: str
    key_facts: tuple[str, ...]


@dataclass
class Sample:
    """A task over one context. The first user message is `before + context + after`; later turns are bare questions."""

    task: str
    before: str
    context: str
    after: str
    turns: list[Turn] = field(default_factory=list)

    def messages(self) -> list[dict[str, str]]:
        """The whole conversation with the reference answers, as a chat template takes it."""
        messages = []
        for index, turn in enumerate(self.turns):
            content = f"{self.before}{self.context}{self.after}" if index == 0 else turn.question
            messages += [{"role": "user", "content": content}, {"role": "assistant", "content": turn.answer}]
        return messages


@dataclass(frozen=True)
class Query:
    """A question about two facts of one subject, each asked in one of the three wordings."""

    subject: Subject
    facts: tuple[Fact, ...]
    wordings: tuple[int, ...]

    @property
    def text(self) -> str:
        return self.subject.question(self.facts, self.wordings)

    def places(self, passages: Sequence[Passage]) -> list[int]:
        """For each fact the number (from 1) of the passage that states it.

        Raises:
            KeyError: none of them does.
        """
        stated = {fact: k for k, p in enumerate(passages, 1) if p.subject.name == self.subject.name for fact in p.facts}
        return [stated[fact] for fact in self.facts]

    def turn(self, task: str, passages: Sequence[Passage]) -> Turn:
        """The question with its reference answer, worded the way `task` does."""
        places = self.places(passages)
        answer = COMPOSE[task](self, places, [passages[k - 1] for k in places])
        return Turn(self.text, answer, tuple(fact.value for fact in self.facts))


def draw_query(rng: random.Random, passages: Sequence[Passage]) -> Query:
    subject = rng.choice(passages).subject
    stated = dict.fromkeys(fact for p in passages if p.subject.name == subject.name for fact in p.facts)
    facts = tuple(rng.sample(list(stated), 2))
    return Query(subject, facts, tuple(rng.randrange(3) for _ in facts))


def rag_answer(query: Query, places: Sequence[int], passages: Sequence[Passage]) -> str:
    """Names the passage, then quotes each fact with the sentence that follows and says it again in its own words."""
    words, subject, facts, wordings = grammar()["answers"], query.subject, query.facts, query.wordings
    return " ".join([
        words["rag_open"][wordings[0]].format(name=subject.name, k=places[0]),
        passages[0].quote(facts[0], 2),
        subject.clause(facts[0], wordings[0]),
        words["rag_second"][wordings[1]],
        passages[1].quote(facts[1], 2),
        subject.clause(facts[1], wordings[1]),
    ])  # fmt: skip


def open_qa_answer(query: Query, places: Sequence[int], passages: Sequence[Passage]) -> str:
    """Quotes the first fact, says it in its own words, quotes the second and the two sentences that follow it."""
    words, subject, facts, wordings = grammar()["answers"], query.subject, query.facts, query.wordings
    return " ".join([
        words["open_quote"][wordings[0]],
        passages[0].quote(facts[0]),
        subject.clause(facts[0], wordings[0]),
        passages[1].quote(facts[1], 3),
        subject.clause(facts[1], wordings[1]),
        words["close"][wordings[1]],
    ])  # fmt: skip


def attributed_answer(query: Query, places: Sequence[int], passages: Sequence[Passage]) -> str:
    """Quotes up to two sentences for each part, with their source, and answers it in its own words, with the source."""
    quote = grammar()["answers"]["cite_quote"]
    parts = []
    for fact, wording, k, passage in zip(query.facts, query.wordings, places, passages, strict=True):
        parts += [quote[wording], cited(passage.quote(fact, 2), k), cited(query.subject.clause(fact, wording), k)]
    return " ".join(parts)


def cited(text: str, k: int) -> str:
    """`text` with the number of its source at the end of every sentence."""
    return text.replace(". ", f" [{k}]. ")[:-1] + f" [{k}]."


COMPOSE = {"rag": rag_answer, "open_qa": open_qa_answer, "attributed_qa": attributed_answer}


def summary_turn(rng: random.Random, article: Passage) -> Turn:
    """Ask for a summary that keeps three facts. It repeats the article's lead and the sentences on them, and the second
    of them in words of its own.
    """
    subject, words = article.subject, grammar()["answers"]
    facts = rng.sample(article.facts[1:], 3)
    style = rng.randrange(3)
    labels = [subject.spec["attributes"][fact.attribute]["label"] for fact in facts]
    instruction = grammar()["instructions"]["summarization"][style].format(l1=labels[0], l2=labels[1], l3=labels[2])
    answer = " ".join([
        words["summary_open"][style].format(name=subject.name, what=subject.spec["what"]),
        article.sentences[0],
        article.quote(facts[0]),
        article.quote(facts[1]),
        subject.clause(facts[1], style),
        words["summary_link"][style],
        article.quote(facts[2]),
        words["summary_close"][style].format(it=subject.it),
    ])  # fmt: skip
    return Turn(instruction, answer, tuple(fact.value for fact in facts))


def summarization_sample(rng: random.Random, subject: Subject, num_fillers: int, num_turns: int) -> Sample:
    article = write_passage(rng, subject, rng.sample(list(subject.facts), len(subject.facts)), num_fillers)
    turns = [summary_turn(rng, article) for _ in range(num_turns)]
    return Sample("summarization", turns[0].question + "\n\n", article.text, "", turns)


def qa_prompt(task: str, passages: Sequence[Passage], turns: list[Turn]) -> Sample:
    """One of the three question tasks: `passages` and the first question, laid out as in the task's data set."""
    instruction = grammar()["instructions"][task]
    if task == "open_qa":
        context = "\n\n".join(passage.text for passage in passages)
        return Sample(task, "", context, "\n\n" + instruction.format(question=turns[0].question), turns)
    if task == "rag":
        texts = [f"{sentence(p.subject.name)} (passage {k}): {p.text}" for k, p in enumerate(passages, 1)]
    else:
        texts = [cited(passage.text, k) for k, passage in enumerate(passages, 1)]
    context = "\n".join(texts)
    return Sample(task, "", context, f"\n\n{instruction}\nQuestion: {turns[0].question}", turns)


def task_passages(task: str, rng: random.Random, subjects: Sequence[Subject], num_fillers: int) -> list[Passage]:
    """One passage a subject, of five facts; attributed QA splits each subject's facts over two short sources."""
    passages = []
    for subject in subjects:
        facts = rng.sample(list(subject.facts), 5)
        if task == "attributed_qa":
            passages += [write_passage(rng, subject, part, num_fillers) for part in (facts[:2], facts[2:])]
        else:
            passages.append(write_passage(rng, subject, facts, num_fillers))
    rng.shuffle(passages)
    return passages


def training_sample(rng: random.Random, size: float, num_turns: int, alike: float = 0.5) -> Sample:
    """A fresh sample of a random task about subjects that are not held out. `size` in (0, 1] scales the context from
    one passage to five (or its counterpart); `alike` is the share of its subjects that are of one kind.
    """

    def accept(name: str) -> bool:
        return not is_held_out(name)

    task = rng.choice(TASKS)
    if task == "summarization":
        return summarization_sample(rng, draw_subject(rng, accept), round(rng.uniform(0.3, 1) * size * 26), num_turns)
    count = max(1, round(size * (4 if task == "attributed_qa" else 5)))
    # Of one kind, so that a passage must be told apart by its name, not by its topic.
    kind = rng.choice(list(grammar()["kinds"]))
    subjects: dict[str, Subject] = {}
    while len(subjects) < count:
        subject = draw_subject(rng, accept, kind if rng.random() < alike else None)
        subjects[subject.name] = subject
    num_fillers = rng.choice((0, 1, 1, 2)) if size > 0.3 else 0
    passages = task_passages(task, rng, list(subjects.values()), num_fillers)
    return qa_prompt(task, passages, [draw_query(rng, passages).turn(task, passages) for _ in range(num_turns)])
