"""Vectors on disk, in shards: each a float16 .npy of `shard_size` rows that is complete as soon as it has its name.

A shard is written under another name, flushed and renamed; what a kill leaves under the other name is written anew. So
memory holds one chunk of texts at a time, and a build goes on at the first shard that is not there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ngram_trie.files import replacing, write_atomically

#: Rows read at a time: 1,024 dimensions in single precision are 17 MB; FAISS's distances to 64 x 256 codes 268 MB.
BLOCK = 4_096


class Texts(Protocol):
    """What is encoded: `data.retrieval.corpus.Corpus`, or anything like it."""

    def __len__(self) -> int: ...
    def contents(self, start: int, stop: int) -> list[str]: ...


class PassageEncoder(Protocol):
    """What encodes: `data.retrieval.encoders.Encoder`, or anything like it."""

    def encode_passages(self, texts: list[str]) -> np.ndarray: ...


def claim(folder: Path, header: Mapping[str, Any], remedy: str) -> None:
    """Make `folder` the place of what `header` describes, or go on with it.

    Raises:
        FileExistsError: it was begun with another header; the message names what differs.
    """
    path = folder / "header.json"
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        if changed := [
            f"{name} {found.get(name)} there, {header.get(name)} here"
            for name in sorted(found.keys() | header.keys())
            if found.get(name) != header.get(name)
        ]:
            raise FileExistsError(f"{folder} was begun with other settings ({'; '.join(changed)}): {remedy}")
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(dict(header), indent=1) + "\n")


class VectorStore:
    """The vectors of all passages, (num_rows, dim), in shards of `shard_size` rows."""

    def __init__(self, folder: Path, num_rows: int, dim: int, shard_size: int) -> None:
        self.folder, self.num_rows, self.dim, self.shard_size = folder, num_rows, dim, shard_size
        self.num_shards = -(-num_rows // shard_size)

    @classmethod
    def open(cls, folder: Path) -> VectorStore:
        """The complete store that lies in `folder`.

        Raises:
            FileNotFoundError: there is none, or shards are missing.
        """
        path = folder / "header.json"
        if not path.exists():
            raise FileNotFoundError(f"{folder}: no vectors here")
        header = json.loads(path.read_text(encoding="utf-8"))
        store = cls(folder, header["passages"], header["dim"], header["shard_size"])
        if missing := store.missing():
            raise FileNotFoundError(f"{folder}: {len(missing)} of {store.num_shards} shards are missing")
        return store

    def identity(self) -> str:
        """Hash of what the vectors were made from: the header that the folder was claimed with."""
        return hashlib.sha256((self.folder / "header.json").read_bytes()).hexdigest()[:16]

    def rows(self, shard: int) -> range:
        """Row numbers of a shard."""
        return range(shard * self.shard_size, min((shard + 1) * self.shard_size, self.num_rows))

    def path(self, shard: int) -> Path:
        return self.folder / f"{shard:05d}.npy"

    def missing(self) -> list[int]:
        """Shards that are not there, or not whole."""
        return [shard for shard in range(self.num_shards) if not self._is_whole(shard)]

    def _is_whole(self, shard: int) -> bool:
        try:
            vectors = np.load(self.path(shard), mmap_mode="r")
        except (OSError, ValueError, EOFError):  # not there, or cut short
            return False
        return vectors.shape == (len(self.rows(shard)), self.dim) and vectors.dtype == np.float16

    def write(self, shard: int, chunks: Iterator[np.ndarray]) -> None:
        """Write one shard, a chunk of its rows at a time."""
        rows = self.rows(shard)
        with replacing(self.path(shard)) as unfinished:
            vectors = np.lib.format.open_memmap(unfinished, "w+", np.float16, (len(rows), self.dim))
            start = 0
            for chunk in chunks:
                vectors[start : start + len(chunk)] = chunk
                start += len(chunk)
            if start != len(rows):
                raise ValueError(f"shard {shard}: {start} vectors for {len(rows)} rows")
            vectors.flush()
            del vectors

    def blocks(self, shard: int) -> Iterator[np.ndarray]:
        """A shard's rows in single precision, (at most BLOCK, dim) at a time."""
        vectors = np.load(self.path(shard), mmap_mode="r")
        for start in range(0, len(vectors), BLOCK):
            yield vectors[start : start + BLOCK].astype(np.float32)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of sorted row numbers, (n, dim) float32."""
        taken = np.empty((len(rows), self.dim), np.float32)
        for shard in range(self.num_shards):
            here = slice(*np.searchsorted(rows, [self.rows(shard).start, self.rows(shard).stop]))
            if here.start < here.stop:
                vectors = np.load(self.path(shard), mmap_mode="r")
                taken[here] = vectors[rows[here] - self.rows(shard).start]
        return taken


def encode(
    texts: Texts, encoder: PassageEncoder, store: VectorStore, chunk: int, progress: Callable[[int], object]
) -> None:
    """Encode what is missing in `store`, `chunk` texts a call; `progress` is told the number of rows of each call."""

    def chunks(rows: range) -> Iterator[np.ndarray]:
        for start in range(rows.start, rows.stop, chunk):
            vectors = encoder.encode_passages(texts.contents(start, min(start + chunk, rows.stop)))
            yield vectors
            progress(len(vectors))

    for shard in store.missing():
        store.write(shard, chunks(store.rows(shard)))
