"""The leaderboard: every run of the given folders, each number with the manifest that it is from."""

from __future__ import annotations

from pathlib import Path

import html5lib
import pandas as pd
import pytest
from support.runs import write_run

from ngram_trie.cli import commands
from ngram_trie.cli.app import invoke
from ngram_trie.files import PROJECT
from ngram_trie.site.leaderboard import COLUMNS, leaderboard


def test_rows_are_the_tables_of_all_folders_with_their_manifests(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "one", "tiny", 1.5)
    write_run(tmp_path / "b", "<b>big</b>", 2.5)
    invoke(commands.leaderboard, [str(tmp_path / "a"), str(tmp_path / "b"), "--output", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    html5lib.HTMLParser(strict=True).parse(page)
    assert "1.50x" in page and "2.50x" in page and "[2.40, 2.60]" in page
    assert "&lt;b&gt;big&lt;/b&gt;" in page and "<b>big" not in page
    shown = leaderboard([tmp_path / "a", tmp_path / "b"])
    assert len(shown["rows"]) == 2 * 3 * 5  # released readings are no results
    assert {run.id for run, _ in shown["rows"]} == {"manifest-1", "manifest-2"}
    assert all(f'id="{run.id}"' in page and "0123" in run.manifest for run in shown["runs"])


def test_replays_and_live_runs_of_the_project_stand_in_one_table() -> None:
    folders = [PROJECT / "results" / name for name in ("smollm2-135m/five", "smollm2-135m/drafters")]
    shown = leaderboard(folders)
    cells = [dict(zip(COLUMNS, (cell.text for cell in row), strict=True)) for _, row in shown["rows"]]
    assert {cell["engine"] for cell in cells} == {"live", "replay"}
    frame = pd.read_csv(folders[0] / "table.csv")
    expected = frame[(frame.protocol == "corrected") & (frame.dataset == "all") & (frame.method == "blend")].iloc[0]
    (found,) = [c for c in cells if (c["engine"], c["dataset"], c["method"]) == ("live", "all", "blend")]
    assert found["speedup [95%]"] == f"{expected.speedup:.2f}x" and found["model"] == "smollm2-135m"
    replayed = next(c for c in cells if c["engine"] == "replay" and c["method"] == "blend")
    assert replayed["speedup [95%]"] == "-" and replayed["accept length"] > "1"
    first = [c for c in cells if c["dataset"] == "all" and c["engine"] == "live" and c["group"] == "cold"]
    speeds = [float(c["speedup [95%]"].rstrip("x")) for c in first]
    assert speeds == sorted(speeds, reverse=True)


@pytest.mark.parametrize(("folder", "line"), [("nowhere", "no such folder"), (".", "no run with table.csv")])
def test_wrong_folders_are_one_line(tmp_path: Path, folder: str, line: str) -> None:
    with pytest.raises(SystemExit, match=line) as error:
        invoke(commands.leaderboard, [str(tmp_path / folder)])
    assert "\n" not in str(error.value)
