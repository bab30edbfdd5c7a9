"""FAISS over a `VectorStore`: IVF-PQ on disk, and exact search to compare it with. L2 throughout.

An index is trained on a random sample, filled shard by shard into one small file each, and merged at the end into
`lists.ivfdata`, which is memory-mapped: memory holds the sample, then one block of vectors, then the centroids, however
many passages there are. Where FAISS sees GPUs, k-means, the assignment to lists and exact search run on all of them;
the code is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from faiss.contrib.exhaustive_search import knn_ground_truth
from faiss.contrib.ivf_tools import add_preassigned
from faiss.contrib.ondisk import merge_ondisk

from ngram_trie import built
from ngram_trie.data.retrieval.vectors import VectorStore, claim
from ngram_trie.files import replacing, write_atomically


@dataclass(frozen=True)
class IndexSettings:
    """What decides an IVF-PQ index beside the vectors. The defaults are the paper's, and its released code's, but for
    the sample.

    Attributes:
        nlist: inverted lists, i.e. centroids of the coarse quantizer.
        m: sub-vectors of a vector, each quantised by itself; must divide the dimensions.
        bits: of a sub-vector's code.
        train_size: passages that centroids and codes are learnt from, drawn at random: 64 for each of 4,096 lists;
            FAISS asks for 39 to 256. The released code takes the first 10,000, which are the first articles.
        seed: of the draw.

    Raises:
        ValueError: field, value and what is allowed.
    """

    nlist: int = 4096
    m: int = 64
    bits: int = 8
    train_size: int = 262_144
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("nlist", "m", "bits", "train_size"):
            if not isinstance(value := getattr(self, name), int) or value < 1:
                raise ValueError(f"index.{name}={value}: must be an integer of at least 1")
        if not 4 <= self.bits <= 12:
            raise ValueError(f"index.bits={self.bits}: 4 to 12")

    def check(self, num_rows: int, dim: int) -> None:
        """Raises:
        ValueError: no such index over this many vectors of this many dimensions.
        """
        sample = min(self.train_size, num_rows)
        if dim % self.m:
            raise ValueError(f"index.m={self.m}: must divide the {dim} dimensions of the encoder's vectors")
        for name, needed in (("nlist", self.nlist), ("bits", 1 << self.bits)):
            if needed > sample:
                raise ValueError(
                    f"index.{name}={getattr(self, name)}: needs at least {needed} passages to learn from; there are "
                    f"{sample} (index.train_size={self.train_size}, corpus of {num_rows})"
                )


def read(path: Path, flags: int = 0) -> Any:
    """The index of a file."""
    return faiss.read_index(str(path), flags)


def num_gpus() -> int:
    """GPUs that FAISS sees; none with faiss-cpu."""
    return int(getattr(faiss, "get_num_gpus", lambda: 0)())


def on_gpus(index: Any) -> Any:
    """The same index over all GPUs; itself where there are none."""
    return faiss.index_cpu_to_all_gpus(index) if num_gpus() else index


def sample_rows(num_rows: int, size: int, seed: int) -> np.ndarray:
    """Sorted row numbers drawn at random without replacement: all rows, if there are no more than `size`."""
    if size >= num_rows:
        return np.arange(num_rows)
    return np.sort(np.random.default_rng(seed).choice(num_rows, size, replace=False, shuffle=False))


def train(store: VectorStore, settings: IndexSettings) -> Any:
    """An empty index with centroids and codes learnt from the sample."""
    rows = sample_rows(store.num_rows, settings.train_size, settings.seed)
    index: Any = faiss.IndexIVFPQ(
        faiss.IndexFlatL2(store.dim), store.dim, settings.nlist, settings.m, settings.bits, faiss.METRIC_L2
    )
    assigner = on_gpus(faiss.IndexFlatL2(store.dim))
    index.clustering_index = assigner
    # The sample is what was asked for; FAISS is not to draw again from it, nor to warn that a corpus is small.
    index.cp.max_points_per_centroid = -(-len(rows) // settings.nlist)
    index.cp.min_points_per_centroid = index.pq.cp.min_points_per_centroid = 1
    index.train(store.take(rows))
    index.clustering_index = None
    return index


def add(index: Any, assigner: Any, store: VectorStore, shard: int, path: Path) -> None:
    """Write a shard's entries of the inverted lists, under their row numbers, to an index file of their own."""
    index.reset()
    start = store.rows(shard).start
    for block in store.blocks(shard):
        # FAISS sees plain pointers: both arrays must live until it returns.
        ids = np.arange(start, start + len(block), dtype=np.int64)
        lists = np.ascontiguousarray(assigner.search(block, 1)[1].ravel())
        add_preassigned(index, block, lists, ids)
        start += len(block)
    with replacing(path) as unfinished:
        faiss.write_index(index, str(unfinished))
    index.reset()


def merge(folder: Path, parts: list[Path], num_rows: int) -> None:
    """Merge the shards' files into lists.ivfdata and write index.faiss, whose presence says that all is done.

    Raises:
        ValueError: the lists do not hold as many vectors as there are.
    """
    index = read(folder / "trained.faiss")
    lists = folder / "lists.ivfdata"
    lists.unlink(missing_ok=True)
    merge_ondisk(index, [str(part) for part in parts], str(lists))
    if index.ntotal != num_rows:
        raise ValueError(f"{folder}: {index.ntotal} vectors in the lists, {num_rows} passages; delete it and go on")
    with replacing(folder / "index.faiss") as unfinished:
        faiss.write_index(index, str(unfinished))
        files = {"index.faiss": unfinished, "lists.ivfdata": lists}
        digests = {name: [built.digest(path), built.sample_digest(path)] for name, path in files.items()}
        write_atomically(folder / "digests.json", json.dumps(digests, indent=1) + "\n")


def build(store: VectorStore, settings: IndexSettings, folder: Path, progress: Callable[[str], object]) -> None:
    """Train, add and merge what is missing in `folder`; `progress` is told each thing before it is done.

    Raises:
        FileExistsError: the folder holds an index of other settings or vectors.
        ValueError: the settings do not fit the vectors.
    """
    settings.check(store.num_rows, store.dim)
    header = asdict(settings) | {"vectors": store.identity()}
    claim(folder, header, f"delete {folder} to index the vectors anew, or give another folder=FOLDER")
    if (folder / "index.faiss").exists():
        return
    trained = folder / "trained.faiss"
    if not trained.exists():
        progress("train")
        with replacing(trained) as unfinished:
            faiss.write_index(train(store, settings), str(unfinished))
    parts = [folder / f"part-{shard:05d}.faiss" for shard in range(store.num_shards)]
    if missing := [shard for shard, part in enumerate(parts) if not part.exists()]:
        index = read(trained)
        assigner = on_gpus(index.quantizer)
        for shard in missing:
            progress(f"add {shard + 1}/{store.num_shards}")
            add(index, assigner, store, shard, parts[shard])
    progress("merge")
    merge(folder, parts, store.num_rows)
    for part in parts:
        part.unlink()


class IvfPq:
    """Approximate search in a built index; its lists stay on disk, and the system caches what is read.

    Args:
        nprobe: lists that are read for a question.

    Raises:
        FileNotFoundError: the folder holds no complete index.
        ValueError: nprobe is out of range, or a file holds something else than it did when it was built.
    """

    def __init__(self, folder: Path, nprobe: int) -> None:
        path = folder / "index.faiss"
        if not path.exists():
            raise FileNotFoundError(f"{path}: no index here; `python -m scripts.build_index` builds it")
        known = folder / "digests.json"
        for name, (whole, sample) in json.loads(known.read_text(encoding="utf-8")).items() if known.exists() else ():
            if not built.is_whole(folder / name, whole, sample):
                raise ValueError(f"{folder / name}: was changed since it was built; delete {folder} and build it anew")
        self.index = read(path, faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_ONDISK_SAME_DIR)
        if not isinstance(nprobe, int) or not 1 <= nprobe <= self.index.nlist:
            raise ValueError(f"nprobe={nprobe}: 1 to {self.index.nlist}, the number of lists")
        self.index.nprobe = nprobe

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and row numbers of the k nearest, each (q, k); -1 where the lists hold fewer."""
        return self.index.search(queries, k)


class Flat:
    """Exact search: reads all vectors, block by block."""

    def __init__(self, store: VectorStore) -> None:
        self.store = store

    def _blocks(self) -> Iterator[np.ndarray]:
        for shard in range(self.store.num_shards):
            yield from self.store.blocks(shard)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and row numbers of the k nearest, each (q, k)."""
        return knn_ground_truth(queries, self._blocks(), k, ngpu=num_gpus())
