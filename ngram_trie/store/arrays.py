"""Folders that were built before and are read back (datastores, tables): header.json and files of numbers.

The header says what the files hold and has a digest of each. It is written last: without it nothing is complete.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Files up to this size, in bytes, are read whole when they are opened, a third of a second; of larger ones `BLOCKS`.
WHOLE = 1 << 28
BLOCKS, BLOCK = 64, 1 << 16
#: An environment variable: 1 reads larger files whole, too.
VERIFY = "NGRAM_TRIE_VERIFY"


def digest(path: Path) -> str:
    """SHA-256 of a file, 16 digits of it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def sample_digest(path: Path) -> str:
    """As `digest`, of the size and of blocks that are spread evenly, the first and the last among them."""
    size, hashed = path.stat().st_size, hashlib.sha256()
    hashed.update(str(size).encode())
    with path.open("rb") as file:
        for place in np.linspace(0, max(size - BLOCK, 0), BLOCKS).astype(np.int64).tolist():
            file.seek(place)
            hashed.update(file.read(BLOCK))
    return hashed.hexdigest()[:16]


@functools.lru_cache(maxsize=256)
def _known(path: Path, size: int, mtime_ns: int, inode: int, whole: bool) -> str:
    return digest(path) if whole else sample_digest(path)


def verify(folder: Path, digests: Mapping[str, str], samples: Mapping[str, str]) -> None:
    """Check that files, NAME.bin, hold what the header says: once in a process, while they stay as they are.

    Args:
        digests, samples: `digest` and, of files that may be large, `sample_digest` by name.

    Raises:
        ValueError: one holds something else.
    """
    for name, known in digests.items():
        if not is_whole(folder / f"{name}.bin", known, samples.get(name)):
            raise ValueError(f"{name}.bin holds something else than header.json says")


def is_whole(path: Path, known: str, sample: str | None = None) -> bool:
    """Whether a file holds what it did when its `digest` and, of one that may be large, its `sample_digest` were taken.
    It is read once in a process, while it stays as it is.
    """
    stat = path.stat()
    whole = stat.st_size <= WHOLE or sample is None or os.environ.get(VERIFY) == "1"
    return _known(path, stat.st_size, stat.st_mtime_ns, stat.st_ino, whole) == (known if whole else sample)


def write(folder: Path, arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any]) -> int:
    """Write arrays to NAME.bin and the header, with their digests, last; returns the bytes written. What was there is
    replaced, and readable where it is mapped.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "header.json").unlink(missing_ok=True)
    digests, size = {}, 0
    for name, array in arrays.items():
        path, content = folder / f"{name}.bin", array.tobytes()
        digests[name] = hashlib.sha256(content).hexdigest()[:16]
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        size += len(content)
    text = json.dumps({**header, "digests": digests}, indent=1) + "\n"
    (folder / "header.json").write_text(text, encoding="utf-8")
    return size + len(text.encode())


def mapped(path: Path, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """A file, mapped so that compiled code takes it as it takes other arrays: copied where written, which it never is.

    Raises:
        ValueError: it is of another size.
    """
    if path.stat().st_size != np.dtype(dtype).itemsize * np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path.name} is of another size than header.json says")
    # nothing can be mapped of an empty file
    return np.asarray(np.memmap(path, dtype, "c", shape=shape)) if 0 not in shape else np.empty(shape, dtype)


def check_probs(name: str, probs: NDArray[np.floating[Any]], axis: int | None = None) -> None:
    """Raises:
    ValueError: one is not in [0, 1], or the sum along an `axis` is above 1.
    """
    rounding = 1e-3  # single precision, summed over a row
    if probs.size and not (probs.min() >= 0 and probs.max() <= 1 + rounding):  # of NaN neither holds
        raise ValueError(f"{name}: a probability that is not in [0, 1]")
    if axis is not None and probs.size and probs.sum(axis).max() > 1 + rounding:
        raise ValueError(f"{name}: probabilities that are more than 1 in all")
