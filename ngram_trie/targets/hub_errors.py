"""What the model hub's many errors mean: one line of cause and remedy, the same for models and for data sets."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from huggingface_hub import constants, get_token
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from ngram_trie.files import first_line

PAGES = {"model": "https://huggingface.co", "dataset": "https://huggingface.co/datasets"}


def explain(error: BaseException, hub_id: str, revision: str | None = None, kind: str = "model") -> str:
    """Why the hub does not give `hub_id`, and what helps.

    Args:
        error: whatever transformers, datasets or huggingface_hub raised; what it was raised from counts, too.
        kind: "model" or "dataset".
    """
    causes = list(chain(error))
    page = f"{PAGES[kind]}/{hub_id}"
    log_in = "`hf auth login` or set HF_TOKEN"

    def find(*kinds: type[BaseException]) -> BaseException | None:
        return next((cause for cause in causes if isinstance(cause, kinds)), None)

    if full := disk_full(error):
        return f"{full}, or set HF_HOME to a folder on another disk"
    if find(GatedRepoError):
        known = "the token in use has no access to it" if get_token() else "no token was given"
        return f"it is gated and {known}: accept the licence at {page}, then {log_in}"
    if find(RevisionNotFoundError):
        return f"it has no revision {revision!r}; there are those at {page}/commits/main, and null is its newest"
    if find(RepositoryNotFoundError):
        it = "it is no folder, and the hub" if kind == "model" else "the hub"
        return f"{it} has no such {kind} or it is private: check the id at {page}; if it is private, {log_in}"
    if find(HFValidationError):
        return "it is neither a folder nor a hub id (OWNER/NAME)"
    if constants.HF_HUB_OFFLINE and find(OfflineModeIsEnabled, LocalEntryNotFoundError, ConnectionError):
        return "it is not in the cache, and HF_HUB_OFFLINE forbids to fetch it: unset that"
    answered = find(HfHubHTTPError)
    if isinstance(answered, HfHubHTTPError) and not isinstance(answered, EntryNotFoundError):
        if answered.response.status_code in (401, 403):
            return f"the token in use is not valid or has no access: {log_in}"
        return f"{constants.ENDPOINT} answered {answered.response.status_code}: try again later"
    # the HTTP library under huggingface_hub changes with its version, the names of its errors do not
    if find(LocalEntryNotFoundError, ConnectionError) or any(type(cause).__name__ in NETWORK for cause in causes):
        return f"no network: {constants.ENDPOINT} cannot be reached, and it is not in the cache"
    if find(EntryNotFoundError):
        return f"it has no such file: see {page}/tree/{revision or 'main'}"
    if any("Consistency check failed" in str(cause) for cause in causes):
        return "the download was cut short: run the same command again"
    return first_line(error)


@contextlib.contextmanager
def from_hub(what: str, hub_id: str, revision: str | None, otherwise: str, kind: str = "model") -> Iterator[None]:
    """Errors of the hub and of its libraries, which have no common ancestor, as FileNotFoundError.

    Args:
        what: is loaded, in words.
        otherwise: what helps whoever cannot fetch it.
        kind: as in `explain`.
    """
    try:
        yield
    except Exception as error:
        reason = explain(error, hub_id, revision, kind)
        raise FileNotFoundError(f"{what} cannot be loaded: {reason}; {otherwise}") from error


NETWORK = {"ConnectError", "ConnectTimeout", "ReadError", "ReadTimeout", "ProxyError", "RemoteProtocolError"}


def disk_full(error: BaseException) -> str:
    """Words for a disk without space, or nothing where that is not the cause."""
    codes = (errno.ENOSPC, errno.EDQUOT)
    full = any(
        (isinstance(cause, OSError) and cause.errno in codes)
        # safetensors tells it in words of its own
        or any(f"os error {code})" in str(cause) for code in codes)
        for cause in chain(error)
    )
    return "the disk is full: make room" if full else ""


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that it was raised from."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__
