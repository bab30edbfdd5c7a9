"""The page of everything under results/, and the explorer, working in a real browser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.runs import write_run

from ngram_trie.cli import commands

CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
in_browser = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium with its driver on this machine")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def opened(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Opens the page afresh in a browser window."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    quiet = ("background-networking", "component-update", "sync", "gpu", "quic", "dev-shm-usage")
    for switch in ("headless=new", "no-sandbox", "no-first-run", *(f"disable-{name}" for name in quiet)):
        options.add_argument(f"--{switch}")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.add_argument("--window-size=1280,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options=options, service=Service(DRIVER)) as driver:

        def fresh() -> Any:
            driver.get(path.as_uri())
            return driver

        yield fresh


@in_browser
def test_it_loads_without_an_error_and_asks_nobody(opened: Open, path: Path) -> None:
    browser = opened()
    assert browser.get_log("browser") == []
    asked = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
    urls = [each["params"]["request"]["url"] for each in asked if each["method"] == "Network.requestWillBeSent"]
    assert path.as_uri() in urls and not [url for url in urls if url.startswith(("http", "ws", "ftp"))]


#: Markup that an earlier page took from a results folder, and other ways to run a script; each would call alert().
BODIES = [
    "<!--><img src=x onerror=alert(1)>-->",
    "</div></section></main><script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<svg/onload=alert(1)>",
    "<p onmouseover='alert(1)' style='position:fixed;inset:0'>1</p>",
    "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>",
]


@in_browser
@pytest.mark.parametrize("escaped", [True, False], ids=["escaped", "policy"])
@pytest.mark.parametrize("body", BODIES)
def test_no_script_of_a_results_folder_runs(opened: Open, tmp_path: Path, body: str, escaped: bool) -> None:
    """Wherever it stands in a folder; and, by the page's policy, even if it were not escaped."""
    run = tmp_path / "run"
    write_run(run, f"model {body}", 1.9)
    for name in ("table.json", "manifest.json"):
        text = (run / name).read_text().replace("First note.", json.dumps(body)[1:-1])
        (run / name).write_text(text.replace('"a toy"', json.dumps(body)))
    for name in ("case_study.html", "case_study.svg", "table.md"):
        (run / name).write_text(f"<html><body>{body}</body></html>")
    page = tmp_path / "report.html"
    commands.write_report(tmp_path, page)
    if not escaped:
        page.write_text(page.read_text().replace('<main id="main">', f'<main id="main"><p>{body}</p>'))
    browser = opened()
    browser.get(page.as_uri())  # an open alert() would raise an error in what follows
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.execute_script("return document.title").startswith("N-gram trie")
    if escaped:
        own = "return [document.scripts.length, document.querySelectorAll('img, iframe, object, [onload]').length]"
        assert browser.execute_script(own) == [1, 0] and body[:9] in browser.find_element("id", "main").text


@pytest.mark.slow
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
    slider.send_keys(Keys.ARROW_LEFT)
    assert at() == starts[0]
    for _ in range(6):
        press("on")
        for number, panel in enumerate(panels):
            here = step(number)
            lit = panel.find_elements(By.CSS_SELECTOR, "svg g.lit")
            assert len(lit) == len(here["path"]) - 1 and f"{len(lit)} accepted" in panel.text
            now = [span.text for span in panel.find_elements(By.CSS_SELECTOR, ".answer .now")]
            assert len(now) == here["emitted"]
    missed = press("miss")
    assert any(s["start"] == missed and len(s["path"]) == 1 for d in data["drafters"] for s in d["steps"])
    press("difference")
    assert len({step(number)["start"] + step(number)["emitted"] for number in range(2)}) == 2
    assert panels[1].find_elements(By.CSS_SELECTOR, "svg .badge"), "and where they come from"
    assert panels[1].find_elements(By.CSS_SELECTOR, ".prob"), "the blend knows how likely its nodes are"
