"""Every bad input of the table ends in one line, before weights are loaded where that can be known."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
from adversarial import files, rows
from support.runs import run_script

from ngram_trie.bench import prepare
from ngram_trie.cli import app, commands
from ngram_trie.cli.hydra_app import hydra_options
from ngram_trie.cli.overrides import composed

#: Some in the quick suite, all in the whole one.
ROWS = [pytest.param(row, id=row.line, marks=[pytest.mark.slow] * bool(i % 4)) for i, row in enumerate(rows.COMMANDS)]
#: What a row is run with unless it says otherwise: little to do.
BRIEF = {
    "model.device": "cpu", "engine.backend": "stock", "dataset.limit": "1", "measure.max_new_tokens": "4",
}  # fmt: skip


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return files.make(tmp_path_factory.mktemp("damaged"))


def command(row: rows.Row, damaged: dict[str, str], output: Path) -> list[str]:
    """The overrides of a row, behind those that make it brief where they do not get in its way."""
    words = rows.arguments(row, damaged)
    keys = {word.partition("=")[0].lstrip("~+") for word in words}
    settings = BRIEF | {"output": str(output)}
    return [f"{k}={v}" for k, v in settings.items() if not keys & {k, k.partition(".")[0]}] + words


@pytest.mark.parametrize("row", ROWS)
def test_a_bad_input_is_one_line(
    row: rows.Row, damaged: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loaded(BaseException):
        """Weights were asked for."""

    def refuse(*_: Any, **__: Any) -> None:
        raise Loaded

    if not row.loads:
        monkeypatch.setattr(prepare, "cached_model", refuse)
    heard = io.StringIO()
    with pytest.raises(SystemExit) as ended, contextlib.redirect_stderr(heard), app.one_line_errors():
        options = hydra_options(command(row, damaged, tmp_path / "output"))
        commands.measure(composed(options.overrides))
    said = str(ended.value)
    assert rows.matches(row, said), said
    assert ended.value.code == app.REFUSED
    assert heard.getvalue().splitlines()[-1] == said and "Traceback" not in heard.getvalue()
    assert not (tmp_path / "output" / "records.jsonl").exists() or row.loads


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["method.n=1000000000", "engine.name=[", "model.device=tpu", "-m method.n=1,2 output=5"]
)
def test_the_process_says_the_line_and_its_status(line: str) -> None:
    done = run_script(*line.split())
    assert done.returncode == app.REFUSED and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
