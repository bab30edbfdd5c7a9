"""The model hub's errors, and those of its libraries, as one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

_OWN = (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled)


def hub_said(error: BaseException) -> str:
    """What the hub says in one line, be it the error itself or what it was raised from; else what the error says."""
    causes, cause = [], error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
    found = next((cause for cause in causes if isinstance(cause, _OWN)), error)
    return " ".join(str(found).split()) or type(found).__name__


@contextlib.contextmanager
def from_hub(what: str, otherwise: str) -> Iterator[None]:
    """Errors of the hub and of its libraries, which have no common ancestor, as FileNotFoundError.

    Args:
        what: is loaded, in words.
        otherwise: what helps whoever cannot fetch it.
    """
    try:
        yield
    except Exception as error:
        raise FileNotFoundError(f"{what} cannot be loaded: {hub_said(error)}; {otherwise}") from error
