"""Command lines by typer: wrong options with the nearest ones, errors in one line, and how an interrupt ends."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.exceptions import TyperException

from ngram_trie.methods import choices, near
from ngram_trie.store.files import NO_ROOM, PROJECT, first_line, relative

RESUMES = "the same command resumes the work"
#: Exit statuses: what was asked for cannot be done; something else went wrong; an interrupt.
REFUSED, FAILED, INTERRUPTED = 2, 1, 130


def end(line: str, status: int = REFUSED) -> NoReturn:
    """End the process with one line on standard error."""
    line = f"error: {' '.join(line.split())}"
    print(line, file=sys.stderr)
    ended = SystemExit(line)
    ended.code = status
    raise ended


def call(*command: str) -> int:
    """Run `python -m` a command in the project's folder. It ends when this process is told to: nobody else knows it.

    Returns:
        its exit status; -n where signal n ended it.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return subprocess.run([sys.executable, "-m", *command], cwd=PROJECT, check=False).returncode
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def one_line_errors(interrupted: str = RESUMES, also: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """End the process with one line instead of a traceback: status 2 for what was asked for and cannot be done, 130 for
    an interrupt, 1 for anything else.

    A ValueError or OSError says by itself what is wrong. Any other error was not foreseen: its traceback is kept in a
    file that the line names.

    Args:
        interrupted: what an interrupt leaves behind, in words.
        also: other kinds of errors whose message suffices.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            end(str(error) or type(error).__name__)
        where = f"{error.filename}: " if error.filename else ""
        end(f"{where}{error.strerror}: make room; what was written before is whole, and {interrupted}", FAILED)
    except ValueError as error:
        end(str(error) or type(error).__name__)
    except also as error:
        end(str(error), FAILED)
    except KeyboardInterrupt:
        print(f"interrupted; {interrupted}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Exception as error:
        said = first_line(error)
        what = said if said == type(error).__name__ else f"{type(error).__name__}: {said}"
        end(f"{what}; an unforeseen error, its traceback is in {_kept_traceback()}", FAILED)


def _kept_traceback() -> str:
    """The name of a new file with the current error's traceback."""
    handle, name = tempfile.mkstemp(prefix="ngram-trie-error-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(traceback.format_exc())
    return name


def run(
    main: Callable[..., Any],
    interrupted: str = RESUMES,
    also: tuple[type[BaseException], ...] = (),
    prog: str = "",
    arguments: Sequence[str] | None = None,
) -> Any:
    """Run a function as a command line: its parameters are the arguments and options, its docstring is the help.

    Args:
        main: the function. An option without its negative is declared as `typer.Option("--local")`.
        interrupted, also: as in `one_line_errors`.
        prog: what the command is called; by default as it was started.
        arguments: by default the process's.

    Returns:
        What `main` returns.

    Raises:
        SystemExit: a wrong argument or a known error, with the line `error: ...`; an interrupt, with status 130.
    """

    @functools.wraps(main)
    def guarded(*args: Any, **options: Any) -> Any:
        with one_line_errors(interrupted, also):
            return main(*args, **options)

    try:
        with parsed(guarded, sys.argv[1:] if arguments is None else arguments, prog) as context:
            return context.command.invoke(context)
    except typer.Exit as end:  # --help
        sys.exit(end.exit_code)


def invoke(main: Callable[..., Any], arguments: Sequence[str], **options: Any) -> Any:
    """As `run`, with these arguments."""
    return run(main, arguments=arguments, **options)


def parsed(main: Callable[..., Any], arguments: Sequence[str], prog: str = "") -> Any:
    """The command line as the context in which the command is called.

    Raises:
        SystemExit: a wrong argument, with the line `error: ...`.
    """
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
    app.command(help=_help(main.__doc__ or ""), context_settings=settings)(main)
    command: Any = typer.main.get_command(app)
    for param in command.params:
        if isinstance(param.default, Path) and param.default.is_absolute():
            param.show_default = relative(str(param.default))
    try:
        return command.make_context(prog or started_as(), list(arguments))
    except TyperException as error:
        end(_line(error, command))


def name_in(group: str) -> Callable[[Any], Any]:
    """A `callback` for an option or argument: its value, or each of its values, is a name in configs/GROUP."""
    return one_of(lambda: list(choices()[group]))


def one_of(known: Sequence[Any] | Callable[[], Sequence[Any]]) -> Callable[[Any], Any]:
    """A `callback` for an option or argument: its value, or each of its values, is one of some names."""

    def check(value: Any) -> Any:
        names = known() if callable(known) else known
        for name in value if isinstance(value, list | tuple) else [value]:
            if name is not None and name not in names:
                raise typer.BadParameter(f"{name}: {near(str(name), list(map(str, names)))}")
        return value

    return check


def _help(text: str) -> str:
    """The text with its indented blocks, which are commands, kept as they are written."""
    return re.sub(r"\n\n(?=[ \t]+\S)", "\n\n\b\n", inspect.cleandoc(text))


def started_as() -> str:
    """The command as it was started."""
    spec = sys.modules["__main__"].__spec__
    return f"python -m {spec.name}" if spec else Path(sys.argv[0]).name


def _line(error: Any, command: Any) -> str:
    """A wrong command line in one line: the option, what is wrong with it, and what is allowed."""
    message = " ".join(error.format_message().split())
    if hasattr(error, "possibilities"):
        options = [name for param in command.params for name in param.opts if name.startswith("--")] + ["--help"]
        return f"{error.option_name}: no such option; {near(error.option_name, options)}"
    if found := re.match(r"Got unexpected extra argument\(?s?\)? \((.*)\)", message):
        return f"{found[1]}: one argument too many"
    if (param := getattr(error, "param", None)) is None:
        return message.replace("Option '", "").replace("' requires an argument", ": give a value")
    name = next((option for option in param.opts if option.startswith("--")), param.metavar or param.name.upper())
    if wrong := re.match(r"Value error, '(.*)' is not one of", error.message):
        return f"{name}: {wrong[1]}: {near(wrong[1], [str(choice) for choice in param.type_descriptor.choices])}"
    return f"{name}: {error.message.replace('Input should be', 'must be') or 'must be given'}"
