"""Rows that others wrote, as they lie on disk: one reader of JSON lines for prompts, data sets and corpora."""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ngram_trie.store.files import first_line


def opened(file: Path) -> BinaryIO:
    """The content of a file, unpacked where it is a .gz."""
    return gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb")  # type: ignore[return-value]


def read_rows(file: Path) -> Iterator[tuple[int, Any]]:
    """The rows of a file of JSON lines, or of one JSON list, each with its line (of a list: its place), from 1. Lines
    are read one by one. The text is UTF-8, or UTF-16 where it begins with a mark that says so.

    Raises:
        ValueError: a row is no JSON, no such text, or half a character stands in it; the message names file and line.
    """
    with opened(file) as content:
        try:
            head = content.read(2)
            coding = "utf-16" if head in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8"
            content.seek(0)
            is_whole = coding == "utf-16" or _is_list(content)
            content.seek(0)
            if is_whole:
                yield from _whole(file, content.read().decode(coding.replace("8", "8-sig")))
                return
            for number, line in enumerate(content, 1):  # not splitlines: texts may hold other ends than the file's own
                if line := line.removeprefix(codecs.BOM_UTF8).strip():
                    yield number, _row(file, number, line)
        except (EOFError, gzip.BadGzipFile) as error:
            raise ValueError(f"{file}: not readable as .gz ({first_line(error)})") from None
        except UnicodeDecodeError:
            raise ValueError(f"{file}: not {coding.upper()}: save it as UTF-8") from None


def _is_list(content: BinaryIO) -> bool:
    """Whether a JSON list over several lines, or of objects, is all of it; a line may be a list of something else."""
    first = content.readline().removeprefix(codecs.BOM_UTF8).strip()
    return first == b"[" or first.replace(b" ", b"").startswith(b"[{")


def _whole(file: Path, text: str) -> Iterator[tuple[int, Any]]:
    if not text.lstrip().startswith("["):
        lines = enumerate(text.split("\n"), 1)
        yield from ((number, _row(file, number, line.encode())) for number, line in lines if line.strip())
        return
    try:
        yield from enumerate(json.loads(text), 1)
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}:{error.lineno}: not JSON ({error.msg})") from None


def _row(file: Path, number: int, line: bytes) -> Any:
    try:
        row = json.loads(line.decode())
        if b"\\ud" in line.lower():
            json.dumps(row, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        raise ValueError(f"{file}:{number}: not UTF-8: save it as UTF-8") from None
    except UnicodeEncodeError:
        raise ValueError(f"{file}:{number}: half a character, a lone surrogate, stands in it") from None
    except ValueError as error:
        raise ValueError(f"{file}:{number}: not JSON ({error})") from None
    return row
