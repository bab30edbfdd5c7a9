"""Runs a page's code blocks, so that documentation cannot go stale: `run_blocks(page)` in a test of that page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ngram_trie.store.files import PROJECT

FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str = "python") -> list[tuple[int, str]]:
    """The fenced blocks of `language`: the line that each begins on, from 1, and its code."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start("code")) + 1, match["code"])
        for match in FENCE.finditer(text)
        if match["language"] == language
    ]


def run_blocks(page: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the page's Python blocks in order, as one program from the project's root; an error shows the page's line.

    Returns:
        The names that they defined.
    """
    monkeypatch.chdir(PROJECT)
    names: dict[str, Any] = {"__name__": page.stem}
    found = blocks(page)
    assert found, f"{page.name} has no Python block"
    for line, code in found:
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)
    return names
