"""The answers of a run, to be read."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from ngram_trie.bench.records import ItemKey, PromptRecord
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import write_atomically

#: Characters of a prompt's end that are shown: what is asked stands there.
SHOWN = 600


def write(
    path: Path,
    records: Collection[PromptRecord],
    prompt_of: Callable[[ItemKey], Prompt],
    decode: Callable[[list[int]], str],
) -> None:
    """Write, in Markdown, each prompt's end and what was answered: an answer that several methods gave stands once,
    with their names and how many passes each took.

    Args:
        prompt_of: the prompt of what is answered.
        decode: token ids to text.
    """
    lines = [f"# Answers of {next((record.model for record in records), 'no model')}", ""]
    by_item: dict[ItemKey, list[PromptRecord]] = {}
    for record in records:
        if not record.repeat and not record.session:
            by_item.setdefault(record.key.item, []).append(record)
    for item, group in by_item.items():
        text = decode(prompt_of(item).ids.tolist())
        turn = f", turn {item.turn + 1}" if item.turn else ""
        lines += [f"## {group[0].column}, {item.question_id}{turn}", ""]
        cut = "... " if len(text) > SHOWN else ""
        lines += [*_quoted(f"{cut}{text[-SHOWN:].strip()}"), ""]
        answers: dict[tuple[int, ...], list[PromptRecord]] = {}
        for record in group:
            if record.failure:
                lines += [f"**{record.method}**: no answer, {record.failure.message}", ""]
            else:
                answers.setdefault(tuple(record.output_ids), []).append(record)
        for number, (ids, given) in enumerate(answers.items()):
            names = ", ".join(f"{record.method} ({len(record.accept_lengths)} passes)" for record in given)
            same = "" if not number else ": **not the first answer**"
            lines += [f"**{names}**{same}, {len(ids)} tokens", "", *_quoted(decode(list(ids)).strip()), ""]
    write_atomically(path, "\n".join(lines))


def _quoted(text: str) -> list[str]:
    """As a block that Markdown shows as it is; a fence within it cannot end it."""
    return ["~~~~text", *(line.replace("~~~~", "~~ ~~") for line in text.split("\n")), "~~~~"]
