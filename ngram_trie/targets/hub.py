"""The model hub: what is fetched of a repository, what is here already, and its errors as one line."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import httpx2
from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

from ngram_trie.store.files import first_line

_OWN = (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled)
#: Files of weights; a repository may hold the same ones in several formats, of which the first here is read.
SUFFIXES = (".safetensors", ".pt", ".bin")
#: What belongs to them: configurations, tokenizers, chat templates.
BESIDE = (".json", ".model", ".txt", ".jinja")
#: Seconds after which a download that nobody writes to is a leftover of a process that was killed.
STALE = 600


class Unreachable(FileNotFoundError):
    """A host does not answer, or not now: nobody knows whether it has what was asked for."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and so on."""
    known: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in known:
        known.append(cause)
        yield cause
        cause = cause.__cause__ or cause.__context__


def hub_said(error: BaseException) -> str:
    """What the hub says in one line, be it the error itself or what it was raised from; else what the error says."""
    found = next((cause for cause in causes(error) if isinstance(cause, _OWN)), error)
    return " ".join(str(found).split()) or type(found).__name__


def is_unreachable(error: BaseException) -> bool:
    """Whether an error says nothing about what was asked for: no connection, a connection that was cut, or a host that
    is overloaded or out of order. Without a network that was meant (HF_HUB_OFFLINE), nothing is unreachable.
    """
    if constants.HF_HUB_OFFLINE:
        return False
    statuses = [getattr(getattr(cause, "response", None), "status_code", 0) for cause in causes(error)]
    lost = any(isinstance(cause, httpx2.TransportError | ConnectionError | TimeoutError) for cause in causes(error))
    return lost or any(status in (408, 429) or status >= 500 for status in statuses)


@contextlib.contextmanager
def from_hub(what: str, otherwise: str) -> Iterator[None]:
    """Errors of the hub and of its libraries, which have no common ancestor, as FileNotFoundError or Unreachable.

    Args:
        what: is loaded, in words.
        otherwise: what helps whoever cannot fetch it.
    """
    try:
        yield
    except Exception as error:
        kind = Unreachable if is_unreachable(error) else FileNotFoundError
        raise kind(f"{what} cannot be loaded: {hub_said(error)}; {otherwise}") from error


def wanted(names: Iterable[str]) -> list[str]:
    """Of a repository's files those that are read: weights in one format, and what belongs to them."""
    names = [name for name in names if "/" not in name and name != "training_args.bin"]
    has_safetensors = any(name.endswith(SUFFIXES[0]) for name in names)
    return [name for name in names if name.endswith((SUFFIXES[0], *BESIDE) if has_safetensors else SUFFIXES + BESIDE)]


def weights_are_whole(folder: Path) -> bool:
    """Whether a folder holds weights, and every shard that its index names."""
    indices = [file for file in folder.glob("*.index.json") if file.name.startswith(("model.", "pytorch_model."))]
    for index in indices:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        if all((folder / shard).exists() for shard in shards):
            return True
    return not indices and any(file.suffix in SUFFIXES for file in folder.glob("*"))


def cached(repository: str, revision: str | None = None) -> Path | None:
    """The folder of a model's files in the hub's cache, where all that are read are there; asks no network."""
    here = functools.partial(snapshot_download, repository, revision=revision, local_files_only=True)
    try:
        folder = Path(here(allow_patterns=[]))  # whatever is there of it
        kinds = SUFFIXES[:1] if any(folder.glob(f"*{SUFFIXES[0]}")) else SUFFIXES[1:]
        patterns = [f"*{kind}" for kind in (*kinds, *BESIDE)]
        here(allow_patterns=patterns, ignore_patterns=["*/*", "training_args.bin"])  # refuses where one is missing
    except (OSError, ValueError):
        return None
    return folder if weights_are_whole(folder) else None


def fetch(repository: str, revision: str | None = None) -> Path:
    """The folder of a model's files. What is in the cache is taken from there, also where no revision is given: a run
    that goes on reads the weights that it began with.

    Raises:
        Unreachable: the hub does not answer.
        FileNotFoundError: it does not give them; the message says what to do.
    """
    if found := cached(repository, revision):
        return found
    with from_hub(f"weights {repository!r}", "or give a folder with them"):
        names = wanted(HfApi().list_repo_files(repository, revision=revision))
        drop_stale(Path(constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}" / "blobs", "*.incomplete")
        return Path(snapshot_download(repository, revision=revision, allow_patterns=names or ["*.json"]))


def cached_file(repository: str, name: str) -> Path | None:
    """One file of a model's repository in the hub's cache; asks no network."""
    try:
        return Path(hf_hub_download(repository, name, local_files_only=True))
    except (OSError, ValueError):
        return None


def fetch_file(repository: str, name: str) -> Path:
    """One file of a model's repository, from the cache where it is there; otherwise as `fetch`."""
    if found := cached_file(repository, name):
        return found
    with from_hub(f"{name} of {repository!r}", "there is no such file here either; or give one"):
        return Path(hf_hub_download(repository, name))


def reach(address: str) -> tuple[int, str]:
    """The status with which a host answers, and why it is no answer; 0 where there is none. No content is read."""
    try:
        status = httpx2.head(address, timeout=10, follow_redirects=True).status_code
        if status in (405, 501):  # a host that knows no HEAD
            with httpx2.stream("GET", address, timeout=10, follow_redirects=True) as response:
                status = response.status_code
    except Exception as error:  # of the network and of the address
        return 0, f"{address} cannot be reached: {first_line(error)}"
    return status, f"{address} answers {status}: try again later" if status >= 500 else ""


def drop_stale(folder: Path, pattern: str) -> None:
    """Delete the unfinished files that a process left which was killed while it downloaded or wrote them."""
    for file in folder.glob(pattern):
        with contextlib.suppress(OSError):  # another process was quicker
            if file.is_file() and time.time() - file.stat().st_mtime > STALE:
                file.unlink()
