"""The page on adding a drafter and a data set: its files are written out and its commands run, as they stand."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from ngram_trie.bench.records import read_records
from ngram_trie.methods import choices
from ngram_trie.report.embed import fill, pages
from ngram_trie.store.files import PROJECT
from scripts import run

DOCS = PROJECT / "docs"
PAGE = "extending.md"
#: A few of the recorded answers: the page names all of them.
TRACES = PROJECT / "results" / "table1" / "tiny" / "traces.jsonl"


def files_of(page: str) -> dict[str, str]:
    """The files that a page shows: a line with the name, then the block."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return {match[1]: match[2] for match in re.finditer(r"^`(\S+)`:\n```\w+\n(.*?)^```$", text, re.M | re.S)}


def commands_of(page: str) -> list[str]:
    """The lines of its unlabelled blocks."""
    text = re.sub(r"^```\w+\n.*?^```$", "", (DOCS / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    return [line for block in re.findall(r"^```\n(.*?)^```$", text, re.M | re.S) for line in block.splitlines()]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's files, the working directory of its commands."""
    for name, text in files_of(PAGE).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    lines = TRACES.read_text(encoding="utf-8").splitlines()
    (tmp_path / "results/table1/tiny").mkdir(parents=True)
    (tmp_path / "results/table1/tiny/traces.jsonl").write_text("\n".join(lines[:3]) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))
    return tmp_path


def call(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run a command of the page in this process, briefly; returns the folder of its results."""
    words = [word for word in shlex.split(command) if word != "PYTHONPATH=mine"]
    assert words[:3] == ["python", "-m", "scripts.run"], command
    more = ["model.device=cpu", "engine.num_threads=1", "measure.max_new_tokens=12"]
    more = ["engine.num_jobs=1"] if "engine=replay" in words else more
    if "--help" not in words:
        keys = [line.partition("=")[0] for line in more]
        words = [word for word in words if word.partition("=")[0] not in keys] + [*more, f"output={folder}"]
    monkeypatch.setattr(sys, "argv", words[2:])
    run.cli()
    return folder


@pytest.mark.slow
def test_the_drafter_and_the_data_set_of_the_page_run(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replayed, live, asked, sentences = commands_of(PAGE)
    found = read_records(call(replayed, mine / "replay", monkeypatch) / "records.jsonl")
    assert [record.method for record in found] == ["successors"] * 3
    assert sum(map(sum, (r.accept_lengths for r in found))) > 1.5 * sum(len(r.accept_lengths) for r in found)
    found = read_records(call(live, mine / "live", monkeypatch) / "records.jsonl")
    assert {record.method for record in found} == {"vanilla", "successors"} and len(found) == 8
    assert all(record.lossless is None or record.lossless.verdict == "identical" for record in found)
    capsys.readouterr()
    call(asked, mine, monkeypatch)
    said = capsys.readouterr().out
    assert "# The latest successor of each token, chained." in said and "num_draft: 8" in said
    found = read_records(call(sentences, mine / "sentences", monkeypatch) / "records.jsonl")
    named = [(record.question_id, record.method) for record in found]
    assert named == [("a", "vanilla"), ("a", "pld"), ("b", "vanilla"), ("b", "pld")]


def test_its_fields_are_checked_as_any_others(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = "python -m scripts.run --config-dir mine method=successors engine=replay engine.traces=x"
    for wrong, said in (
        ("method.numdraft=3", "did you mean num_draft"),
        ("method.num_draft=0", "num_draft=0: must be an integer of at least 1"),
        ("method=succesors", "did you mean successors"),
    ):
        with pytest.raises(SystemExit, match=said):
            call(f"{command} {wrong}", mine / "out", monkeypatch)


def test_the_drafter_of_the_page_is_short() -> None:
    assert len(files_of(PAGE)["mine/successors.py"].splitlines()) <= 24


PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]


def anchors(page: Path) -> list[str]:
    """What a link to a heading of the page may end with."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    text = re.sub(r"^```.*?^```\s*$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text):
        if "://" not in target:
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(linked), f"{page.name} links to {target}#{anchor}"
    for path in re.findall(
        r"`((?:baselines|configs|data|docs|ngram_trie|scripts|tests)/[\w/.-]*\w\.(?:py|yaml|md))`", text
    ):
        if "NAME" not in path:
            assert (PROJECT / path).exists(), f"{page.name} names {path}"


def test_every_page_method_and_data_set_is_on_its_list() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    for page in DOCS.glob("*.md"):
        assert page.name == "README.md" or f"]({page.name})" in index, f"docs/README.md lacks {page.name}"
    for group, page in (("method", "methods.md"), ("dataset", "data.md")):
        text = (DOCS / page).read_text(encoding="utf-8")
        for name in choices()[group]:
            assert f"`{name}`" in text, f"docs/{page} lacks {name}"


def test_pages_hold_their_tables_as_they_are_today() -> None:
    stale = [page.name for page in pages() if fill(text := page.read_text(encoding="utf-8")) != text]
    assert not stale, "ngram-trie derive fills their tables"


def test_docs_are_short() -> None:
    assert sum(len(page.read_text(encoding="utf-8").splitlines()) for page in DOCS.glob("*.md")) <= 1_650
