"""The four data sets over the documentation of six packages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ngram_trie.data.docs.corpus import documentation
from ngram_trie.data.prompts import Question
from ngram_trie.data.retrieval.corpus import Passage
from ngram_trie.data.sources import Published
from ngram_trie.drafter import check_int

QUESTIONS = Path(__file__).with_name("questions.yaml")
RETRIEVED = Path(__file__).with_name("retrieved.json")
SUMMARIZATION = "docs_summarization"


@dataclass(frozen=True)
class Layout:
    """The message of a task.

    Attributes:
        before, after: what stands before and after the passages; {question} in the latter is what is asked.
        passage: one passage, of {number}, {title} and {text}.
    """

    before: str
    passage: str
    after: str


#: Words with which SmolLM2-135M repeats itself least on odd questions. Where the message ended with a line
#: "Question: ...", it said nothing but that it answers; "a few sentences" about code it fills with one.
LAYOUTS = {
    "docs_rag": Layout("", "{title}\n{text}", "\n\n{question}"),
    "docs_open_qa": Layout("", "{title}\n{text}", "\n\n{question} Answer in one sentence, from the passages above."),
    "docs_attributed_qa": Layout(
        "",
        "[{number}] {title}\n{text}",
        "\n\nAnswer this question from the passages above, and quote the sentence that supports your answer, with the "
        "number of its passage: {question}",
    ),
    SUMMARIZATION: Layout("", "{title}\n{text}", "\n\nWrite a summary of the text above in three sentences."),
}


@dataclass(frozen=True)
class Entry:
    """One line of questions.yaml.

    Attributes:
        id: task and number, from 1.
        symbol: whose docstring answers the question, or is to be summarized.
        facts: what a right answer contains.
        ask: the question; "" for a summary.
    """

    id: str
    symbol: str
    facts: tuple[str, ...]
    ask: str = ""


@cache
def entries(path: Path = QUESTIONS) -> dict[str, list[Entry]]:
    """What is asked, by task; the last entries of each are for warming up."""
    tasks = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {
        task: [
            Entry(f"{task}-{number:03d}", row["symbol"], tuple(row["facts"]), row.get("ask", ""))
            for number, row in enumerate(rows, 1)
        ]
        for task, rows in tasks.items()
    }


class DocsDataset(Published):
    """One task over the documentation of six packages. Passages were retrieved once; their ids are kept beside the
    questions.

    Args:
        name: the dataset's name in records.
        task: "docs_rag", "docs_open_qa", "docs_attributed_qa" or "docs_summarization".
        num_passages: so many passages are given: those that were retrieved, from the best on, and for a long prompt
            those that follow the best one in the documentation, to its end and from its beginning.
        options: `warmup`, `limit` and `parity`, as in `data.sources.Published`.

    Raises:
        ValueError: a value that is not allowed; the message says what is.
    """

    def __init__(self, name: str, task: str, num_passages: int = 5, **options: Any) -> None:
        super().__init__(name, **options)
        if task not in LAYOUTS:
            raise ValueError(f"dataset.task={task}: must be one of {', '.join(LAYOUTS)}")
        check_int("dataset.num_passages", num_passages, 1)
        docs, retrieved = documentation(), json.loads(RETRIEVED.read_text(encoding="utf-8"))
        self._layout = LAYOUTS[task]
        questions, ids = [], list(docs.passages)
        if num_passages > len(ids):
            raise ValueError(f"dataset.num_passages={num_passages}: the documentation has {len(ids)}")
        for entry in entries()[task]:
            if task == SUMMARIZATION:
                passages = [Passage(entry.symbol, entry.symbol, docs.docstrings[entry.symbol])]
            else:
                found = [id for id, _ in retrieved["passages"][entry.id]]
                best = ids.index(found[0])
                found = list(dict.fromkeys([*found, *ids[best:], *ids[:best]]))
                passages = [docs.passages[id] for id in found[:num_passages]]
            questions.append(self._question(entry, passages))
        self.divide(questions)

    def _question(self, entry: Entry, passages: list[Passage]) -> Question:
        layout = self._layout
        texts = tuple(
            layout.passage.format(number=number, title=passage.title, text=passage.text)
            for number, passage in enumerate(passages, 1)
        )
        after = layout.after.format(question=entry.ask)
        return Question(
            self.name, entry.id, layout.before, "\n\n".join(texts), after,
            key_facts=entry.facts, released_span="context", released_texts=texts,
        )  # fmt: skip
