"""Stage the pages of the documentation site (make docs), which MkDocs then builds from mkdocs.yml."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ngram_trie.cli import app
from ngram_trie.store.files import PROJECT

#: Where mkdocs.yml looks for the pages.
SOURCE = PROJECT / "results" / "local" / "docs" / "source"
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "results/README.md", "docs/*.md", "notebooks/*.ipynb")


def links(page: Path) -> Iterator[Path]:
    """The files that a page links to by a relative path."""
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target and (file := (page.parent / target).resolve()).is_file():
            yield file


def stage(source: Path = SOURCE) -> list[Path]:
    """Copy the pages, with every file that they link to, and write a page for each module that mkdocs.yml names;
    returns what was staged.

    Notebooks that `make notebooks` ran are taken with their outputs.
    """
    shutil.rmtree(source, ignore_errors=True)
    pages = [path for pattern in PAGES for path in sorted(PROJECT.glob(pattern))]
    waiting, staged = list(pages), []
    while waiting:
        file = waiting.pop()
        place = source / file.relative_to(PROJECT)
        if place in staged:
            continue
        run = PROJECT / "results" / "local" / "notebooks" / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(run if file.suffix == ".ipynb" and run.is_file() else file, place)
        staged.append(place)
        waiting += links(file) if file.suffix == ".md" else ()
    for module in re.findall(r"api/(\S+)\.md", (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")):
        place = source / "api" / f"{module}.md"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"# ngram_trie.{module}\n\n::: ngram_trie.{module}\n", encoding="utf-8")
        staged.append(place)
    return staged


def main(source: Annotated[Path, typer.Option(help="folder of the staged pages")] = SOURCE) -> None:
    """Stage the pages of the documentation site: README, docs/, notebooks, the files that they link to, and the API.

    python -m scripts.build_site
    """
    print(f"staged: {len(stage(source))} files in {source}")


if __name__ == "__main__":
    app.run(main, "run it again")
