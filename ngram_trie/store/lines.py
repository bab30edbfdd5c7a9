"""Rows that others wrote: one reader of JSON lines and one of TSV, for prompts, data sets, corpora, answers and traces.
Rows in are rows out: each is given, or refused by file and line.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ngram_trie.store.files import first_line


class Row(dict[str, Any]):
    """A row, by field, that knows where it stands."""

    place: tuple[Path, int]

    @property
    def where(self) -> str:
        """ "FILE:LINE"; of a JSON list, or of Parquet, the row's place in it."""
        return "{}:{}".format(*self.place)


def opened(file: Path) -> BinaryIO:
    """The content of a file, unpacked where it is a .gz."""
    return gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb")  # type: ignore[return-value]


def read_lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text with their numbers, from 1, without marks and ends ("\\n", "\\r\\n"; a text may hold others).
    The text is UTF-8, or UTF-16 where it begins with a mark that says so.

    Raises:
        ValueError: it is no such text, or no .gz; the message names file and line.
    """
    with opened(file) as content:
        try:
            wide = content.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            content.seek(0)
            lines = content.read().decode("utf-16").encode().split(b"\n") if wide else content
            for number, line in enumerate(lines, 1):
                try:
                    yield number, line.removeprefix(codecs.BOM_UTF8).removesuffix(b"\n").removesuffix(b"\r").decode()
                except UnicodeDecodeError:
                    raise ValueError(f"{file}:{number}: not UTF-8: save it as UTF-8") from None
        except (EOFError, OSError, zlib.error) as error:
            if file.suffix != ".gz":
                raise
            raise ValueError(f"{file}: not readable as .gz ({first_line(error)})") from None
        except UnicodeError:
            raise ValueError(f"{file}: not UTF-16: save it as UTF-8") from None


def read_rows(file: Path) -> Iterator[tuple[int, Any]]:
    """The rows of a file of JSON lines, or of one JSON list, each with its line (of a list: its place), from 1. Lines
    are read one by one.

    Raises:
        ValueError: as `read_lines`; a row is no JSON, or half a character stands in it.
    """
    lines = itertools.dropwhile(lambda line: not line[1].strip(), read_lines(file))
    for number, line in lines:
        begin = "".join(line.split())
        if begin == "[" or begin.startswith("[{"):  # a list over several lines, or of objects, is all of it
            text = "\n".join([line, *(more for _, more in lines)])
            yield from enumerate(_parsed(file, number, text), 1)
        elif begin:
            yield number, _parsed(file, number, line)


def _parsed(file: Path, number: int, text: str) -> Any:
    """What a text that begins in this line says."""
    try:
        row = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(row, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        number, said = number + error.lineno - 1, f"not JSON ({error.msg}, character {error.colno})"
    except UnicodeEncodeError:
        said = "half a character, a lone surrogate, stands in it"
    except (RecursionError, ValueError):
        said = "not JSON (nested too deep, or a number of too many digits)"
    else:
        return row
    raise ValueError(f"{file}:{number}: {said}")


def read_objects(file: Path) -> Iterator[tuple[int, Row]]:
    """The same of rows that are objects.

    Raises:
        ValueError: as `read_rows`, or a row is no object.
    """
    for number, row in read_rows(file):
        if not isinstance(row, Mapping):
            raise ValueError(f"{file}:{number}: no object with named fields")
        yield number, placed(row, file, number)


def is_token_ids(value: object) -> bool:
    """Whether it is a list of token ids."""
    return isinstance(value, list) and all(type(token) is int and 0 <= token < 2**31 for token in value)


def placed(row: Mapping[str, Any] | Iterable[tuple[str, Any]], file: Path, number: int) -> Row:
    """The row with where it stands."""
    found = Row(row)
    found.place = file, number
    return found


def read_table(file: Path, fields: Sequence[str]) -> Iterator[tuple[int, Row]]:
    """Of a TSV, whose first line has the names, these fields of each row with its line, all of them texts. A row is a
    line: a cell in quotes may hold tabs, and quotes twice, but no end of a line.

    Raises:
        ValueError: as `read_lines`; a field is missing, a row has more cells or fewer, or a quote does not end.
    """
    columns: list[str] = []
    for number, line in read_lines(file):
        if not line:
            continue
        try:
            cells = next(csv.reader([line], delimiter="\t", strict=True)) if '"' in line else line.split("\t")
        except csv.Error as error:
            raise ValueError(
                f"{file}:{number}: {error}: write a cell that begins with a quote, or holds a tab, as "
                '"a ""quoted"" cell"; or give a .jsonl'
            ) from None
        if not columns:
            columns = cells
            if missing := [field for field in fields if columns.count(field) != 1]:
                raise ValueError(f"{file}:{number}: no field {missing[0]!r}, or several; it has {', '.join(columns)}")
            places = [columns.index(field) for field in fields]
        elif len(cells) != len(columns):
            raise ValueError(f"{file}:{number}: {len(cells)} cells, and {len(columns)} names in the first line")
        else:
            yield number, placed(zip(fields, (cells[place] for place in places), strict=True), file, number)
