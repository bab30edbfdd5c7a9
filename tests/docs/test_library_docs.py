"""docs/library.md does what it says, and the examples run."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from support.docs_blocks import blocks, run_blocks

from ngram_trie import Answer, speculative_generate
from ngram_trie.cli.app import invoke
from ngram_trie.store.files import PROJECT

PAGE = PROJECT / "docs/library.md"
EXAMPLES = ["answer", "chat"]


@pytest.mark.slow
@pytest.mark.parametrize("page", [PAGE, PROJECT / "README.md"], ids=["library", "readme"])
def test_every_block_runs(page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    names = run_blocks(page, monkeypatch)
    assert isinstance(names["result"], Answer)
    assert "1941" in capsys.readouterr().out  # what the question of the page asks for


@pytest.mark.slow
def test_the_block_of_the_page_on_engines_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path))
    names = run_blocks(PROJECT / "docs/engines.md", monkeypatch)
    assert names["drafted"].shape[1] > names["inputs"]["input_ids"].shape[1]


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


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(PROJECT / "examples")
    monkeypatch.setattr(sys, "argv", [name, "--max-new-tokens", "60"])
    runpy.run_path(str(PROJECT / "examples" / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    measured = re.findall(
        r"^\[\d+ tokens; accept length (\S+); \S+x plain greedy decoding, the same tokens\]$", printed, re.M
    )
    assert len(measured) == (2 if name == "chat" else 1), printed


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a module of examples/ by its name."""
    monkeypatch.syspath_prepend(PROJECT / "examples")
    return importlib.import_module


def test_an_example_takes_any_drafter(examples: Callable[[str], ModuleType]) -> None:
    common = examples("common")
    for drafter in ("lookahead", "llma", "vanilla", "ngram_trie"):
        comparison = common.Comparison(str(common.TINY_MODEL / "model"), drafter, None)
        assert getattr(comparison.with_drafts.drafter, "num_draft", 8) == 8
    _, answer = comparison.without("Webb", max_new_tokens=3)
    assert "OTHER TOKENS" in comparison.verdict(answer, dataclasses.replace(answer, output_ids=[1]))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["--num-draft", "0"], "error: --num-draft: must be greater than or equal to 1"),
        (["--drafter", "lookahaed"], "error: --drafter: lookahaed: did you mean lookahead"),
        (["--drafter", "vanilla", "--num-draft", "3"], "error: method vanilla: num_draft: "),
        (["--model", "no/such/folder"], "error: model 'no/such/folder' cannot be loaded: "),
    ],
)
def test_what_is_wrong_is_one_line(examples: Callable[[str], ModuleType], given: list[str], line: str) -> None:
    with pytest.raises(SystemExit) as error:
        invoke(examples("answer").main, given)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


def test_all_examples_are_here() -> None:
    assert sorted(path.stem for path in (PROJECT / "examples").glob("*.py")) == sorted(
        ["common", "specdec_engine", *EXAMPLES]
    )
