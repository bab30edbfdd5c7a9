"""The documentation site: its pages are staged with all that they link to, and MkDocs builds it without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ngram_trie.store.files import PROJECT
from scripts.build_site import links, stage


def test_pages_are_staged_with_what_they_link_to(tmp_path: Path) -> None:
    staged = {path.relative_to(tmp_path) for path in stage(tmp_path)}
    assert {Path("README.md"), Path("docs/library.md"), Path("notebooks/results.ipynb")} <= staged
    for page in [PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")]:
        assert {file.relative_to(PROJECT) for file in links(page)} <= staged
    page = tmp_path / "api" / "bench.pairwise.md"
    assert page.read_text() == "# ngram_trie.bench.pairwise\n\n::: ngram_trie.bench.pairwise\n"


def test_every_page_stands_in_the_navigation() -> None:
    text = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [*(PROJECT / "docs").glob("*.md"), *(PROJECT / "notebooks").glob("*.ipynb")]
    assert not [page.name for page in pages if page.name != "README.md" and f"{page.name}" not in text]


@pytest.mark.slow
def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="MkDocs is not installed (make docs)")
    stage(tmp_path / "source")
    settings = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")
    for name, place in (("docs_dir", "source"), ("site_dir", "html"), ("paths", None)):
        old = next(line for line in settings.splitlines() if line.strip().startswith(f"{name}:"))
        new = f"{name}: {tmp_path / place}" if place else f"          paths: [{PROJECT}]"
        settings = settings.replace(old, new)
    (tmp_path / "mkdocs.yml").write_text(settings, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "tied_with_best" in (tmp_path / "html" / "api" / "bench.pairwise.html").read_text(encoding="utf-8")
