"""The corpus: passages in an Arrow file, memory-mapped by the `datasets` library, so that 21 million need no RAM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngram_trie.data.sources import fetch_url
from ngram_trie.store.arrays import digest
from ngram_trie.store.files import first_line
from ngram_trie.store.lines import read_objects, read_table

FIELDS = ("id", "title", "text")
KINDS = (".jsonl", ".tsv")


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
        """The passages of these rows, in this order."""
        found = self._rows[rows if isinstance(rows, range) else list(rows)]  # a range is read in one piece
        return [Passage(*fields) for fields in zip(*(found[field] for field in FIELDS), strict=True)]

    def contents(self, start: int, stop: int) -> list[str]:
        """What an encoder reads of the rows [start, stop)."""
        return [passage.content for passage in self.passages(range(start, stop))]

    def fingerprint(self) -> str:
        """Identity of the content, wherever the file lies: a hash of all of it (Wikipedia's takes a minute)."""
        return digest(self.path)


def read_rows(path: Path) -> Any:
    """The file as a `datasets.Dataset` of the three fields, all of them texts.

    Raises:
        FileNotFoundError, ValueError: as for `Corpus`.
    """
    import datasets

    if not path.is_file():
        raise FileNotFoundError(f"corpus.path={path}: no such file")
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if kind not in KINDS:
        raise ValueError(f"corpus.path={path}: must end in .jsonl or .tsv, or one of these and .gz")
    about = path.stat()  # by which the library knows what it has
    try:
        return datasets.Dataset.from_generator(
            _rows_of,
            features=datasets.Features(dict.fromkeys(FIELDS, datasets.Value("string"))),
            gen_kwargs={"path": path, "kind": kind, "about": (about.st_size, about.st_mtime_ns, about.st_ino)},
        )
    except Exception as error:  # the library's own around ours
        said = first_line(_cause(error))
        raise ValueError(f"corpus.path={'' if said.startswith(str(path)) else f'{path}: '}{said}") from None


def _cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _rows_of(path: Path, kind: str, about: object) -> Iterator[dict[str, str]]:
    """Raises:
    ValueError: a row lacks a field, or its text is no text.
    """
    for _, row in read_table(path, FIELDS) if kind == ".tsv" else read_objects(path):
        if missing := [field for field in FIELDS if field not in row]:
            raise ValueError(f"{row.where}: no field {missing[0]!r}; it has {', '.join(row)}")
        if not isinstance(row["text"], str) or not row["text"] or not isinstance(row["title"], str | None):
            raise ValueError(f"{row.where}: title and text must be texts, the second not empty")
        if not isinstance(row["id"], str | int):
            raise ValueError(f"{row.where}: id must be a text or an integer")
        yield {"id": str(row["id"]), "title": row["title"] or "", "text": row["text"]}
