"""docs/library.md does what it says, and the examples run."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs_blocks import blocks, run_blocks

from ngram_trie import Answer, speculative_generate
from ngram_trie.config import PROJECT

PAGE = PROJECT / "docs/library.md"
EXAMPLES = ["rag_answer", "summary", "chat"]


def test_every_block_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    names = run_blocks(PAGE, monkeypatch)
    assert isinstance(names["result"], Answer)
    assert "1941" in capsys.readouterr().out  # what the question of the page asks for


def test_every_option_is_documented() -> None:
    options = set(inspect.signature(speculative_generate).parameters) - {"model", "inputs", "options"}
    text = PAGE.read_text(encoding="utf-8")
    assert not [option for option in options if f"| `{option}` |" not in text]
    listed = re.findall(r"`(\w+)`", text[text.index("## What comes back") : text.index("## Many prompts")])
    fields = [*Answer.__dataclass_fields__, "accept_length"]
    assert not [field for field in fields if field not in ("draft_us", *listed)]


def test_a_block_s_error_names_the_page_and_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```\nnot python\n```\n```python\nvalue = 1\n```\n```python\nassert value == 2\n```\n")
    assert [line for line, _ in blocks(page)] == [7, 10]
    with pytest.raises(AssertionError) as error:
        run_blocks(page, monkeypatch)
    last = error.traceback[-1]
    assert (last.path, last.lineno + 1) == (page, 10)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(name: str) -> None:
    done = subprocess.run(
        [sys.executable, f"examples/{name}.py", "--max-new-tokens", "60"],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    measured = re.findall(
        r"^\[\d+ tokens; accept length (\S+); \S+x plain greedy decoding, the same tokens\]$", done.stdout, re.M
    )
    assert len(measured) == (2 if name == "chat" else 1), done.stdout
    assert max(map(float, measured)) > 1.2


def test_all_examples_are_here() -> None:
    assert sorted(path.stem for path in (PROJECT / "examples").glob("*.py")) == sorted(["common", *EXAMPLES])
