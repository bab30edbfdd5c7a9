"""Texts that others wrote, as they lie on disk: one reader of JSON lines for prompts, data sets and recordings."""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ngram_trie.store.files import first_line

_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def read_text(file: Path) -> str:
    """The text of a file, unpacked where it is a .gz: UTF-8, or UTF-16 where it begins with a mark that says so.

    Raises:
        ValueError: it is no such text; the message names file and line.
    """
    content = file.read_bytes()
    if file.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            raise ValueError(f"{file}: not readable as .gz ({first_line(error)})") from None
    coding = next((name for mark, name in _MARKS.items() if content.startswith(mark)), "utf-8")
    try:
        return content.decode(coding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(f"{file}:{line}: not {coding.removesuffix('-sig').upper()}: save it as UTF-8") from None


def read_rows(file: Path) -> Iterator[tuple[int, Any]]:
    """The rows of a file of JSON lines, or of one JSON list, each with its line (of a list: its place), from 1.

    Raises:
        ValueError: a row is no JSON, or half a character stands in it; the message names file and line.
    """
    text = read_text(file)
    try:
        rows = json.loads(text) if text.lstrip().startswith("[") else None
    except ValueError:  # a line may be a list, too
        rows = None
    if isinstance(rows, list):
        yield from enumerate(rows, 1)
        return
    # Not splitlines: texts may hold other line ends than the file's own.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if "\\ud" in line.lower():
                json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError(f"{file}:{number}: half a character, a lone surrogate, stands in it") from None
        except ValueError as error:
            raise ValueError(f"{file}:{number}: not JSON ({error})") from None
        yield number, row
