"""What an index will cost before it is built: bytes on disk and in memory by arithmetic, seconds from a probe."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from ngram_trie.data.retrieval.index import IndexSettings
from ngram_trie.data.retrieval.vectors import BLOCK, PassageEncoder, Texts

#: PQ learns from at most this many residuals: FAISS's 256 points for each of its centroids.
PQ_POINTS = 256
#: What Python, numpy and FAISS take by themselves.
LIBRARIES = 60_000_000


@dataclass(frozen=True)
class Estimate:
    """Bytes that `num_rows` vectors of `dim` dimensions take as an index of `settings`, in shards of `shard_size`."""

    num_rows: int
    dim: int
    shard_size: int
    settings: IndexSettings

    @property
    def vectors(self) -> int:
        """The float16 shards on disk."""
        return self.num_rows * self.dim * 2

    @property
    def lists(self) -> int:
        """The inverted lists: a code and a row number of 8 bytes for every vector."""
        return self.num_rows * (-(-self.settings.m * self.settings.bits // 8) + 8)

    @property
    def trained(self) -> int:
        """An index without lists: the centroids of lists and codes in single precision."""
        return (self.settings.nlist + (1 << self.settings.bits)) * self.dim * 4

    @property
    def index(self) -> int:
        """What is searched."""
        return self.lists + self.trained

    @property
    def parts(self) -> int:
        """The shards' own files, deleted after the merge: the lists once more, and the centroids in every file."""
        return self.lists + -(-self.num_rows // self.shard_size) * self.trained

    @property
    def disk(self) -> int:
        """The most that lies on disk at a time: during the merge."""
        return self.vectors + self.parts + self.index + self.trained

    @property
    def table(self) -> int:
        """Distances between list and code centroids that FAISS keeps in memory, unless they take over 2 GiB."""
        size = self.settings.nlist * self.settings.m * (1 << self.settings.bits) * 4
        return size if size <= 2 << 30 else 0

    @property
    def training_memory(self) -> int:
        """The sample and the residuals of PQ's part of it, single precision."""
        sample = min(self.settings.train_size, self.num_rows)
        residuals = 2 * min(sample, PQ_POINTS << self.settings.bits)
        return LIBRARIES + (sample + residuals) * self.dim * 4 + self.table

    @property
    def adding_memory(self) -> int:
        """A block of vectors, their residuals and their distances to all codes; a shard and its entries, mapped."""
        block = BLOCK * 4 * (2 * self.dim + (self.settings.m << self.settings.bits))
        shard = min(self.shard_size, self.num_rows) * (self.dim * 2 + self.settings.m + 8)
        return LIBRARIES + self.trained + self.table + block + shard

    @property
    def merging_memory(self) -> int:
        """The lists twice, both mapped: pages that the system takes back when it needs them; and the centroids of every
        shard's file, which FAISS holds until the end.
        """
        shards = -(-self.num_rows // self.shard_size)
        return LIBRARIES + (1 + shards) * self.trained + 2 * self.table + 2 * self.lists

    @property
    def memory(self) -> int:
        """The most of the three; the encoder's weights come beside it."""
        return max(self.training_memory, self.adding_memory, self.merging_memory)


def probe(texts: Texts, encoder: PassageEncoder, chunk: int) -> tuple[float, int]:
    """Passages a second and dimensions, from one call with passages from all over the corpus. The first call warms up.

    Args:
        chunk: passages a call of the build; the probe takes an eighth, so that a slow machine is asked little.
    """
    rows = np.linspace(0, len(texts) - 1, min(len(texts), max(chunk // 8, 1))).astype(int)
    probed = [texts.contents(row, row + 1)[0] for row in rows.tolist()]
    encoder.encode_passages(probed[:8])
    started = perf_counter()
    vectors = encoder.encode_passages(probed)
    return len(probed) / (perf_counter() - started), vectors.shape[1]


def check_disk(folder: Path, needed: int) -> None:
    """Raises:
    OSError: the disk of `folder` has less than `needed` bytes left.
    """
    place = next(parent for parent in (folder, *folder.resolve().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    if free < needed:
        raise OSError(f"{folder}: {size(needed)} of disk needed, {size(free)} free; give another folder=FOLDER")


def size(num_bytes: float) -> str:
    """Bytes in words, powers of ten."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 999.5:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


def duration(seconds: float) -> str:
    """Seconds in words."""
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} seconds"
