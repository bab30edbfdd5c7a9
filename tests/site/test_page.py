"""The page of everything under results/: complete, of these results, and standing alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import html5lib
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from support.folders import copy_paper
from support.runs import write_run

from ngram_trie.cli import commands
from ngram_trie.cli.app import invoke
from ngram_trie.files import PROJECT
from ngram_trie.report.blocks import Block, Cell
from ngram_trie.site import audit, claims, printed, sections
from ngram_trie.site.answer import answer
from ngram_trie.site.gathered import LOCAL, Entry, Results, block_table, frame_table
from ngram_trie.site.render import note, report_page

RESULTS = PROJECT / "results"
HTML = "{http://www.w3.org/1999/xhtml}"


@pytest.fixture(scope="module")
def tree(path: Path) -> Any:
    """Parsed; an error in the markup is an error."""
    return html5lib.HTMLParser(strict=True).parse(path.read_text(encoding="utf-8"))


def texts(element: Any) -> str:
    return "".join(element.itertext())


def shown_tables(tree: Any) -> dict[tuple[str, str], list[list[str]]]:
    """Rows of cells, without header, by file and title."""
    found = {}
    for figure in tree.iter(f"{HTML}figure"):
        if figure.get("class", "").startswith("table"):
            file = "".join(texts(span) for span in figure.iter(f"{HTML}span") if span.get("class") == "file")
            region = next(figure.iter(f"{HTML}div")).get("aria-label")
            body = next(figure.iter(f"{HTML}tbody"))
            found[file, region] = [[texts(cell) for cell in row] for row in body]
    return found


@pytest.mark.slow
def test_it_stands_alone(tree: Any, path: Path) -> None:
    for element in tree.iter():
        for name in ("src", "href", "srcset", "data", "action"):
            target = element.get(name)
            own = target is None or target.startswith(("#", "data:image/webp;base64,"))
            assert own or (path.parent / target).exists(), target
    text = path.read_text(encoding="utf-8")
    assert "@import" not in text and "url(" not in text and len(text) < 8e6


def test_links_lead_somewhere(tree: Any) -> None:
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    hrefs = {element.get("href") for element in tree.iter(f"{HTML}a")}
    links = {href[1:] for href in hrefs if href.startswith("#")}
    assert links <= set(ids) and {section.id for section in sections.SECTIONS if section.id != "other"} <= links


def test_every_table_and_figure_of_the_results_is_there(tree: Any) -> None:
    results, shown = Results(RESULTS), shown_tables(tree)
    page = texts(tree)
    for folder in results.folders:
        for table in folder.laid_out():
            rows = shown[f"results/{table.file}", table.title]
            assert [row[0] for row in rows] == [row[0].text for row in table.rows]
        for figure in folder.figures():
            others = [other for other in RESULTS.rglob("*.png") if other.read_bytes() == figure.read_bytes()]
            assert any(f"results/{other.relative_to(RESULTS)}" in page for other in others)
        assert f"results/{folder.run}" in page


def test_numbers_are_the_files(tree: Any) -> None:
    """Every cell of Table 1 and of the predictions, against the CSV they are from."""
    shown = shown_tables(tree)
    for folder in Results(RESULTS).of("table1", "table.csv"):
        frame = pd.read_csv(folder.path / "table.csv")
        for protocol in ("corrected", "released"):
            rows = shown[f"results/{folder.file('table.json')}", f"{folder.model}, {protocol} protocol"]
            part = frame[(frame.protocol == protocol) & ((frame.dataset != "all") | (protocol == "corrected"))]
            by_method = {cells[0].split()[0].rstrip("†"): cells for cells in rows}  # group by group on the page
            assert set(by_method) == set(part.method) and len(rows) == len(by_method)
            for method, cells in by_method.items():
                expected = part[part.method == method]
                for cell, row in zip(cells[-len(expected) :], expected.itertuples(), strict=True):
                    speedup, length, *interval = map(float, re.findall(r"\d+\.\d+", cell))
                    # the file has five digits, the cell two decimals of all of them
                    assert (speedup, length) == pytest.approx((row.speedup, row.accept_length), abs=0.0051)
                    if not np.isnan(row.speedup_low):
                        assert interval[:2] == pytest.approx([row.speedup_low, row.speedup_high], abs=0.0051)
        rows = shown[f"results/{folder.file('predicted.csv')}", f"{folder.name}, all tasks"]
        frame = pd.read_csv(folder.path / "predicted.csv")
        frame = frame[(frame.dataset == "all") & ~frame.method.str.endswith("vanilla")]
        assert {row[0]: row[-1] for row in rows} == {
            method: f"{error:.4g}" for method, error in zip(frame.method, frame.error, strict=True)
        }


def test_each_run_says_what_it_is(tree: Any) -> None:
    page = texts(tree)
    for manifest in RESULTS.rglob("*manifest.json"):
        if manifest.relative_to(RESULTS).parts[0] == LOCAL:
            continue
        about = json.loads(manifest.read_text(encoding="utf-8"))
        assert about["run"] in page and about["commit"][:10] in page and about["device"] in page


def test_the_audit_counts_every_comparison() -> None:
    found = audit.losslessness(Results(RESULTS))
    compared = []
    for folder in Results(RESULTS).folders:
        file = folder.path / "records.jsonl"
        for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() and folder.engine == "live" else ():
            row = json.loads(line)
            if row["lossless"] and row["kind"] == "drafter" and row["method"] != row.get("baseline"):
                compared.append(row["lossless"]["verdict"])
    assert (found.compared, found.identical) == (len(compared), compared.count("identical"))


def test_claims_name_files_that_are_there_and_stand_on_the_page(tree: Any) -> None:
    results, page = Results(RESULTS), texts(tree)
    judged = claims.verdicts(results, audit.losslessness(results))
    assert len(judged) > 15 and {claim.verdict for claim in judged} == {
        "holds",
        "in part",
        "does not hold",
        "not tested",
    }
    for claim in judged:
        assert claim.files and all((RESULTS / file).is_file() for file in claim.files), claim
        assert texts(html5lib.parseFragment(str(note(claim.why)))) in page


def test_what_spec_benchs_cells_are_follows_from_the_released_lists() -> None:
    first, second = printed.last_question(Results(RESULTS))
    assert first.claim == ("On vicuna-7b-v1.3 the trie emits 2.39 tokens a step over spec_bench_summarization (1.75x).")
    assert "gives 2.3871 on the last one (id 320)" in first.why and "all 80 questions 2.957" in first.why
    assert "gives 5.1875 on the last one (id 560)" in second.why and "all 80 questions 1.702" in second.why
    assert first.verdict == second.verdict == "does not hold"


def render(results: Results) -> str:
    return report_page(sections.page(results, None))


@pytest.mark.parametrize(("speedup", "verdict"), [(1.9, "in part"), (9.0, "does not hold")])
def test_a_new_run_appears_and_decides_what_was_not_tested(tmp_path: Path, speedup: float, verdict: str) -> None:
    copy_paper(tmp_path)
    assert {claim.verdict for claim in claims.printed_speeds(Results(tmp_path))} == {"not tested"}
    write_run(tmp_path / "h200" / "vicuna", "vicuna-7b-v1.3", speedup)
    results = Results(tmp_path)
    by_model = {claim.claim.split()[1]: claim for claim in claims.printed_speeds(results)}
    assert by_model["vicuna-7b-v1.3"].verdict == verdict and by_model["llama-2-7b-chat"].verdict == "not tested"
    assert "triviaqa ngram_trie 1.90x [1.80, 2.00], printed 1.92x" in by_model["vicuna-7b-v1.3"].why or speedup != 1.9
    found = audit.losslessness(results)
    assert (found.compared, found.identical, int(found.table.tie.sum())) == (160, 158, 2)
    page = render(results)
    assert "results/h200/vicuna" in page and "(changed files)" in page and "2030-01-02 03:04 UTC" in page
    assert "make reproduce-table1 PROFILE=paper MODELS=vicuna_7b" in page
    assert "&lt;script&gt;x&lt;/script&gt;" in page and "<script>x" not in page
    html5lib.HTMLParser(strict=True).parse(page)


def test_ties_are_allowed_and_counted(tmp_path: Path) -> None:
    write_run(tmp_path / "table1", "vicuna-7b-v1.3", 1.9)
    results = Results(tmp_path)
    (claim,) = claims.lossless(results, audit.losslessness(results))
    assert claim.verdict == "holds" and "158 of 160" in claim.why and "2 more part at a tie" in claim.why
    write_run(tmp_path / "bug" / "table1", "vicuna-7b-v1.3", 1.9, bug=True)
    results = Results(tmp_path / "bug")
    (claim,) = claims.lossless(results, audit.losslessness(results))
    assert claim.verdict == "does not hold" and "tie" not in claim.why


def test_an_empty_folder_says_what_makes_each_part(tmp_path: Path) -> None:
    page = render(Results(tmp_path))
    for section in sections.SECTIONS[:-1]:
        assert f'id="{section.id}"' in page and f"<code>{section.command}</code> makes it." in page
    assert "Other runs" not in page
    html5lib.HTMLParser(strict=True).parse(page)


def test_what_is_unknown_is_shown_among_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "embedded" / "something_new"
    folder.mkdir(parents=True)
    (folder / "odd.csv").write_text("name,value\na & b,1.23456\nc,\n")
    (folder / "long.csv").write_text("value\n" + "1\n" * 500)
    Image.new("RGB", (8, 8)).save(folder / "shape.png")
    page = render(Results(tmp_path))
    assert "Other runs" in page and "a &amp; b" in page and "1.235" in page and "shape" in page
    assert 'Data beside them: <a href="embedded/something_new/long.csv">' in page
    assert "none: derived from another run" in page


def test_models_are_named_by_their_identity_where_a_manifest_has_no_name(tmp_path: Path) -> None:
    about = {"run": "1", "commit": None, "dirty": None, "device": "d", "versions": {}, "started": "", "model": "cafe"}
    for folder, config in (("table1", {"model": {"name": "tiny"}}), ("quality", {}), ("figure5", None)):
        (tmp_path / "embedded" / folder).mkdir(parents=True)
        (tmp_path / "embedded" / folder / "x.csv").write_text("a\n1\n")
        if config is not None:
            text = json.dumps(about | {"config": config})
            (tmp_path / "embedded" / folder / "manifest.json").write_text(text)
    models = {folder.name: folder.model for folder in Results(tmp_path).folders}
    assert models == {"embedded/table1": "tiny", "embedded/quality": "tiny", "embedded/figure5": "embedded"}


def test_local_runs_only_where_asked_for(tmp_path: Path) -> None:
    write_run(tmp_path / LOCAL / "table1", "embedded", 1.5)
    assert not Results(tmp_path).folders and [f.name for f in Results(tmp_path, True).folders] == ["local/table1"]
    invoke(commands.report, ["--results", str(tmp_path), "--local"])
    assert (tmp_path / LOCAL / "report.html").is_file() and not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"run": "x"}'])
def test_what_is_no_manifest_is_named(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "table1").mkdir()
    (tmp_path / "table1" / "manifest.json").write_text(content)
    with pytest.raises(SystemExit) as error:
        invoke(commands.report, ["--results", str(tmp_path)])
    said = str(error.value)
    assert said.startswith("error:") and "table1/manifest.json" in said and "\n" not in said


def test_no_results_folder(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no such folder"):
        invoke(commands.report, ["--results", str(tmp_path / "nowhere")])


def test_cells_are_the_blocks() -> None:
    cells = [Cell(1.614, 1.47, 1.75, 7.05, 0, 1), Cell(97.784, value_rank=2), Cell()]
    block = Block("t", ["a", "b", "c"], {"8": cells}, ["first"], "n", lead={"group": ["cold"], "nodes": ["3.5"]})
    table = block_table(block, "f", "Measured")
    assert table.columns == ["n", "group", "nodes", "a", "b", "c"]
    assert (table.group, table.rows[0][0].key) == ("Measured", 8.0)
    assert table.rows[0][1:3] == [Entry("cold"), Entry("3.5", key=3.5)]
    assert table.rows[0][3:5] == [
        Entry("1.61x", "[1.47, 1.75]", "7.05", 0, 1, 1.614), Entry("97.78x", rank=2, key=97.784),
    ]  # fmt: skip
    assert table.rows[0][5].text == "-" and not table.rows[0][5].is_number
    assert table.notes[0] == "first"
    assert table.notes[1].startswith("**bold**: significantly above every other method of its group (Holm")


def test_the_page_opens_with_the_answer_from_the_results(tree: Any) -> None:
    header = next(tree.iter(f"{HTML}header"))
    said = texts(next(p for p in header.iter(f"{HTML}p") if p.get("class") == "lead"))
    frame = pd.read_csv(RESULTS / "smollm2-135m" / "five" / "table.csv")
    frame = frame[(frame.protocol == "corrected") & (frame.group == "cold")]
    best = frame[frame.dataset == "all"].sort_values("speedup").iloc[-1]
    assert f"{best.method} is the fastest on smollm2-135m: {best.speedup:.2f}x" in said
    trie = frame[(frame.dataset == "all") & (frame.method == "ngram_trie")].iloc[0]
    assert f"n-gram trie gives {trie.speedup:.2f}x [{trie.speedup_low:.2f}, {trie.speedup_high:.2f}]" in said
    versus = pd.read_csv(RESULTS / "smollm2-135m" / "five" / "versus.csv").query(
        "measure == 'speedup' and dataset == 'all'"
    )
    pairs = versus[versus.same_group & ((versus.a == best.method) | (versus.b == best.method))]
    expected = "significantly above every other" if pairs.significant.all() else "not significant"
    assert expected in said and "identical to plain decoding" in said
    assert len(list(header.iter(f"{HTML}img"))) == 1


def test_no_answer_without_a_live_run_of_a_real_model(tmp_path: Path) -> None:
    write_run(tmp_path / "table1", "embedded", 1.5)
    assert answer(Results(tmp_path)) is None
    assert "No live run of a real model" in render(Results(tmp_path))


def test_the_papers_parts_come_first_and_the_claims_behind(tree: Any) -> None:
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    order = ["table1", "grid", "figure3", "explorer", "ngrammys", "beside", "drafters", "claims", "reproduce"]
    assert [each for each in ids if each in order] == order


def test_links_follow_the_place_of_the_page(tmp_path: Path) -> None:
    write_run(tmp_path / "h200" / "a b", "vicuna-7b-v1.3", 1.9)
    page = report_page(sections.page(Results(tmp_path), None, "../"))
    assert '<a href="../h200/a%20b/manifest.json">results/h200/a b/manifest.json</a>' in page


def test_notes_are_escaped() -> None:
    assert str(note("<b> `make x` **bold**, *italic*. mixed (k*, w*)")) == (
        "&lt;b&gt; <code>make x</code> <strong>bold</strong>, <em>italic</em>. mixed (k*, w*)"
    )


def test_empty_columns_are_left_out() -> None:
    table = frame_table(pd.DataFrame({"a": [1, 2], "none": [np.nan] * 2, "b_c": [0.123456, np.nan]}), "t", "f")
    assert table.columns == ["a", "b c"] and [cell.text for cell in table.rows[0]] == ["1", "0.1235"]
    assert table.rows[1][1] == Entry("-")
