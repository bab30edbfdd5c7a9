"""The corpus: passages in an Arrow file, memory-mapped by the `datasets` library, so that 21 million need no RAM."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngram_trie.data.sources import fetch_url
from ngram_trie.store.files import content_hash, first_line
from ngram_trie.store.lines import opened
from ngram_trie.store.lines import read_rows as lines_of

FIELDS = ("id", "title", "text")
KINDS = (".jsonl", ".tsv")
#: Passages that stand for the whole corpus in its fingerprint, evenly spread.
FINGERPRINT_ROWS = 1_000


@dataclass(frozen=True)
class Passage:
    """One passage, as the corpus has it."""

    id: str
    title: str
    text: str

    @property
    def content(self) -> str:
        """What encoders and rerankers read."""
        return f"{self.title}\n{self.text}"


class Corpus:
    """Passages by row number.

    Args:
        path: a .jsonl or .tsv file (also .gz) with the fields id, title and text; a .tsv has them in its first line.
        url, md5: where the file is fetched from if no path is given; kept in `cache`, so the second time is offline.
        cache: folder for the fetched file; None for `data.sources.cache_folder()`. The Arrow file, as large as the
            text, goes to the cache of `datasets` (HF_DATASETS_CACHE).

    Raises:
        FileNotFoundError: no file, or the address does not give it; the message says what to do.
        ValueError: the file is not of this layout.
    """

    def __init__(
        self, path: str | None = None, url: str | None = None, md5: str | None = None, cache: str | None = None
    ) -> None:
        if not path and not url:
            raise FileNotFoundError("give corpus.path=FILE, a .jsonl or .tsv (also .gz) with id, title and text")
        otherwise, folder = "or give a copy: corpus=file corpus.path=FILE", Path(cache) if cache else None
        self.path = Path(path) if path else fetch_url(str(url), f"md5:{md5}", otherwise, folder)
        self._rows = read_rows(self.path)

    def __len__(self) -> int:
        return len(self._rows)

    def passages(self, rows: Sequence[int]) -> list[Passage]:
        """The passages of these rows, in this order.

        Raises:
            ValueError: one of them has no text.
        """
        found = self._rows[rows if isinstance(rows, range) else list(rows)]  # a range is read in one piece
        fields = zip(*(found[field] for field in FIELDS), strict=True)
        passages = [Passage(str(id), title or "", text) for id, title, text in fields]
        for row, passage in zip(rows, passages, strict=True):
            if not isinstance(passage.text, str) or not passage.text:
                raise ValueError(f"{self.path}: passage {row + 1} has no text")
        return passages

    def contents(self, start: int, stop: int) -> list[str]:
        """What an encoder reads of the rows [start, stop)."""
        return [passage.content for passage in self.passages(range(start, stop))]

    def fingerprint(self) -> str:
        """Identity of the content, wherever the file lies: the number of passages and 1,000 of them."""
        rows = np.linspace(0, len(self) - 1, min(len(self), FINGERPRINT_ROWS)).astype(int).tolist()
        return content_hash([len(self), [[p.id, p.title, p.text] for p in self.passages(rows)]])


def read_rows(path: Path) -> Any:
    """The file as a `datasets.Dataset` of the three fields, all of them texts: an id such as "2021-03-01" is no date.

    Raises:
        FileNotFoundError, ValueError: as for `Corpus`.
    """
    import datasets

    if not path.is_file():
        raise FileNotFoundError(f"corpus.path={path}: no such file")
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if kind not in KINDS:
        raise ValueError(f"corpus.path={path}: must end in .jsonl or .tsv, or one of these and .gz")
    text = datasets.Value("string")
    try:
        if kind == ".jsonl":
            about = {"path": path, "changed": path.stat().st_mtime_ns}  # by which the library knows what it has
            return datasets.Dataset.from_generator(
                _json_rows, features=datasets.Features(dict.fromkeys(FIELDS, text)), gen_kwargs=about
            )
        with opened(path) as lines:
            columns = next(csv.reader([lines.readline().decode("utf-8-sig")], delimiter="\t"), [])
        # A title such as "None" or "1984" is a text, and no passage is dropped for its quotes.
        features = datasets.Features(dict.fromkeys(columns, text))
        options: dict[str, Any] = {"sep": "\t", "keep_default_na": False, "na_filter": False, "encoding": "utf-8-sig"}
        rows = datasets.load_dataset("csv", data_files=str(path), split="train", features=features, **options)
    except Exception as error:  # whatever the codec, pandas, pyarrow and the builders raise
        raise ValueError(f"corpus.path={path}: not readable ({first_line(_cause(error))})") from None
    if missing := [field for field in FIELDS if field not in rows.column_names]:
        raise ValueError(f"corpus.path={path}: no field {missing[0]!r}; it has {', '.join(rows.column_names)}")
    with opened(path) as lines:
        found = sum(1 for line in lines if line.strip()) - 1
    if found != len(rows):
        raise ValueError(
            f"corpus.path={path}: {found:,} lines give {len(rows):,} passages: a quote at the beginning of a "
            'cell runs over lines; write a cell with quotes as "a ""quoted"" cell", or give a .jsonl'
        )
    return rows.select_columns(list(FIELDS))


def _cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _json_rows(path: Path, changed: int) -> Iterator[dict[str, str]]:
    """Raises:
    ValueError: a row lacks a field, or its text is none.
    """
    for number, row in lines_of(path):
        if not isinstance(row, Mapping):
            raise ValueError(f"line {number}: no object with named fields")
        if missing := [field for field in FIELDS if field not in row]:
            raise ValueError(f"line {number}: no field {missing[0]!r}; it has {', '.join(map(str, row))}")
        if not isinstance(row["text"], str) or not isinstance(row["title"], str | None):
            raise ValueError(f"line {number}: title and text must be texts")
        yield {"id": str(row["id"]), "title": row["title"] or "", "text": row["text"]}
