"""Where the rows of a data set come from: the hub, files of a hub repository, a plain download, a local file.

All give rows (mappings from field to value), keep what they fetched in a cache that serves without a network, and fail
with one line that says what is wrong and what to do. HF_HUB_OFFLINE=1 forbids every one of them to fetch.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pooch
from filelock import FileLock
from huggingface_hub import constants, hf_hub_download, snapshot_download
from huggingface_hub.file_download import http_get
from pydantic import TypeAdapter, ValidationError

from ngram_trie.data.bundled import check_choice, select_questions
from ngram_trie.data.prompts import Question
from ngram_trie.drafter import check_int
from ngram_trie.store.files import first_line
from ngram_trie.store.lines import placed, read_objects
from ngram_trie.targets.hub import from_hub

Row = Mapping[str, Any]
#: Of files that hold rows; those of JSON may be compressed, ".jsonl.gz".
KINDS = (".jsonl", ".json", ".parquet")
#: Of data sets on the hub.
PAGES = "https://huggingface.co/datasets"


def remedy(name: str, page: str = "") -> str:
    """What helps whoever cannot fetch a set: a copy of it, from `page`."""
    source = f" from {page}" if page else ""
    return f"or give a copy{source}: dataset.path=FILE, in an experiment datasets.{name}.path=FILE"


def read_hub(hub: str, subset: str | None, split: str, revision: str | None, otherwise: str) -> Iterable[Row]:
    """The rows of a set on the hub, through the `datasets` library.

    The repository is fetched whole first. `datasets` would fetch the split alone, but without a network it then takes
    whatever revision it loaded last, and says nothing.

    Args:
        otherwise: what helps whoever cannot fetch it.

    Raises:
        FileNotFoundError: it cannot be had.
    """
    try:
        import datasets
    except ImportError:
        raise FileNotFoundError(f"`pip install datasets` reads {hub} from the hub; {otherwise}") from None
    with from_hub(hub, otherwise):
        folder = snapshot_download(hub, repo_type="dataset", revision=revision)
        rows: Iterable[Row] = datasets.load_dataset(folder, subset, split=split)
    return rows


def read_hub_files(hub: str, files: str, revision: str | None, otherwise: str) -> Iterable[Row]:
    """The rows of some files of a repository on the hub; nothing else of it is fetched.

    For what `datasets` does not read: a repository with a loading script, or a part of a repository (it looks for the
    files of the first configuration, whichever is asked for).

    Args:
        files: the path of one, or a pattern.
        otherwise: what helps whoever cannot fetch them.

    Raises:
        FileNotFoundError: they cannot be had.
        ValueError: they are no files of rows.
    """
    with from_hub(f"{files} of {hub}", otherwise):
        if "*" in files:
            folder = snapshot_download(hub, repo_type="dataset", revision=revision, allow_patterns=[files])
            found = sorted(Path(folder).glob(files))
        else:
            found = [Path(hf_hub_download(hub, files, repo_type="dataset", revision=revision))]
    if not found:
        page = hub_page(hub, revision)
        raise FileNotFoundError(f"{files} of {hub} cannot be loaded: it has no such file: see {page}; {otherwise}")
    return [row for file in found for row in read_file(file)]


def hub_page(hub: str, revision: str | None) -> str:
    """Where a repository's files are listed."""
    return f"{PAGES}/{hub}/tree/{revision or 'main'}"


def fetch_url(url: str, checksum: str, otherwise: str, folder: Path | None = None) -> Path:
    """A file that is downloaded once and kept. An interrupted download goes on where it stopped.

    Args:
        checksum: "sha256:..." or "md5:...", of the file.
        otherwise: what helps whoever cannot fetch it.
        folder: where it is kept; None for `cache_folder()`.

    Raises:
        Unreachable: the host does not answer.
        FileNotFoundError: it cannot be had, or it is another file than `checksum` says.
    """
    kept = kept_file(url, checksum, folder)
    part = kept.with_name(f"{kept.name}.part")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(kept.with_name(f".{kept.name}.lock")):
        if _is(kept, checksum):
            return kept
        if constants.HF_HUB_OFFLINE:
            state = "damaged in the cache" if kept.exists() else "not in the cache"
            raise FileNotFoundError(
                f"{url} is {state}, and HF_HUB_OFFLINE forbids to fetch it: unset that; {otherwise}"
            )
        if not _is(part, checksum):
            with from_hub(url, otherwise), part.open("ab") as file:  # what is there of it is not fetched again
                http_get(mirrored(url), file, resume_size=file.tell(), displayed_filename=kept.name)
        if not _is(part, checksum):
            part.unlink()
            raise FileNotFoundError(
                f"{url} cannot be loaded: what was fetched has not the checksum {checksum}: another version of it, or "
                f"damaged on the way; try again, {otherwise}"
            )
        return part.replace(kept)


def _is(file: Path, checksum: str) -> bool:
    """Whether a file is there, whole."""
    algorithm, _, digest = checksum.rpartition(":")
    return file.exists() and pooch.file_hash(str(file), alg=algorithm or "sha256") == digest


def mirrored(url: str) -> str:
    """The address that a plain download is taken from: below $NGRAM_TRIE_MIRROR, if that is set, HOST/PATH."""
    mirror = os.environ.get("NGRAM_TRIE_MIRROR")
    return f"{mirror.rstrip('/')}/{url.partition('://')[2]}" if mirror else url


def local_copy(path: str, url: str, checksum: str | None, name: str) -> Path:
    """A local copy of the file at `url`, in place of `fetch_url`.

    Args:
        checksum: as in `fetch_url`; None takes any file.
        name: the data set that it is for.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another file; the message says what takes it as it is.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"path={path}: no such file; a copy of {url}")
    if checksum:
        algorithm, _, digest = checksum.rpartition(":")
        if (found := pooch.file_hash(str(file), alg=algorithm or "sha256")) != digest:
            raise ValueError(
                f"path={path}: not the published file, damaged or changed: its checksum is {found}, not {checksum}: "
                f"copy {url}; or, to ask what it holds, dataset.checksum=null, in an experiment "
                f"datasets.{name}.checksum=null"
            )
    return file


def kept_file(url: str, checksum: str, folder: Path | None = None) -> Path:
    """Where `fetch_url` keeps a file: by its checksum, so that sets of one file share it, and another version of it is
    another file.
    """
    return (folder or cache_folder()) / f"{checksum.rpartition(':')[2][:8]}-{Path(url).name}"


def cache_folder() -> Path:
    """Where plain downloads are kept: $NGRAM_TRIE_DATA, else this user's folder for caches."""
    return Path(os.environ.get("NGRAM_TRIE_DATA") or pooch.os_cache("ngram-trie"))


def read_local(path: Path, split: str = "", subset: str | None = None) -> Iterable[Row]:
    """The rows of a file, or of a folder's files of a split and, where there are several, of a subset: those that have
    its name as a word of theirs, else of their folders'. One file alone is read whatever it is called.

    Raises:
        FileNotFoundError: no such file, or none of a known kind; or files of several sets.
        ValueError: a file of another kind, or without rows.
    """
    files = sorted(f for f in path.rglob("*") if kind(f) in KINDS) if path.is_dir() else [path]
    if len(files) > 1:
        files = _named(files, split, path)
        folders = {file.parent for file in files}
        if len(folders) > 1:
            files = _named(files, subset, path) if subset else []
            if len({file.parent for file in files}) != 1:
                listed = ", ".join(sorted(str(folder.relative_to(path)) for folder in folders))
                raise FileNotFoundError(f"path={path}: it holds several sets, give the folder of one: {listed}")
    if not files or not all(file.is_file() for file in files):
        raise FileNotFoundError(f"path={path}: no such file, or no {', '.join(KINDS)} file of split {split!r} in it")
    if len({*map(kind, files)}) > 1 or kind(files[0]) not in KINDS:
        raise FileNotFoundError(f"path={path}: give files of one kind of {', '.join(KINDS)}")
    if not (rows := [row for file in files for row in read_file(file)]):
        raise ValueError(f"path={path}: it holds no rows")
    return rows


def _named(files: Sequence[Path], word: str, folder: Path) -> list[Path]:
    """Those of the files that have a word in their names, else in those of the folders that they are in."""
    has = re.compile(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])")
    by_name = [file for file in files if has.search(file.name)]
    return by_name or [file for file in files if has.search(str(file.parent.relative_to(folder)))]


def kind(file: Path) -> str:
    """What a file holds, of KINDS or another ending: ".jsonl" of "a.jsonl" and of "a.jsonl.gz"."""
    return Path(file.name.removesuffix(".gz")).suffix


def read_file(file: Path) -> Iterator[Row]:
    """The rows of one file: JSON lines, one JSON list, or Parquet."""
    if kind(file) == ".parquet":
        from pyarrow import parquet

        try:
            rows = parquet.read_table(file).to_pylist()
        except Exception as error:  # many kinds
            raise ValueError(f"{file}: not readable as parquet ({first_line(error)})") from error
        yield from (placed(row, file, number) for number, row in enumerate(rows, 1))
    else:
        yield from (row for _, row in read_objects(file))


def where(number: int, row: Row) -> str:
    """Where a row stands: its file and line, or of a set of the hub its number."""
    return str(getattr(row, "where", f"question {number}"))


def check_fields(number: int, row: Row, fields: Iterable[str]) -> None:
    """Raises:
    ValueError: row `number` lacks a field; the message says which it has.
    """
    for field in fields:
        if field not in row:
            raise ValueError(f"{where(number, row)}: no field {field!r}; it has {', '.join(row)}: another file?")


def check_shape(number: int, row: Row, shape: TypeAdapter[Any]) -> None:
    """Raises:
    ValueError: row `number` lacks a field, or one within it, or it is of another kind; the message says which.
    """
    try:
        shape.validate_python(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"{where(number, row)}: {field}: {first['msg']}; it has {', '.join(row)}: another file?"
        ) from None


class Published:
    """What all published data sets have.

    Args:
        name: the dataset's name in records.
        warmup: this many questions are for warming up and never measured: the last ones, unless the set says otherwise.
        limit, parity: as in `data.bundled.BundledDataset`; parity goes by the last number in a question's id, as in
            recorded answers. A set without ids is numbered from 1.

    Raises:
        FileNotFoundError: by every set: neither the hub, a download nor a path gives it; the message says what to do.
        ValueError: a value that is not allowed, before anything is fetched; then by row and field what is not there.
    """

    def __init__(self, name: str, warmup: int = 2, limit: int | None = None, parity: str | None = None) -> None:
        check_choice(limit, parity)
        check_int("dataset.warmup", warmup, 0)
        self.name = name
        self.questions: list[Question] = []
        self.warmup: list[Question] = []
        self._num_warmup, self._limit, self._parity = warmup, limit, parity

    def divide(self, questions: Sequence[Question]) -> None:
        """Divide the set's questions into those to ask and those to warm up on.

        Raises:
            ValueError: no question to ask is left, two have one id, or a parity is asked for and an id has no number.
        """
        number = Counter(question.question_id for question in questions)
        if twice := [id for id, times in number.items() if times > 1]:
            raise ValueError(f"id {twice[0]!r} is that of {number[twice[0]]} questions: name another field")
        if len(questions) <= self._num_warmup:
            raise ValueError(f"{len(questions)} questions, of which {self._num_warmup} are for warming up")
        asked = questions[: len(questions) - self._num_warmup]
        self.questions = select_questions(asked, self._limit, self._parity)
        self.warmup = list(questions[len(asked) :])
