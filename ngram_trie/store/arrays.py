"""Folders that were built before and are read back (datastores, tables): header.json and files of numbers.

The header says what the files hold and has a digest of each. It is written last: without it nothing is complete.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The type and the shape of each file, NAME.bin, by a header.
Layout = Callable[[dict[str, Any]], Mapping[str, tuple[str, tuple[int, ...]]]]


def digest(path: Path) -> str:
    """SHA-256 of a file, 16 digits of it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


@functools.lru_cache(maxsize=256)
def _known(path: Path, _size: int, _mtime_ns: int, _inode: int) -> str:
    """`digest`, taken once in a process while the file stays as it is."""
    return digest(path)


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


def read(
    folder: Path, field: str, words: str, layout: Layout, format: str, build: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header of a folder, and its arrays, mapped; each file is read once, to check its digest.

    Args:
        field, words: what gives the folder in a configuration, and what it holds.
        layout: what it must hold.
        format: what its header must say.
        build: the command that builds one.

    Raises:
        FileNotFoundError: there is none; the message says what builds it.
        ValueError: damaged, or of another format.
    """
    path = folder / "header.json"
    if not path.is_file():
        raise FileNotFoundError(f"{field}={folder}: no {words} there; build one: {build}")
    try:
        header: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if header["format"] != format:
            raise ValueError
        arrays = {}
        for name, (dtype, shape) in layout(header).items():
            file = folder / f"{name}.bin"
            about = file.stat()
            whole = np.dtype(dtype).itemsize * np.prod(shape, dtype=np.int64) == about.st_size
            if not whole or _known(file, about.st_size, about.st_mtime_ns, about.st_ino) != header["digests"][name]:
                raise ValueError
            # so that compiled code takes it as it takes other arrays: copied where written, which it never is
            mapped = np.memmap(file, dtype, "c", shape=shape) if about.st_size else np.empty(shape, dtype)
            arrays[name] = np.asarray(mapped)
        return header, arrays
    except (ValueError, KeyError, TypeError, OSError):
        raise ValueError(f"{field}={folder}: damaged or of another format; build anew: {build}") from None
