"""Encode a corpus and build its IVF-PQ index on disk; the same command resumes an interrupted build.

  python -m scripts.build_index                                                     Wikipedia with BGE-M3
  python -m scripts.build_index corpus=file corpus.path=FILE encoder=minilm index.nlist=256

First prints the time, memory and disk that it needs. Writes vectors/ (float16 shards) and ivfpq/ (the index and its
lists) to the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from tqdm import tqdm

from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.data.retrieval import index, vectors
from ngram_trie.data.retrieval.estimate import Estimate, check_disk, duration, probe, size
from ngram_trie.data.retrieval.settings import folder_of, parts_of


def build(config: DictConfig) -> Path:
    """Everything one config asks for; returns the folder."""
    settings, corpus, encoder = parts_of(config)
    folder = folder_of(config)
    rate, dim = probe(corpus, encoder, config.chunk)
    settings.check(len(corpus), dim)
    header: dict[str, Any] = {
        "corpus": corpus.fingerprint(),
        "encoder": encoder.identity,
        "passages": len(corpus),
        "dim": dim,
        "shard_size": config.shard_size,
        "chunk": config.chunk,
    }
    vectors.claim(folder / "vectors", header, "give another folder=FOLDER, or delete this one")
    store = vectors.VectorStore(folder / "vectors", len(corpus), dim, config.shard_size)
    expected = Estimate(len(corpus), dim, config.shard_size, settings)
    left = sum(len(store.rows(shard)) for shard in store.missing())
    present = sum(file.stat().st_size for file in folder.rglob("*") if file.suffix != ".tmp" and file.is_file())
    print(
        f"{len(corpus):,} passages, {left:,} left to encode: {duration(left / rate)} at {rate:,.0f}/s; then the index\n"
        f"disk {size(expected.disk)} at most ({size(expected.vectors)} of vectors, {size(expected.index)} of index), "
        f"{size(present)} there; memory {size(expected.memory)} beside the encoder",
        flush=True,
    )
    check_disk(folder, max(expected.disk - present, 0))
    with tqdm(total=len(corpus), initial=len(corpus) - left, unit="passage", desc="encode", smoothing=0.05) as bar:
        vectors.encode(corpus, encoder, store, config.chunk, bar.update)
    steps = store.num_shards + 2
    with tqdm(total=steps, unit="step", desc="index") as bar:

        def tell(step: str) -> None:
            bar.set_description(step)
            bar.update()

        index.build(store, settings, folder / "ivfpq", tell)
        bar.update(steps - bar.n)
    print(f"index in {folder}")
    return folder


if __name__ == "__main__":
    hydra_app(build, __doc__, "retrieval")
