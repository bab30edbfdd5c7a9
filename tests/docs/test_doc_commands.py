"""Every command of README, CONTRIBUTING and docs/ is executed, or composed and parsed, or listed with a reason."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.doc_commands import Command, commands, lines_of

from ngram_trie.cli import app, hydra_app, main
from ngram_trie.store.files import PROJECT

COMMANDS = commands()
STARTS = [f"python -m scripts.{path.stem}" for path in sorted((PROJECT / "scripts").glob("[a-z]*.py"))]
STARTS += [f"ngram-trie {name}" for name in main.COMMANDS]
TRACES = PROJECT / "results" / "table1" / "tiny" / "traces.jsonl"


def of_class(name: str) -> list[pytest.param]:
    """The commands of a class; tests/docs/test_docs_pages.py has those that need the files of their page."""
    return [pytest.param(c, id=f"{c.page}:{c.text}") for c in COMMANDS if c.classify() == name and not c.is_example]


class Reached(BaseException):  # which nothing takes for a defect
    """A command got as far as it should."""


@contextlib.contextmanager
def cut_off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Command lines end behind their checks: where everything is parsed, or the configuration is composed."""

    def then_end(check: Callable[..., object]) -> Callable[..., object]:
        def checked(*arguments: object, **options: object) -> object:
            check(*arguments, **options)
            raise Reached

        return checked

    with monkeypatch.context() as patch:
        patch.setattr(hydra_app, "typed", then_end(hydra_app.typed))
        patch.setattr(app, "parsed", then_end(app.parsed))
        yield


def call(command: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str] | None = None) -> int:
    """Run a script of the project as the shell would, in this process; returns the exit status.

    Raises:
        SystemExit: an error, with its line.
    """
    monkeypatch.setattr(sys, "argv", [command.module, *(command.arguments if arguments is None else arguments)])
    try:
        runpy.run_module(command.module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.args and isinstance(end.args[0], str):
            raise
        return end.code or 0
    return 0


def check_python(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module is there, and of the project's own every option, name and field is right."""
    if command.script:
        assert (PROJECT / command.script).is_file(), f"{command.text}: no file {command.script}"
        return
    assert importlib.util.find_spec(command.module), f"{command.text}: no module {command.module}"
    if not command.module.startswith(("scripts.", "ngram_trie")) or command.has_gap:
        return
    if "prompts.jsonl" in command.words:
        monkeypatch.chdir(Path(os.environ["STAND_INS"]))
    with cut_off(monkeypatch), pytest.raises(Reached):
        call(command, monkeypatch)


@pytest.fixture(autouse=True)
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A few recorded answers where a page says FILE or TRACES; what is written goes to a folder of the test."""
    (tmp_path / "traces.jsonl").write_text("".join(TRACES.read_text(encoding="utf-8").splitlines(True)[:2]))
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "Why?"}\n')
    monkeypatch.setenv("STAND_INS", str(tmp_path))
    return tmp_path


def make(*arguments: str) -> str:
    """What make would do, with a virtual environment that is there."""
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "-o", "setup", *arguments],
        cwd=PROJECT, env=os.environ | {"MAKEFLAGS": ""}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, f"make {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def test_every_command_falls_into_a_class() -> None:
    lost = [f"{command.page}: {command.text}" for command in COMMANDS if not command.classify()]
    assert not lost, "no class for these; run them, list them with a reason, or label the block ```text:\n" + "\n".join(
        lost
    )
    assert len(COMMANDS) > 60


@pytest.mark.parametrize("command", of_class("composed"))
def test_a_command_is_right_up_to_where_it_would_start(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    if command.words[0] != "make":
        check_python(command, monkeypatch)
    elif not command.has_gap:
        for line in re.findall(r"python (-m scripts\.\S+.*)", make(*command.words[1:]).replace("\\\n", " ")):
            check_python(Command("Makefile", f"python {line}"), monkeypatch)


@pytest.mark.parametrize("command", of_class("executed"))
def test_a_quick_command_runs(command: Command, stand_ins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if command.words == ["make", "help"]:
        printed = subprocess.run(["make", "help"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
        assert "make doctor" in printed
        return
    arguments = list(command.arguments)
    if "engine=replay" in arguments:
        arguments = [re.sub(r"^engine\.traces=.*", f"engine.traces={stand_ins / 'traces.jsonl'}", a) for a in arguments]
        arguments += ["engine.num_jobs=1", f"output={stand_ins / 'out'}"]
    assert call(command, monkeypatch, arguments) == 0
    assert "engine=replay" not in arguments or (stand_ins / "out" / "records.jsonl").exists()


@pytest.mark.parametrize("start", STARTS)
def test_a_command_has_help_with_examples_that_are_right(
    start: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        call(Command("help", f"{start} --help"), monkeypatch)
    printed = capsys.readouterr().out
    assert "usage: " in printed.lower() and "error:" not in printed
    # what stands behind two spaces says what the example is for
    examples = re.findall(rf"^ +((?:{start}|ngram-trie)(?: \S+)*)", printed, re.MULTILINE)
    assert examples or f"make {start.split('.')[-1].replace('_', '-')}" in printed
    for example in examples:
        check_python(Command("help", example), monkeypatch)


def test_what_is_wrong_in_a_command_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (
        "python -m scripts.run method=pdl",
        "python -m scripts.run method.num_drafts=3",
        "python -m scripts.build_index corpus=psgs",
        "ngram-trie derive ONE TWO",
        "ngram-trie plot",
        "python -m scripts.studies.time_split TRACES",
        "python -m scripts.studies.time_split TRACES OUTPUT --num-drafts 3",
        "python -m scripts.studies.ngrammys results --model vicuna",
    ):
        with pytest.raises(SystemExit, match=r"^error: "):
            check_python(Command("page", wrong), monkeypatch)
    with pytest.raises(AssertionError, match="no module"):
        check_python(Command("page", "python -m scripts_run"), monkeypatch)
    with pytest.raises(AssertionError, match="No rule"):
        make("reproduce-tabel1")
    assert Command("page", "curl example.org").classify() == ""


def test_commands_are_told_from_output() -> None:
    assert lines_of("mine/\n  drafter.py\n") == []
    assert lines_of("# first\nA=1 python -m scripts.run \\\n  dataset=rag\nmake test   # seven minutes\n") == [
        "A=1 python -m scripts.run    dataset=rag",
        "make test   # seven minutes",
    ]
    assert Command("page", "make test   # seven minutes").words == ["make", "test"]


def test_help_lists_every_target() -> None:
    text = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets, listed = (
        set(" ".join(re.findall(rule, text, re.M)).split())
        for rule in (r"^([a-z%0-9 -]+):(?!=)", r"^([a-z%0-9 -]+):.*?## ")
    )
    assert targets - listed <= set()


def test_the_doctor_speaks_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(Command("page", "ngram-trie doctor --json"), monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["bad"] == []
