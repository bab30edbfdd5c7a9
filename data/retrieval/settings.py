"""From configs/retrieval.yaml to the parts of retrieval: what scripts.build_index and scripts.retrieve share."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from ngram_trie import config as configuration
from ngram_trie.data.retrieval.corpus import Corpus
from ngram_trie.data.retrieval.encoders import Encoder
from ngram_trie.data.retrieval.index import IndexSettings


def folder_of(config: DictConfig) -> Path:
    """The folder of vectors and index."""
    corpus = Path(config.corpus.path).name.partition(".")[0] if config.corpus.path else config.corpus.name
    default = configuration.PROJECT / "results" / "local" / "retrieval" / f"{corpus}-{config.encoder.name}"
    return Path(config.folder or default)


def parts_of(config: DictConfig) -> tuple[IndexSettings, Corpus, Encoder]:
    """Index settings, corpus and encoder, the quickest to fail first.

    Raises:
        ConfigError: what is wrong, in one line.
    """
    for field in ("shard_size", "chunk", "nprobe", "top", "keep"):
        if not isinstance(value := config[field], int) or value < 1:
            raise configuration.ConfigError(f"{field}={value}: must be an integer of at least 1")
    settings = configuration.build(config.index, "index")
    return settings, configuration.build(config.corpus, "corpus"), configuration.build(config.encoder, "encoder")
