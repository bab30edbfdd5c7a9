"""argparse with the project's manners, for the scripts that are not typer's yet."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ngram_trie.cli.app import one_line_errors
from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.config import choices, near
from ngram_trie.files import relative

__all__ = ["Parser", "hydra_app", "name_of", "one_line_errors", "one_of", "positive"]


class Parser(argparse.ArgumentParser):
    """argparse with the project's manners.

    The text of a module is its help: the first paragraph says what it does, the rest stands below the options. Defaults
    are shown, an unknown option gets the nearest one, and an error is one line.
    """

    def __init__(self, about: str | None, **options: Any) -> None:
        first, _, rest = inspect.cleandoc(about or "").partition("\n\n")
        if spec := sys.modules["__main__"].__spec__:  # as it was called
            options.setdefault("prog", f"python -m {spec.name}")
        super().__init__(description=first, epilog=rest, formatter_class=_Formatter, allow_abbrev=False, **options)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        given = sys.argv[1:] if args is None else list(args)
        options, unknown = self.parse_known_args(given, namespace)
        if unknown:
            if not unknown[0].startswith("-"):
                self.error(f"{unknown[0]}: one argument too many")
            known = [name for action in self._actions for name in action.option_strings if name.startswith("--")]
            self.error(f"{unknown[0]}: no such option; {near(unknown[0].partition('=')[0], known)}")
        return options

    def error(self, message: str) -> NoReturn:
        named = re.sub(r"^argument (?:\S+/)?(\S+): (\S+): ", r"\1=\2: ", message)
        sys.exit("error: " + named.removeprefix("argument "))


class _Formatter(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Text as it is written, and the default of every option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        empty = action.default is None or action.default is False or action.default == []
        if empty or "default" in (action.help or "") or action.nargs == 0:
            return action.help
        return f"{action.help or ''} (default: {shown(action.default)})".strip()


def shown(value: object) -> str:
    """A value as one would type it."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return relative(str(value))


def name_of(group: str) -> Callable[[str], str]:
    """A `type` for argparse: a name in a folder of configs/."""

    def check(name: str) -> str:
        known = list(choices()[group])
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name}: {near(name, known)}")
        return name

    return check


def one_of(known: Sequence[str]) -> Callable[[str], str]:
    """A `type` for argparse: one of some names; unlike `choices` it answers with the nearest ones."""

    def check(name: str) -> str:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name}: {near(name, known)}")
        return name

    return check


def positive(text: str) -> int:
    """A `type` for argparse: an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be an integer of at least 1")
    return int(text)
