"""The model of a run's configuration: where it is, what it is called, and which backend runs it."""

from __future__ import annotations

import torch

from ngram_trie.bench.schemas import Live, Model
from ngram_trie.store.files import fingerprint
from ngram_trie.targets.choose import fastest
from ngram_trie.targets.gguf import gguf_file
from ngram_trie.targets.load import load_config


def source(model: Model) -> tuple[str, str | None]:
    """Folder or hub id, and revision, that say what the network is."""
    return (model.architecture, None) if model.weights == "random" else (model.path, model.revision)


def name(model: Model) -> str:
    """The model's name in records and titles; says what is not real about it."""
    return f"{model.name} (random weights)" if model.weights == "random" else model.name


def identity(model: Model) -> str:
    """What its weights add to a run's identity; of a GGUF file the file itself, wherever it and its conversion lie."""
    path, revision = source(model)
    own = fingerprint(str(gguf_file(path) or path), revision)
    return f"random weights, {own}" if model.weights == "random" else own


def resolve_backend(model: Model, engine: Live) -> str:
    """`engine.backend`, with "auto" decided."""
    if engine.backend != "auto":
        return engine.backend
    device = torch.device(model.device)
    if engine.verify == "rows" or device.type not in ("cpu", "cuda"):
        return "stock"
    return fastest(load_config(*source(model)), device, getattr(torch, model.dtype))
