"""The page of everything under results/: complete, of these results, standing alone, and working in a browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
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
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the project's results."""
    output = tmp_path_factory.mktemp("page") / "report.html"
    commands.write_report(Results(RESULTS), output)
    return output


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


# In a real browser.


CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
in_browser = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium with its driver on this machine")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def opened(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Opens the page afresh in a browser window of the given width; a phone's too."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    drivers: dict[tuple[int, bool], Any] = {}

    def start(width: int, phone: bool) -> Any:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        quiet = ("background-networking", "component-update", "sync", "gpu", "quic", "dev-shm-usage")
        for switch in ("headless=new", "no-sandbox", "no-first-run", *(f"disable-{name}" for name in quiet)):
            options.add_argument(f"--{switch}")
        options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
        options.add_argument(f"--window-size={width},900")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        if phone:
            metrics = {"width": width, "height": 844, "pixelRatio": 2}
            options.add_experimental_option("mobileEmulation", {"deviceMetrics": metrics})
        return webdriver.Chrome(options=options, service=Service(DRIVER))

    def fresh(width: int = 1280, phone: bool = False) -> Any:
        if (width, phone) not in drivers:
            drivers[width, phone] = start(width, phone)
        drivers[width, phone].get(path.as_uri())
        return drivers[width, phone]

    yield fresh
    for driver in drivers.values():
        driver.quit()


@in_browser
def test_it_loads_without_an_error_and_asks_nobody(opened: Open, path: Path) -> None:
    browser = opened()
    assert browser.get_log("browser") == []
    asked = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
    urls = [each["params"]["request"]["url"] for each in asked if each["method"] == "Network.requestWillBeSent"]
    assert path.as_uri() in urls and not [url for url in urls if url.startswith(("http", "ws", "ftp"))]


COLUMN = """
const run = document.querySelector("#run-smollm2-135m-table1").closest("details");
const table = run.querySelector("table.sortable");
run.open = true;
return [table, table.rows[0].cells[2].querySelector("button"), table.rows[0].cells[0].querySelector("button")];
"""


@in_browser
def test_tables_sort_by_click_and_by_keyboard(opened: Open) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = opened()
    table, button, names = browser.execute_script(COLUMN)

    def column(at: int) -> list[str]:
        cells = "return [...arguments[0].tBodies[0].rows].map((row) => row.cells[arguments[1]].textContent)"
        return browser.execute_script(cells, table, at)

    def order(button: Any) -> str:
        return browser.execute_script("return arguments[0].closest('th').getAttribute('aria-sort')", button)

    given = column(0)
    values = [float(cell.partition("x")[0]) for cell in column(2)]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    assert order(button) == "descending" and [float(c.partition("x")[0]) for c in column(2)] == sorted(values)[::-1]
    button.send_keys(Keys.ENTER)
    assert order(button) == "ascending" and [float(c.partition("x")[0]) for c in column(2)] == sorted(values)
    button.send_keys(Keys.SPACE)
    assert order(button) == "none" and column(0) == given
    names.send_keys(Keys.ENTER)
    assert order(names) == "ascending" and column(0) == sorted(given, key=str.lower) and order(button) == "none"


@in_browser
def test_it_narrows_down_and_keeps_the_choice_in_the_address(opened: Open, path: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select, WebDriverWait

    browser = opened()
    Select(browser.find_element(By.NAME, "model")).select_by_visible_text("smollm2-135m")
    Select(browser.find_element(By.NAME, "group")).select_by_visible_text("warm")
    Select(browser.find_element(By.NAME, "dataset")).select_by_visible_text("docs_rag")
    seen = """
        const shown = [...document.querySelectorAll("details.run")].filter((run) => !run.hidden);
        const run = document.querySelector("#run-smollm2-135m-table1").closest("details");
        const table = run.querySelector("table.sortable"), heads = [...table.tHead.rows[0].cells];
        const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
        return [[...new Set(shown.map((run) => run.dataset.model))],
            [...new Set(rows.map((row) => row.cells[1].textContent))],
            heads.filter((cell) => !cell.hidden).map((cell) => cell.dataset.name)];"""
    expected = [["smollm2-135m"], ["baseline", "warm"], ["method", "group", "nodes", "docs_rag", "all"]]
    assert browser.execute_script(seen) == expected
    address = browser.current_url
    assert "model=smollm2-135m" in address and "group=warm" in address
    browser.get(address)
    assert browser.execute_script(seen) == expected
    browser.find_element(By.CSS_SELECTOR, ".filter [type=reset]").click()
    WebDriverWait(browser, 10).until(lambda _: "model=" not in browser.current_url)
    assert browser.execute_script("return document.querySelectorAll('details.run[hidden]').length") == 0


@in_browser
def test_a_link_unfolds_what_it_leads_to_and_headers_stay(opened: Open, path: Path) -> None:
    browser = opened()
    browser.get(path.as_uri() + "#budgets")
    assert browser.execute_script("return document.getElementById('budgets').closest('details').open")
    stays = """const box = [...document.querySelectorAll(".scroll")].find((b) => b.scrollHeight > b.clientHeight + 200);
        for (let d = box.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
        const head = box.querySelector("thead th"), before = head.getBoundingClientRect().top;
        box.scrollTop = 150; return [box.scrollTop, before, head.getBoundingClientRect().top];"""
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    moved, before, after = browser.execute_script(stays)
    assert moved == 150 and before == after


@in_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(opened: Open, tmp_path: Path, scheme: str) -> None:
    """On a page of few runs: on all of them axe takes minutes."""
    axe = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed (make setup)")
    write_run(tmp_path / "h200" / "vicuna", "vicuna-7b-v1.3", 1.9)
    commands.write_report(Results(tmp_path), tmp_path / "report.html")
    browser = opened()
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get((tmp_path / "report.html").as_uri())
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    browser.execute_script((Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run().then((r) => done(r.violations.map((v) => [v.id, v.nodes[0].html])))"
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert found == []


@in_browser
def test_a_phone_scrolls_no_page_sideways(opened: Open) -> None:
    browser = opened(390, phone=True)
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    wide = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth).length"
    )
    assert wide > 10, "tables scroll inside their own boxes"
    stays = """const box = [...document.querySelectorAll('.scroll')].find((b) => b.scrollWidth > b.clientWidth + 200);
        const cell = box.querySelector('tbody th'), before = cell.getBoundingClientRect().left;
        box.scrollLeft = 150; return [before, cell.getBoundingClientRect().left];"""
    before, after = browser.execute_script(stays)
    assert before == after, "the first column stays"


@in_browser
def test_the_explorer_steps(opened: Open) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser = opened()
    explorer = browser.find_element(By.CSS_SELECTOR, ".explorer")
    data = json.loads(explorer.find_element(By.CSS_SELECTOR, ".data").get_attribute("textContent"))
    slider = explorer.find_element(By.CSS_SELECTOR, "input[type=range]")
    panels = explorer.find_elements(By.CSS_SELECTOR, ".panel")
    assert len(panels) == len(data["drafters"]) == 2

    def at() -> int:
        return int(slider.get_attribute("value"))

    def press(name: str) -> int:
        explorer.find_element(By.CSS_SELECTOR, f"[data-go={name}]").click()
        return at()

    def step(drafter: int) -> dict[str, Any]:
        return [each for each in data["drafters"][drafter]["steps"] if each["start"] <= at()][-1]

    starts = sorted({step["start"] for drafter in data["drafters"] for step in drafter["steps"]})
    assert press("first") == 0 and "prefill" in panels[0].text
    assert press("on") == starts[0] and press("on") == starts[1]
    slider.send_keys(Keys.ARROW_RIGHT)
    assert at() == starts[2]
    slider.send_keys(Keys.ARROW_LEFT)
    assert at() == starts[1] and press("back") == starts[0]
    for _ in range(6):
        press("on")
        for number, panel in enumerate(panels):
            here = step(number)
            lit, drawn = (
                len(panel.find_elements(By.CSS_SELECTOR, f"svg g{kind}")) for kind in (".lit", ":not(.badge)")
            )
            assert lit == len(here["path"]) - 1
            assert drawn - len(here["tokens"]) == (here["emitted"] >= len(here["path"])), "and the model's own token"
            assert f"{len(here['tokens']) - 1} node" in panel.text and f"{len(here['path']) - 1} accepted" in panel.text
            now = [span.text for span in panel.find_elements(By.CSS_SELECTOR, ".answer .now")]
            assert len(now) == here["emitted"]
    missed = press("miss")
    assert any(s["start"] == missed and len(s["path"]) == 1 for d in data["drafters"] for s in d["steps"])
    press("difference")
    ends = {step(number)["start"] + step(number)["emitted"] for number in range(2)}
    assert len(ends) == 2
    assert panels[1].find_elements(By.CSS_SELECTOR, ".prob"), "the blend knows how likely its nodes are"


@in_browser
def test_print_unfolds_everything(opened: Open) -> None:
    browser = opened()
    folded = "return document.querySelectorAll('details:not([open])').length"
    before = browser.execute_script(folded)
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert before > 10 and browser.execute_script(folded) == 0
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script(folded) == before
