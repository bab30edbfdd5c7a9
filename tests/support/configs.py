"""Configurations as Hydra composes them, without the command line's checks."""

from __future__ import annotations

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from ngram_trie.store.files import CONFIGS


def composed(*overrides: str, name: str = "config") -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose(name, list(overrides))
