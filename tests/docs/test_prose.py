"""What a reader stumbles over in pages, help and messages: phrases that are no English, or that say nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ngram_trie.store.files import PROJECT

#: A pattern, and what to write instead.
PHRASES = {
    r"\b[Ss]o many(?! [\w ]+ that)": "this many, or the number by its name",
    r"\b[Aa]s far as the \w+ tells\b": "where it says",
    r"\bwhat lies (under|below|behind|there)\b": "what is in, what follows",
    r"\bno run is of\b": "has no run",
    r"\bgoes on where it stopped\b": "resumes",
    r"\b(very|quite|simply|obviously|basically)\b": "leave it out",
    r"\bin order to\b": "to",
    r"\b(utili[sz]e|leverage)\b": "use",
    r"\b(\w{2,}) \1\b(?<!that that)": "a word stands twice",
}
#: What docstrings and comments, too, have no use for.
EVERYWHERE = {
    r"\bas of\b": "see, like, in; a date is no place",
    r"\b(is|are) none of\b|\bthat (is|are) none\b": "is not one of",
    r"so-manieth|\bhear of\b|\bof which it\b|\bit was looked at\b": "say who does what",
    r"\b(unless|as|not) told\b": "by default, as asked, without",
}
PAGES = [
    path
    for pattern in (
        "*.md",
        "docs/*.md",
        "results/README.md",
        "ngram_trie/**/words.yaml",
        "ngram_trie/report/templates/*.j2",
    )
    for path in sorted(PROJECT.glob(pattern))
]


def prose(path: Path) -> str:
    """The text without code, tables and markup; lines keep their places."""
    text = path.read_text(encoding="utf-8")
    code = r"^```.*?^```$|<script.*?</script>|{%.*?%}|{{.*?}}"
    text = re.sub(code, lambda match: "\n" * match[0].count("\n"), text, flags=re.M | re.S)
    return re.sub(r"^\|.*$|`[^`\n]*`", "", text, flags=re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_pages_use_no_such_phrase(page: Path) -> None:
    text = prose(page)
    found = [
        f"line {text[: match.start()].count(chr(10)) + 1}: {match[0]!r}: {instead}"
        for pattern, instead in PHRASES.items()
        for match in re.finditer(pattern, text)
    ]
    assert not found, "\n".join(found)


def test_nothing_that_is_read_uses_what_is_no_english() -> None:
    files = [path for suffix in ("py", "md", "yaml", "j2") for path in PROJECT.rglob(f"*.{suffix}")]
    apart = {".venv", ".venv-newest", "results", "build", "CHANGELOG.md", Path(__file__).name}
    for path in files:
        if not apart & {*path.relative_to(PROJECT).parts, path.name}:
            text = path.read_text(encoding="utf-8")
            found = [match[0] for pattern in EVERYWHERE for match in re.finditer(pattern, text)]
            assert not found, f"{path.relative_to(PROJECT)}: {found[0]!r}"


def test_help_of_the_commands_uses_no_such_phrase() -> None:
    sources = [*(PROJECT / "ngram_trie" / "cli").glob("*.py"), *(PROJECT / "scripts").glob("*.py")]
    for path in sources:
        for text in re.findall(r'help=f?"([^"]+)"', path.read_text(encoding="utf-8")):
            assert not [pattern for pattern in PHRASES if re.search(pattern, text)], f"{path.name}: {text}"
