"""The page that several modules look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngram_trie.cli import commands
from ngram_trie.store.files import PROJECT


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the project's results."""
    output = tmp_path_factory.mktemp("page") / "report.html"
    commands.write_report(PROJECT / "results", output)
    return output
