"""The console command: its list, its version, and how little it imports for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ngram_trie import __version__
from ngram_trie.cli import main
from ngram_trie.store.files import PROJECT

HEAVY = ("torch", "transformers", "pandas", "matplotlib", "hydra", "numba", "scipy")


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(argument: str) -> None:
    code = f"import sys; sys.argv = ['ngram-trie', '{argument}']; from ngram_trie.cli.main import main; main()"
    code += f"; sys.exit(' '.join(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
    assert __version__ in done.stdout if argument == "--version" else "compare" in done.stdout


def test_every_command_has_its_function() -> None:
    for name in main.COMMANDS:
        assert main.function(name).__name__ == name


def test_an_unknown_command_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ngram-trie", "dervie"])
    with pytest.raises(SystemExit, match=r"^error: dervie: did you mean derive"):
        main.main()
