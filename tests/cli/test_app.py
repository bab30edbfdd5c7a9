"""Command lines by typer: messages, defaults in the help, interrupts."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import psutil
import pytest
import typer

from ngram_trie.cli.app import invoke, name_in, one_line_errors, one_of, parsed
from ngram_trie.store.files import PROJECT


def command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="to read")],
    model: Annotated[str, typer.Option(callback=name_in("model"), help="of configs/model")] = "tiny",
    kind: Annotated[Literal["short", "long"], typer.Option(help="which")] = "short",
    names: Annotated[list[str] | None, typer.Option(callback=one_of(["first", "last"]), help="several")] = None,
    count: Annotated[int, typer.Option(min=1, help="how many")] = 3,
    output: Annotated[Path, typer.Option(help="the page")] = PROJECT / "results" / "page.html",
    local: Annotated[bool, typer.Option("--local", help="also those")] = False,
) -> int:
    """Does a thing.

      python -m scripts.thing FILE
      python -m scripts.thing FILE --local

    More about it.
    """
    if folder.name == "missing":
        raise FileNotFoundError("missing: no such folder")
    if folder.name == "slow":
        raise KeyboardInterrupt
    return count


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x --modle tiny", "--modle: no such option; did you mean --model or --names? There are: --model, --kind"),
        ("x --model smolm2_135m", "--model: smolm2_135m: did you mean smollm2_135m"),
        ("x --kind lnog", "--kind: lnog: did you mean long? There are: short, long"),
        ("x --names first --names lats", "--names: lats: did you mean last"),
        ("x --count 0", "--count: must be greater than or equal to 1"),
        ("x --count two", "--count: must be a valid integer"),
        ("x --count", "--count: give a value"),
        ("x y", "y: one argument too many"),
        ("", "FOLDER: must be given"),
        ("missing", "missing: no such folder"),
    ],
)
def test_a_wrong_command_line_is_one_line(line: str, message: str) -> None:
    with pytest.raises(SystemExit) as ended:
        invoke(command, line.split())
    assert str(ended.value).startswith(f"error: {message}") and "\n" not in str(ended.value)


def test_a_right_one_is_called_and_can_be_parsed_alone() -> None:
    assert invoke(command, ["x", "--count", "5"]) == 5
    given = parsed(command, ["x", "--names", "last", "--local"])
    assert given.params == {
        "folder": Path("x"), "model": "tiny", "kind": "short", "names": ["last"], "count": 3, "local": True,
        "output": PROJECT / "results" / "page.html",
    }  # fmt: skip


def test_help_shows_defaults_and_commands_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        invoke(command, ["--help"], prog="python -m scripts.thing")
    text = capsys.readouterr().out
    assert ended.value.code == 0 and "Usage: python -m scripts.thing" in text
    assert "  python -m scripts.thing FILE\n" in text and "More about it." in text
    assert "of configs/model  [default: tiny]" in text and "(results/page.html)" in text
    assert str(PROJECT) not in text


def test_interrupts_and_errors_have_their_status(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        invoke(command, ["slow"], interrupted="nothing was written")
    assert ended.value.code == 130 and capsys.readouterr().err == "interrupted; nothing was written\n"
    with pytest.raises(SystemExit, match=r"^error: odd$"), one_line_errors(also=(RuntimeError,)):
        raise RuntimeError("odd")
    with pytest.raises(SystemExit) as ended, one_line_errors():
        raise RuntimeError("a bug\nkeeps its traceback")
    said, _, file = str(ended.value).rpartition(" ")
    assert said.startswith("error: RuntimeError: a bug; an unforeseen error") and ended.value.code == 1
    assert 'raise RuntimeError("a bug' in Path(file).read_text()
    Path(file).unlink()


def test_what_it_called_ends_with_it() -> None:
    sleeping = ["timeit", "-n1", "-r1", "__import__('time').sleep(60)"]
    code = f"import sys; from ngram_trie.cli.app import call; sys.exit(call(*{sleeping}))"
    caller = psutil.Popen([sys.executable, "-c", code], cwd=PROJECT)
    while not (called := caller.children()):
        time.sleep(0.05)
    caller.terminate()
    assert caller.wait(30) == 143
    assert not called[0].is_running()
