"""Vectors of a corpus' passages, kept by `datasets`, and a FAISS index over them (L2), with exact search beside it.

Vectors are encoded shard by shard, a file of `datasets` each, which is there whole or not at all: an interrupted build
goes on at the first that is missing. The index is trained on a random sample and filled block by block.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from omegaconf import DictConfig
from tqdm import tqdm

from ngram_trie import methods
from ngram_trie.data.retrieval.corpus import Corpus
from ngram_trie.data.retrieval.encoders import Encoder
from ngram_trie.store.files import PROJECT, content_hash, replacing, write_atomically
from ngram_trie.targets.hub import drop_stale

#: Vectors read at a time by exact search.
BLOCK = 4_096


def folder_of(config: DictConfig) -> Path:
    """The folder of vectors and index."""
    corpus = Path(config.corpus.path).name.partition(".")[0] if config.corpus.path else config.corpus.name
    default = PROJECT / "results" / "local" / "retrieval" / f"{corpus}-{config.encoder.name}"
    return Path(config.folder or default)


def file_of(folder: Path, config: DictConfig) -> Path:
    """The index over the vectors of a folder: one for each of the settings that decide it."""
    return folder / f"index-{content_hash([config.index, config.train_size, config.seed])[:8]}.faiss"


def parts_of(config: DictConfig) -> tuple[Corpus, Encoder]:
    """Corpus and encoder, the quickest to fail first.

    Raises:
        ConfigError: what is wrong, in one line.
    """
    for field in ("shard_size", "chunk", "nprobe", "top", "keep", "train_size"):
        if not isinstance(value := config[field], int) or value < 1:
            raise methods.ConfigError(f"{field}={value}: must be an integer of at least 1")
    if "IVF" not in config.index:
        raise methods.ConfigError(f"index={config.index}: it has no lists to search: give one of IVF, as IVF4096,PQ64")
    return methods.build(config.corpus, "corpus"), methods.build(config.encoder, "encoder")


def claim(folder: Path, header: Mapping[str, Any]) -> None:
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
            raise FileExistsError(f"{folder} is of other settings ({'; '.join(changed)}): give another folder=FOLDER")
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(dict(header), indent=1) + "\n")


def encoded(corpus: Corpus, encoder: Encoder, folder: Path, shard_size: int, chunk: int) -> Any:
    """The vectors of all passages as a `datasets.Dataset` of one column, "vector"; shards that are in `folder` are
    taken from there.
    """
    import datasets

    dim = encoder.encode_passages(corpus.contents(0, 1)).shape[1]
    features = datasets.Features({"vector": datasets.Sequence(datasets.Value("float16"), length=dim)})

    def encode(rows: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
        vectors = encoder.encode_passages(corpus.contents(rows["row"][0], rows["row"][-1] + 1))
        if len(vectors) != len(rows["row"]):
            raise ValueError(f"the encoder returned {len(vectors)} vectors for {len(rows['row'])} passages")
        return {"vector": vectors.astype(np.float16)}

    drop_stale(folder, "tmp*")
    shards, total, taken = [], -(-len(corpus) // shard_size), list[float]()
    for number, start in enumerate(range(0, len(corpus), shard_size)):
        file, begun = folder / f"{number:05d}.arrow", time.perf_counter()
        is_new = not file.exists()
        left = sum(taken) / len(taken) * (total - number) / 3600 if taken else 0.0
        rows = datasets.Dataset.from_dict({"row": range(start, min(start + shard_size, len(corpus)))})
        shard = rows.map(
            encode,
            batched=True,
            batch_size=chunk,
            remove_columns=["row"],
            features=features,
            cache_file_name=str(file),
            new_fingerprint=f"{folder.name}-{number}",
            desc=f"encode, shard {number + 1} of {total}" + (f", {left:.1f} h left" if left else ""),
        )
        shards.append(shard)
        if is_new:
            taken.append(time.perf_counter() - begun)
    return datasets.concatenate_datasets(shards)


def build(vectors: Any, factory: str, train_size: int, seed: int, path: Path) -> None:
    """Train an index, fill it and write it to `path`, unless it is there.

    Args:
        vectors: as `encoded` gives them.
        factory: what FAISS is to make, such as "IVF4096,PQ64".
        train_size: vectors that centroids and codes are learnt from, drawn at random with `seed`. FAISS asks for 39 to
            256 for each centroid; the released code takes the first 10,000, which are the first articles.

    Raises:
        ValueError: no such index over these vectors.
    """
    if path.exists():
        return
    with_numbers = vectors.with_format("numpy", dtype=np.float32)
    sample = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:train_size])
    try:
        made = faiss.index_factory(len(vectors[0]["vector"]), factory, faiss.METRIC_L2)
        index = on_gpu(made)
        index.train(np.ascontiguousarray(with_numbers[sample]["vector"]))
    except RuntimeError as error:
        said = " ".join(str(error).split())[-160:]
        raise ValueError(f"index={factory}: not over {len(sample)} vectors ({said})") from None
    for start in tqdm(range(0, len(vectors), BLOCK), desc="index", unit="block"):
        index.add(np.ascontiguousarray(with_numbers[start : start + BLOCK]["vector"]))
    with replacing(path) as unfinished:
        faiss.write_index(index if index is made else faiss.index_gpu_to_cpu(index), str(unfinished))


def on_gpu(index: Any) -> Any:
    """The index on a GPU, where FAISS sees one that takes its kind; else as it is."""
    if not faiss.get_num_gpus():
        return index
    options = faiss.GpuClonerOptions()
    options.useFloat16 = True  # of its look-up tables: those of 64 codes do not fit a block's memory otherwise
    try:
        return faiss.index_cpu_to_gpu(_gpu_resources(), 0, index, options)
    except RuntimeError as error:
        print(f"warning: FAISS stays on the CPU: {' '.join(str(error).split())[-120:]}", flush=True)
        return index


@functools.cache
def _gpu_resources() -> Any:
    """FAISS' memory on the GPU, which its indices use as long as they live."""
    return faiss.StandardGpuResources()


class Approximate:
    """Search in a built index.

    Args:
        nprobe: lists that are read for a question.

    Raises:
        FileNotFoundError: no such file.
        ValueError: nprobe is out of range.
    """

    def __init__(self, path: Path, nprobe: int) -> None:
        if not path.exists():
            raise FileNotFoundError(
                f"{path}: no such index here; `python -m scripts.build_index` builds it, one for each corpus, encoder, "
                "index, train_size and seed"
            )
        index = faiss.read_index(str(path))
        lists = faiss.extract_index_ivf(index)
        if not 1 <= nprobe <= lists.nlist:
            raise ValueError(f"nprobe={nprobe}: 1 to {lists.nlist}, the number of lists")
        lists.nprobe = nprobe
        self.index = on_gpu(index)

    def search(self, queries: np.ndarray, k: int) -> np.ndarray:
        """(q, k) row numbers of the nearest; -1 where the lists hold fewer."""
        return np.asarray(self.index.search(queries, k)[1])


class Exact:
    """Exact search: reads all vectors, block by block."""

    def __init__(self, vectors: Any) -> None:
        self.vectors = vectors.with_format("numpy", dtype=np.float32)

    def search(self, queries: np.ndarray, k: int) -> np.ndarray:
        """(q, k) row numbers of the nearest."""
        best, rows = np.full((len(queries), k), np.inf, np.float32), np.full((len(queries), k), -1)
        for start in tqdm(range(0, len(self.vectors), BLOCK), desc="exact search", unit="block"):
            block = np.ascontiguousarray(self.vectors[start : start + BLOCK]["vector"])
            near, found = faiss.knn(queries, block, min(k, len(block)))
            best, rows = np.hstack([best, near]), np.hstack([rows, found + start])
            order = np.argsort(best, axis=1, kind="stable")[:, :k]
            best, rows = np.take_along_axis(best, order, 1), np.take_along_axis(rows, order, 1)
        return rows
