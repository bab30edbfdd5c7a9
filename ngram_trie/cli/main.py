"""The console command `ngram-trie`. Help and version come at once: a command's module is imported when it is run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any


@dataclass(frozen=True)
class Entry:
    """A command.

    Attributes:
        about: for the list of commands.
        interrupted: what an interrupt leaves behind, in words.
        where: the module of its function, which has its name.
    """

    about: str
    interrupted: str
    where: str = "ngram_trie.cli.commands"


NOTHING = "nothing was written"
#: The commands; `python -m scripts.run` is the first one, too.
COMMANDS = {
    "run": Entry("measure methods: ngram-trie run MODEL DATASET --methods trie,pld,blend", ""),
    "record": Entry("record a model's answers, to be replayed", "", "ngram_trie.cli.record"),
    "compare": Entry("compare two runs: settings, code, numbers", NOTHING),
    "derive": Entry("derive tables and figures again from records", "the records are as they were"),
    "report": Entry("write all results on one page", "the page is as it was"),
    "explore": Entry("step through a recorded answer's draft trees", NOTHING),
    "doctor": Entry("show what this machine can run, and how to get the rest", NOTHING, "ngram_trie.cli.doctor"),
}


def main() -> None:
    """`ngram-trie NAME ARGUMENTS`."""
    name = sys.argv.pop(1) if sys.argv[1:] else "--help"
    if name in ("-h", "--help"):
        print("usage: ngram-trie COMMAND ...     (ngram-trie COMMAND --help shows its options; --version)\n")
        for command, entry in COMMANDS.items():
            print(f"  {command:11} {entry.about}")
    elif name in ("-V", "--version"):
        from ngram_trie import __version__

        print(f"ngram-trie {__version__}")
    elif name in COMMANDS:
        try:
            from ngram_trie.cli import app, hydra_app  # noqa: F401  (what every command needs)

            found = function(name)
        except ModuleNotFoundError as error:
            sys.exit(f"error: {error.name} is missing: pip install 'ngram-trie[bench]'")
        start(found)
    else:
        from ngram_trie.cli import app
        from ngram_trie.methods import near

        app.end(f"{name}: {near(name, list(COMMANDS))}")


def function(name: str) -> Callable[..., Any]:
    """The function of a command."""
    found: Callable[..., Any] = resolve_name(f"{COMMANDS[name].where}:{name}")
    return found


def start(command: Callable[..., Any]) -> None:
    """Run a command's function with the command line's arguments."""
    from ngram_trie.cli import app

    name = command.__name__
    if name in ("run", "record"):  # Hydra reads their arguments
        command()
    else:
        app.run(command, COMMANDS[name].interrupted, prog=f"ngram-trie {name}")
