"""The page of everything under results/: complete, of these results, and standing alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import html5lib
import pytest
from PIL import Image
from support.records import write_records
from support.runs import write_run

from ngram_trie.cli import commands
from ngram_trie.cli.app import invoke
from ngram_trie.report.blocks import read
from ngram_trie.report.markup import parts
from ngram_trie.report.page import LOCAL, Folder, datasets_in_words, folders, page
from ngram_trie.report.render import note, report_page
from ngram_trie.store.files import PROJECT

RESULTS = PROJECT / "results"
HTML = "{http://www.w3.org/1999/xhtml}"


@pytest.fixture(scope="module")
def tree(path: Path) -> Any:
    """Parsed; an error in the markup is an error."""
    return html5lib.HTMLParser(strict=True).parse(path.read_text(encoding="utf-8"))


def texts(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())


@pytest.mark.slow
def test_it_stands_alone(tree: Any, path: Path) -> None:
    for element in tree.iter():
        for name in ("src", "href", "srcset", "data", "action"):
            target = element.get(name)
            own = target is None or target.startswith(("#", "data:image/webp;base64,", "data:image/svg+xml;base64,"))
            assert own or (path.parent / target).exists(), target
    text = path.read_text(encoding="utf-8")
    assert "@import" not in text and "url(" not in text and len(text) < 8e6


@pytest.mark.slow
def test_links_lead_somewhere(tree: Any) -> None:
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    hrefs = {element.get("href") for element in tree.iter(f"{HTML}a")}
    assert {href[1:] for href in hrefs if href.startswith("#")} <= set(ids)


@pytest.mark.slow
def test_every_table_of_the_results_is_there_with_its_numbers(tree: Any) -> None:
    shown = {texts(part.find(f"{HTML}h3/{HTML}small")): part for part in tree.iter(f"{HTML}article")}
    for path in RESULTS.rglob("table.json"):
        name = path.parent.relative_to(RESULTS).as_posix()
        if name.startswith(LOCAL):
            continue
        found = {texts(f.find(f"{HTML}figcaption")): texts(f) for f in shown[name].iter(f"{HTML}figure")}
        for _, blocks in read(path).groups():
            for block in blocks:
                assert all(label in found[texts_of(block.title)] for label in map(texts_of, block.rows))
                cell = next((c for row in block.rows.values() for c in row if c.get(block.measures[0])), None)
                assert cell is None or parts(cell, block)[0] in found[texts_of(block.title)]


def texts_of(text: str) -> str:
    return " ".join(text.split())


def render(root: Path, base: str = "") -> str:
    return report_page(page(root, False, base))


def test_a_run_appears_with_what_it_is(tmp_path: Path) -> None:
    write_run(tmp_path / "h200" / "a b", "vicuna-7b-v1.3", 1.9)
    shown = render(tmp_path, "../")
    assert "vicuna-7b-v1.3" in shown and "(changed files)" in shown and "2030-01-02 03:04 UTC" in shown
    assert '<span class="r1">1.90x</span>' in shown and "not measured here" in shown
    assert "&lt;script&gt;x&lt;/script&gt;" in shown and "<script>x" not in shown
    assert '<a href="../h200/a%20b/table.json">table.json</a>' in shown
    html5lib.HTMLParser(strict=True).parse(shown)


def test_a_run_that_has_answered_nothing_is_no_error(tmp_path: Path) -> None:
    write_records(tmp_path / "begun", [], {"engine": {"name": "live"}})
    folder = Folder("begun", {file.name: file for file in (tmp_path / "begun").iterdir()})
    assert "records.jsonl" in folder.files and folder.opening == ([], None)


def test_an_empty_folder_and_pictures_and_links(tmp_path: Path) -> None:
    assert "make reproduce-table1" in render(tmp_path)
    Image.new("RGB", (8, 8)).save(tmp_path / "outside.png")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "figure.png").symlink_to(tmp_path / "outside.png")
    assert "figure" not in render(tmp_path).partition("<main")[2].partition("</main")[0]
    Image.new("RGB", (8, 8)).save(tmp_path / "run" / "shape.png")
    assert "data:image/webp" in render(tmp_path)


def opened(root: Path) -> list[tuple[str, list[str]]]:
    return [(title, [folder.name for folder in part]) for title, part in page(root, False)["sections"]]


def test_it_reads_in_the_papers_order_the_largest_model_first(tmp_path: Path) -> None:
    for name, model, started in (
        ("table1/a", "tiny", "2031"), ("table1/b", "smollm2-135m", "2029"), ("table1/c", "smollm2-135m", "2030"),
        ("table1/d", "qwen2.5-coder-0.5b", "2028"), ("table1/e", "own-1.5B", "2027"), ("zebra/f", "own-3b", "2030"),
        ("drafters/g", "smollm2-135m", "2030"), ("table2/h", "smollm2-135m", "2030"),
        ("table1/i", "smollm2-135m", "2028"),
    ):  # fmt: skip
        write_run(tmp_path / name, model, 1.9)
        manifest = tmp_path / name / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"2030-', f'"{started}-'))
    asked = {"datasets": {"spec_bench_rag": {}, "triviaqa": {}}}
    for name, config in ("i", asked), ("b", {"engine": {"name": "replay", "categories": None}}):  # of all categories
        manifest = tmp_path / "table1" / name / "manifest.json"
        about = json.loads(manifest.read_text())
        about["config"] |= config
        manifest.write_text(json.dumps(about))
    (tmp_path / "table2" / "h" / "table2").mkdir()
    (tmp_path / "table2" / "h" / "table2" / "data.csv").write_text("1")
    table1, table2, *rest = opened(tmp_path)
    assert table1[0].startswith("Table 1:")
    assert table1[1] == ["table1/e", "table1/d", "table1/b", "table1/i", "table1/c"]
    assert table2[1] == ["table2/h"] and '<a href="table2/h/table2/data.csv">' in render(tmp_path)
    assert [part for _, part in rest] == [["drafters/g"], ["zebra/f"], ["table1/a"]]


@pytest.mark.slow
def test_the_first_screen_is_a_real_models_table_1(tree: Any) -> None:
    first = next(iter(tree.iter(f"{HTML}article")))
    assert texts(first.find(f"{HTML}h3/{HTML}small")).startswith("table1/")
    title, verdict, picture, table = list(first)[:4]
    assert title.tag == f"{HTML}h3" and "plain decoding" in texts(verdict)
    assert next(picture.iter(f"{HTML}img"), None) is not None and next(picture.iter(f"{HTML}table"), None) is None
    assert next(table.iter(f"{HTML}table"), None) is not None


def test_titles_are_words(tmp_path: Path) -> None:
    write_run(tmp_path / "table1" / "a", "smollm2-135m", 1.9)
    manifest = tmp_path / "table1" / "a" / "manifest.json"
    about = json.loads(manifest.read_text())
    about["config"] |= {"datasets": {"docs_rag": {}, "docs_open_qa": {}, "own": {}}}
    about["config"]["budget"] = {"rule": "equal", "num_nodes": 8}
    manifest.write_text(json.dumps(about | {"device": "Intel(R) Xeon(R) Processor, 2 cores, 2 threads"}))
    (folder,) = folders(tmp_path)
    asked = "documentation of packages (RAG, open QA), own"
    assert folder.title == f"SmolLM2-135M-Instruct, Intel Xeon, 2 cores, {asked}, 8 nodes"
    manifest.write_text(json.dumps(about | {"device": "AMD EPYC (znver4), 2 cores, 1 threads"}))
    (folder,) = folders(tmp_path)
    assert "AMD EPYC (znver4), 2 cores, one thread, " in folder.title
    assert [Folder(f"quality/{name}", {}).section for name in ("tiny-general", "tiny")] == ["synthetic"] * 2
    assert datasets_in_words(["a", "b", "c", "d", "e"]) == "5 data sets"


def test_local_runs_only_where_asked_for(tmp_path: Path) -> None:
    write_run(tmp_path / LOCAL / "table1", "tiny", 1.5)
    assert not page(tmp_path, False)["sections"]
    invoke(commands.report, ["--results", str(tmp_path), "--local"])
    assert "local/table1" in (tmp_path / LOCAL / "report.html").read_text(encoding="utf-8")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"run": "x"}'])
def test_what_is_no_manifest_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "table1").mkdir()
    (tmp_path / "table1" / "manifest.json").write_text(content)
    with pytest.raises(SystemExit) as error:
        invoke(commands.report, ["--results", str(tmp_path)])
    said = str(error.value)
    assert said.startswith("error:") and "table1/manifest.json" in said and "\n" not in said
    assert "unforeseen" not in said


def test_notes_are_escaped() -> None:
    assert str(note("**best**: <b> `make x` **bold**, *italic*. mixed (k*, w*)")) == (
        "<strong>best</strong>: &lt;b&gt; <code>make x</code> <strong>bold</strong>, <em>italic</em>. mixed (k*, w*)"
    )
