"""The shell commands of README, CONTRIBUTING and docs/: found, sorted into classes, and checked.

A command is a line of an unlabelled (or sh, bash, console) fenced block that has any, or an inline code that begins
with `make `, `python -m ` or `ngram-trie `. Where a block of output looks like commands, label it ```text.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from ngram_trie.store.files import PROJECT

PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").glob("*.md"))]
SHELLS = ("", "sh", "bash", "shell", "console")
#: First words of lines that are commands.
KNOWN = (
    "python",
    "python3",
    ".venv/bin/python",
    "make",
    "pip",
    "ngram-trie",
    "git",
    "cd",
    "export",
    "source",
    "hf",
    "ruff",
    "mypy",
    "pytest",
)
#: What cannot be run or checked here, and why; by how the command begins.
LISTED = {
    "export ": "sets variables of the reader's shell",
    "source .venv/bin/activate": "changes the reader's shell",
    "hf auth login": "asks for a token of the model hub",
    "pip install ": "changes the environment and needs a package index",
    "git clone ": "needs the address of a repository",
    "make setup": "is every other target's first step; the tests run in what it made",
}


@dataclass(frozen=True)
class Command:
    """One command of a page: environment variables, then words."""

    page: str
    text: str

    @property
    def words(self) -> list[str]:
        """Without what is set for it, the comment behind it, and `.venv/bin/`."""
        words = shlex.split(self.text, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        return ["python" if word in ("python3", ".venv/bin/python") else word for word in words[:1]] + words[1:]

    @property
    def module(self) -> str:
        """What `python -m` runs, if it is that; `ngram-trie` is `python -m ngram_trie`."""
        if self.words[:1] == ["ngram-trie"]:
            return "ngram_trie"
        return self.words[2] if self.words[:2] == ["python", "-m"] and len(self.words) > 2 else ""

    @property
    def script(self) -> str:
        """The file that `python` runs, if it is that."""
        return (
            self.words[1] if self.words[:1] == ["python"] and self.words[1:] and self.words[1].endswith(".py") else ""
        )

    @property
    def arguments(self) -> list[str]:
        """What stands behind the module."""
        return self.words[1 if self.words[:1] == ["ngram-trie"] else 3 :]

    @property
    def has_gap(self) -> bool:
        """Whether something is left out, as in `python -m scripts.run -m ...`, or an option is shown as optional."""
        return any(word in ("...", "X", "MODEL") or word.startswith("[") for word in self.words)

    def classify(self) -> str:
        """ "executed", "composed", "listed", or "" for one that no class takes."""
        if any(self.text.startswith(start) for start in LISTED):
            return "listed"
        if self.is_quick():
            return "executed"
        return "composed" if self.module or self.script or self.words[:1] == ["make"] else ""

    def is_quick(self) -> bool:
        """Whether it takes seconds once its files are stood in for: help, plans, the doctor, a replay of one cell, and
        what the pages on adding something show.
        """
        if self.has_gap or not self.module.startswith(("scripts.", "ngram_trie")):
            return self.words == ["make", "help"]
        quick = "--help" in self.arguments or self.arguments[:1] == ["doctor"] or self.is_example
        single = not {"-m", "--multirun"} & set(self.arguments) and "experiment=" not in self.text
        return bool(quick) or ("engine=replay" in self.arguments and single)

    @property
    def is_example(self) -> bool:
        """Whether it needs the files of its page; test_docs_pages.py and test_guide.py run it."""
        of_adding = "--config-dir" in self.arguments and self.page == "extending.md"
        return of_adding or (self.page == "library.md" and "results/local/mine" in self.text)


def commands(pages: list[Path] | None = None) -> list[Command]:
    """All commands, each once a page, in their order."""
    found: dict[Command, None] = {}
    for page in pages or PAGES:
        text = page.read_text(encoding="utf-8")
        for label, block in re.findall(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", text, re.M | re.S):
            if label in SHELLS:
                found |= dict.fromkeys(Command(page.name, line) for line in lines_of(block))
        prose = re.sub(r"^```.*?^```\s*$", "", text, flags=re.M | re.S)
        for code in re.findall(r"`([^`]+)`", prose):
            if re.match(r"(\.venv/bin/)?python -m \S|make [a-z]|ngram-trie [a-z]", code) and "\n\n" not in code:
                found[Command(page.name, " ".join(code.split()))] = None
    return list(found)


def lines_of(block: str) -> list[str]:
    """The lines of a block of commands, continued ones joined; none if no line of it is a command."""
    lines = [line.removeprefix("$ ").strip() for line in block.replace("\\\n", " ").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    return lines if any(is_command(line) for line in lines) else []


def is_command(line: str) -> bool:
    """Whether a line begins as a command does, behind variables that are set for it."""
    return re.sub(r"^([A-Z_]+=\S* )+", "", line).partition(" ")[0] in KNOWN
