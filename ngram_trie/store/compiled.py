"""Functions that numba compiles. Where its release has the parts that `ngram_trie.store.inlining` is made of, they are
compiled in half the time and kept for all processes; where not, by `numba.njit(cache=True)`: slower to begin with.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from ngram_trie.store.files import cache_folder

try:
    from ngram_trie.store import inlining
except (ImportError, AttributeError):  # another release of numba
    inlining = None  # type: ignore[assignment]


def compiled(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function that is called from Python; see `numba.njit` for the `options`."""
    if function is None:
        return functools.partial(compiled, **options)
    if inlining is None:
        return _plain(function, options)
    dispatcher = numba.njit(**options)(function)
    inlining.keep(dispatcher)
    return dispatcher


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function that only compiled functions call, as a part of each of these: for itself it has neither
    machine code nor a way in from Python, which halves the time of compiling.

    Args:
        options: those of `numba.njit`. A function that allocates has _nrt=True: without numba's runtime, references to
            the arrays of named tuples are not counted, which would take three times as long as a step of a draft.
    """
    if function is None:
        return functools.partial(kernel, **options)
    if inlining is None:
        options.pop("_nrt", None)
        return _plain(function, options)
    return inlining.inner(function, options)


def address_of(dispatcher: Any, signature: Any) -> int:
    """Where the compiled function lies, which C can call."""
    if inlining is None:
        return int(_c_function(dispatcher.py_func, signature).address)
    return inlining.address_of(dispatcher, signature)


def is_kept(dispatcher: Any) -> bool:
    """Whether some code of a `compiled` function is in this process or in the user's folder; so it is said to be where
    nobody knows.
    """
    return inlining is None or bool(dispatcher.signatures) or inlining.is_kept(dispatcher)


_watching: list[Callable[[bool], None]] = []


def note_preparation() -> None:
    """Something else was made ready that a clock should not count: a graph was captured."""
    for seen in _watching:
        seen(False)


def watch(seen: Callable[[bool], None]) -> None:
    """Call seen(is_ours) whenever something is compiled, loaded or otherwise made ready, with whether a function of
    ours is compiled. Where numba does not tell, only of what `note_preparation` is called for.
    """
    _watching.append(seen)
    if inlining is not None:
        inlining.watch(seen)


def _plain(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(_plain_folder())  # type: ignore[attr-defined]
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # the folder cannot be written
        return numba.njit(**options)(function)
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]


@functools.cache
def _c_function(function: Callable[..., Any], signature: Any) -> Any:
    return numba.cfunc(signature)(function)  # kept, since its code lives as long as it does


@functools.cache
def _plain_folder() -> Path:
    """One for these sources: numba does not see that a function which another one calls was changed."""
    package = Path(__file__).parents[1]
    times = sorted((str(file), file.stat().st_mtime_ns) for file in package.rglob("*.py"))
    return cache_folder() / "compiled" / f"plain-{hashlib.sha256(repr(times).encode()).hexdigest()[:16]}"
