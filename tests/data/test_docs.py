"""The documentation that ships: how it is cut, and the data sets made of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.datasets import configured

from ngram_trie.bench.quality import measure
from ngram_trie.data.docs import corpus, tasks
from ngram_trie.data.docs.corpus import Documentation, documentation, split
from ngram_trie.data.docs.tasks import LAYOUTS, SUMMARIZATION, Entry, entries
from ngram_trie.methods import ConfigError

WORDS = " ".join(f"w{number}" for number in range(60))


@pytest.mark.parametrize("words", [40, 100, 101, 250])
def test_passages_of_100_words_hold_every_word_once(words: int) -> None:
    text = "\n".join(f"  line{number} word" for number in range(words // 2)) + (" odd" if words % 2 else "")
    passages = split("a.b", text)
    assert [passage.id for passage in passages] == [f"a.b#{number}" for number in range(1, -(-words // 100) + 1)]
    assert [len(passage.text.split()) for passage in passages[:-1]] == [100] * (len(passages) - 1)
    assert " ".join(passage.text for passage in passages).split() == text.split()
    assert passages[0].title == "a.b" and "\n" in passages[0].text


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Documentation:
    """Six symbols with a passage each, and five questions (two of them for warming up) about them."""
    docs = Documentation({"numpy": "9.9"}, {f"pkg.f{number}": f"Does {number}.\n\n{WORDS}" for number in range(6)})
    asked = {
        task: [Entry(f"{task}-00{n}", "pkg.f1", ("Does 1",), f"What of {n}?") for n in range(1, 6)] for task in LAYOUTS
    }
    found = {e.id: [[f"pkg.f{n}#1", 1 / (n + 1)] for n in range(5)] for listed in asked.values() for e in listed}
    path = tmp_path / "retrieved.json"
    path.write_text(json.dumps({"corpus": docs.hash, "packages": docs.versions, "passages": found}))
    monkeypatch.setattr(tasks, "documentation", lambda: docs)
    monkeypatch.setattr(tasks, "entries", lambda: asked)
    monkeypatch.setattr(tasks, "RETRIEVED", path)
    return docs


@pytest.mark.parametrize("task", ["docs_rag", "docs_open_qa", "docs_attributed_qa"])
def test_a_prompt_holds_its_five_passages_and_the_question(task: str, installed: Documentation) -> None:
    dataset = configured(task)
    question = dataset.questions[0]
    assert question.question_id == f"{task}-001" and question.key_facts == ("Does 1",)
    assert question.context == "\n\n".join(question.released_texts) and len(question.released_texts) == 5
    for number, text in enumerate(question.released_texts):
        passage = installed.passages[f"pkg.f{number}#1"]
        mark = f"[{number + 1}] " if task == "docs_attributed_qa" else ""
        assert text == f"{mark}{passage.title}\n{passage.text}"
    assert "What of 1?" in question.after
    assert len(configured(task, num_passages=2).questions[0].released_texts) == 2
    few, many = (
        configured(task, num_passages=number).questions[0].released_texts for number in (5, len(installed.passages))
    )
    assert many[:5] == few and len(set(many)) == len(many) > 5
    with pytest.raises(ConfigError, match=r"num_passages=999: the documentation has "):
        configured(task, num_passages=999)


def test_a_summary_s_prompt_holds_the_whole_docstring(installed: Documentation) -> None:
    question = configured(SUMMARIZATION).questions[0]
    assert question.context == f"pkg.f1\n{installed.docstrings['pkg.f1']}"
    assert question.message == f"{question.context}\n\nWrite a summary of the text above in three sentences."
    assert measure("It Does 1 thing.", question)["contains"] == 1 and measure("It sings.", question)["contains"] == 0


def test_the_questions_are_well_formed() -> None:
    listed, packages = entries(), {symbol.partition(".")[0] for symbol in documentation().docstrings}
    assert set(listed) == set(LAYOUTS) and all(len(task) == 34 for task in listed.values())
    for task, asked in listed.items():
        assert len({entry.symbol for entry in asked}) == 34 and all(entry.facts for entry in asked)
        assert all(entry.ask.endswith("?") for entry in asked) or task == SUMMARIZATION
        assert {entry.symbol.partition(".")[0] for entry in asked} == packages
    questions = [entry.ask for asked in listed.values() for entry in asked if entry.ask]
    assert len(set(questions)) == 3 * 34


def test_every_question_is_answered_by_the_documentation_that_ships() -> None:
    """Its symbol has a docstring, which holds the key facts; the committed passages exist."""
    retrieved, docs = json.loads(tasks.RETRIEVED.read_text()), documentation()
    assert (docs.versions, docs.hash) == (retrieved["packages"], retrieved["corpus"])
    licences = corpus.COMMITTED.with_name("LICENCES.txt").read_text()
    assert all(f" {name} =" in licences for name in docs.versions)
    for task, asked in entries().items():
        for entry in asked:
            text = docs.docstrings[entry.symbol]
            shown = f"{entry.symbol} {' '.join(text.split())}"
            assert all(re.search(rf"(?<!\w){re.escape(fact)}(?!\w)", shown) for fact in entry.facts), entry
            if task == SUMMARIZATION:
                assert 250 <= len(text.split()) <= 700
            else:
                found = retrieved["passages"][entry.id]
                assert len(found) == 5 and all(id in docs.passages for id, _ in found)
                assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
