"""The documentation of installed packages: what is read of a package, how it is cut, and the data sets made of it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from support.datasets import configured

from ngram_trie.bench.quality import measure
from ngram_trie.data.docs import corpus, tasks
from ngram_trie.data.docs.corpus import Documentation, documentation, read_installed, split
from ngram_trie.data.docs.tasks import LAYOUTS, SUMMARIZATION, Entry, entries
from ngram_trie.methods import ConfigError

WORDS = " ".join(f"w{number}" for number in range(60))
FILES = {
    "__init__.py": "from tinydocs._inner import open_door\nfrom ._stars import *\n\ndef shown(): ...\n"
    f"shown.__doc__ = 'Filled {{0}} {WORDS}'.format('in')\n",
    "_inner.py": f"def open_door():\n    '''Opens. {WORDS}'''\n",
    "deep/_hidden.py": f"def hidden():\n    '''Nobody takes it. {WORDS}'''\n",
    "_stars.py": f"def starred():\n    '''Stars. {WORDS}'''\ndef _private():\n    '''Private. {WORDS}'''\n",
    "deep/__init__.py": "",
    "deep/house.py": f"class House:\n    '''A house. {WORDS}'''\n    class Room:\n        '''A room. {WORDS}'''\n"
    f"        def paint(self):\n            '''Paints. {WORDS}\n\n            >>> 1 + 1\n            2\n\n"
    "            After.\n            '''\n    def short(self):\n        '''Too short.'''\n"
    f"if True:\n    def chosen():\n        '''Chosen. {WORDS}'''\n",
    "deep/added.py": f"add_newdoc('tinydocs.deep.added', 'Array', '''An array. {WORDS}''')\n"
    f"add_newdoc('tinydocs.deep.added', 'Array', ('size', '''Its size. {WORDS}'''))\n",
    "deep/sections.py": f"def sections():\n    '''Sections. {WORDS}\n\n    Examples\n    --------\n    Look here.\n\n"
    "    Notes\n    -----\n    Noted.\n    '''\n",
    "deep/filled.py": f"def filled():\n    '''Later %(more)s. {WORDS}'''\n",
    "deep/copy.py": f"class Copied:\n    def paint(self):\n        '''Opens. {WORDS}'''\n",
    "broken.py": "def broken(:\n",
    "tests/test_it.py": f"'''Tests. {WORDS}'''\n",
}


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of one distribution, installed in a folder."""
    for name, text in FILES.items():
        (tmp_path / "site" / "tinydocs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / "tinydocs" / name).write_text(text)
    about = tmp_path / "site" / "tiny_docs-1.5+cpu.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-docs\nVersion: 1.5+cpu\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "tinydocs"]:
        monkeypatch.delitem(sys.modules, name)  # another test's
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path


def test_docstrings_stand_under_the_names_that_users_know(tiny: Path) -> None:
    docs = read_installed({"tiny-docs": "tinydocs"})
    assert docs.versions == {"tiny-docs": "1.5"}
    assert list(docs.docstrings) == [
        "tinydocs.deep.added.Array", "tinydocs.deep.added.Array.size", "tinydocs.deep.house.House",
        "tinydocs.deep.house.House.Room", "tinydocs.deep.house.House.Room.paint", "tinydocs.deep.house.chosen",
        "tinydocs.deep.sections.sections", "tinydocs.open_door", "tinydocs.shown", "tinydocs.starred",
    ]  # fmt: skip
    assert docs.docstrings["tinydocs.shown"] == f"Filled in {WORDS}"
    paint = docs.docstrings["tinydocs.deep.house.House.Room.paint"]
    assert "1 + 1" not in paint and paint.endswith("After.")
    sections = docs.docstrings["tinydocs.deep.sections.sections"]
    assert "Look here" not in sections and sections.endswith("Noted.")


def test_what_was_read_is_written_and_read_again(tiny: Path) -> None:
    docs, file = read_installed({"tiny-docs": "tinydocs"}), tiny / "docstrings.json.gz"
    corpus.write(docs, file)
    assert documentation(file) == docs and documentation(file).hash == docs.hash
    written = file.read_bytes()
    corpus.write(docs, file)
    assert file.read_bytes() == written
    corpus.write_passages(docs, tiny / "passages.jsonl")
    rows = [json.loads(line) for line in (tiny / "passages.jsonl").read_text().splitlines()]
    assert rows == [vars(passage) for passage in docs.passages.values()] and set(rows[0]) == {"id", "title", "text"}
    with pytest.raises(FileNotFoundError, match=r"of nobody is read.*`pip install -c constraints.txt nobody`"):
        read_installed({"nobody": "nobody"})


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
    listed = entries()
    assert set(listed) == set(LAYOUTS) and all(len(task) == 34 for task in listed.values())
    for task, asked in listed.items():
        assert len({entry.symbol for entry in asked}) == 34 and all(entry.facts for entry in asked)
        assert all(entry.ask.endswith("?") for entry in asked) or task == SUMMARIZATION
        assert {entry.symbol.partition(".")[0] for entry in asked} == set(corpus.PACKAGES.values())
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


@pytest.mark.slow
def test_the_installed_packages_give_the_texts_that_ship() -> None:
    """But for those that another Python composes otherwise."""
    docs, pinned = read_installed(), documentation()
    if docs.versions != pinned.versions:
        pytest.skip("other versions than constraints.txt pins")
    read, ships = docs.docstrings, pinned.docstrings
    other = {symbol for symbol in read | ships if read.get(symbol) != ships.get(symbol)}
    assert other <= {"numpy.linalg.matrix_transpose"} if sys.version_info >= (3, 13) else not other
