"""The command line that writes the bundled test prompts."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sklearn.feature_extraction.text import TfidfVectorizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ngram_trie.cli.app import run
from ngram_trie.data import bundled, skills, world
from ngram_trie.data.prompts import Question, build_prompt

SEED = 2026
NUM_TEST, NUM_WARMUP, NUM_SKILL_TEST = 40, 2, 20
SUBJECTS_PER_KIND = 10
NUM_RETRIEVED = {"rag": 5, "open_qa": 5, "attributed_qa": 8}


@dataclass
class Corpus:
    """Passages with a TF-IDF index."""

    passages: list[world.Passage]

    def __post_init__(self) -> None:
        self.vectorizer = TfidfVectorizer(sublinear_tf=True)
        self.matrix = self.vectorizer.fit_transform([f"{p.subject.name} {p.text}" for p in self.passages])

    def retrieve(self, question: str, count: int) -> list[world.Passage]:
        """The `count` best passages for `question`, in the order of the corpus."""
        scores = (self.matrix @ self.vectorizer.transform([question]).T).toarray().ravel()
        return [self.passages[index] for index in sorted(scores.argsort()[::-1][:count])]


def held_out_subjects(rng: random.Random) -> list[world.Subject]:
    """Up to `SUBJECTS_PER_KIND` of each kind; some kinds have fewer names that are held out."""
    subjects: list[world.Subject] = []
    for kind in world.grammar()["kinds"]:
        drawn = {s.name: s for s in (world.draw_subject(rng, world.is_held_out, kind) for _ in range(100))}
        subjects += list(drawn.values())[:SUBJECTS_PER_KIND]
    return subjects


def question_samples(task: str, rng: random.Random, subjects: list[world.Subject]) -> Iterator[world.Sample]:
    """Questions about `subjects`, each over what retrieval finds for it; kept only if the answer was found."""
    corpus = Corpus(world.task_passages(task, rng, subjects, 1))
    for subject in rng.sample(subjects, len(subjects)):
        own = [passage for passage in corpus.passages if passage.subject.name == subject.name]
        query = world.draw_query(rng, own)
        found = corpus.retrieve(query.text, NUM_RETRIEVED[task])
        if {own[k - 1] for k in query.places(own)} <= set(found):
            yield world.qa_prompt(task, found, [query.turn(task, found)])


def summary_samples(rng: random.Random) -> Iterator[world.Sample]:
    while True:
        subject = world.draw_subject(rng, world.is_held_out)
        yield world.summarization_sample(rng, subject, rng.randrange(14, 27), 1)


def fitting(task: str, samples: Iterable[world.Sample], tokenizer: PreTrainedTokenizerBase) -> Iterator[list[Question]]:
    """The first turns of the samples whose prompts have 300 to 900 tokens, each a conversation of its own."""
    for sample in samples:
        turn = sample.turns[0]
        question = Question(task, "", sample.before, sample.context, sample.after, turn.answer, turn.key_facts)
        if 300 <= len(build_prompt(question, tokenizer).ids) <= 900:
            yield [question]


def skill_questions(task: str, rng: random.Random) -> Iterator[list[Question]]:
    """The turns of one conversation after another; a later turn follows the reference answers of those before it."""
    seen: set[str] = set()
    while True:
        sample = skills.held_out_sample(rng, task)
        question = Question(task, "", sample.before, sample.context, sample.after)
        if question.message in seen:
            continue
        seen.add(question.message)
        turns: list[Question] = []
        for turn in sample.turns:
            if turns:
                history = (*question.history, (question.message, turns[-1].reference))
                question = Question(task, "", turn.question, "", "", turn=len(turns), history=history)
            turns.append(replace(question, reference=turn.answer, key_facts=turn.key_facts))
        yield turns


def write(task: str, conversations: Iterator[list[Question]], num_test: int) -> None:
    """Name the first conversations, those for warming up behind the test questions, and write a line a question; first
    turns without the fields that only later ones have.
    """
    names = [f"{task}-{number:03}" for number in range(1, num_test + 1)]
    names += [f"{task}-warmup-{number}" for number in range(1, NUM_WARMUP + 1)]
    chosen = list(zip(names, conversations, strict=False))
    assert len(chosen) == len(names), f"{task}: only {len(chosen)} questions"
    fields = ("question_id", "before", "context", "after", "reference", "key_facts")
    lines = [
        {field: getattr(question, field) for field in (*fields, *(("turn", "history") if question.turn else ()))}
        for name, turns in chosen
        for question in (replace(turn, question_id=name) for turn in turns)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (bundled.FOLDER / f"{task}.jsonl").write_text(text, encoding="utf-8")
    print(f"{task}.jsonl: {len(lines)} prompts")


def main() -> None:
    """Write the bundled test prompts: the four tasks of the text world, then the three skills (seconds).

    All subjects are held out from training. The question tasks share one small corpus. The passages of each prompt are
    what TF-IDF retrieval finds for the question in that corpus, so distractors resemble what a retriever finds. They
    are in the order of the corpus, so that the place of the right passage does not give it away.
    """
    tokenizer = AutoTokenizer.from_pretrained(bundled.MODEL)
    rng = random.Random(SEED)
    subjects = held_out_subjects(rng)
    bundled.FOLDER.mkdir(parents=True, exist_ok=True)
    for task in world.TASKS:
        samples = summary_samples(rng) if task == "summarization" else question_samples(task, rng, subjects)
        write(task, fitting(task, samples, tokenizer), NUM_TEST)
    rng = random.Random(SEED)
    for task in skills.TASKS:
        write(task, skill_questions(task, rng), NUM_SKILL_TEST)


if __name__ == "__main__":
    run(main)
