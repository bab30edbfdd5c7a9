"""Encode a corpus and index it: vectors in shards, then a FAISS index. An interrupted build is resumed (docs/data.md).

  python -m scripts.build_index                          Wikipedia's passages with BGE-M3 (a GPU, 80 GB of disk)
  python -m scripts.build_index corpus=file corpus.path=FILE encoder=minilm "index='IVF256,PQ48'"

Writes vectors/ (shards of float16) to the folder, and an index for each of its settings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.data.retrieval import index
from ngram_trie.data.retrieval.corpus import Corpus
from ngram_trie.data.retrieval.encoders import Encoder


def vectors_of(config: DictConfig, corpus: Corpus, encoder: Encoder) -> tuple[Path, Any]:
    """The folder of a configuration's vectors and index, and the vectors, encoded where they are not there."""
    folder = index.folder_of(config)
    about = {"corpus": corpus.fingerprint(), "encoder": encoder.identity, "passages": len(corpus)}
    index.claim(folder, about | {"shard_size": config.shard_size})
    (folder / "vectors").mkdir(exist_ok=True)
    return folder, index.encoded(corpus, encoder, folder / "vectors", config.shard_size, config.chunk)


def build(config: DictConfig) -> Path:
    """Everything one config asks for; returns the folder."""
    folder, vectors = vectors_of(config, *index.parts_of(config))
    print(f"index: {config.index} over {len(vectors):,} vectors", flush=True)
    index.build(vectors, config.index, config.train_size, config.seed, index.file_of(folder, config))
    print(f"index in {folder}")
    return folder


if __name__ == "__main__":
    hydra_app(build, __doc__, "retrieval")
