"""Which target verifies the drafts: what `engine` and `model` in a configuration come to."""

from __future__ import annotations

from omegaconf import DictConfig
from transformers import PreTrainedModel

from ngram_trie.drafter import Verify
from ngram_trie.files import fingerprint
from ngram_trie.targets.check import check
from ngram_trie.targets.compact import refusal
from ngram_trie.targets.gguf import gguf_file
from ngram_trie.targets.load import load_config, longest_text
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.rows import RowsTarget
from ngram_trie.targets.static import StaticTarget


def source(model: DictConfig) -> tuple[str, str | None]:
    """Folder or hub id, and revision, that say what the network is."""
    return (model.architecture, None) if model.weights == "random" else (model.path, model.revision)


def name(model: DictConfig) -> str:
    """The model's name in records and titles; says what is not real about it."""
    return f"{model.name} (random weights)" if model.weights == "random" else str(model.name)


def identity(model: DictConfig) -> str:
    """What its weights add to a run's identity; of a GGUF file the file itself, wherever it and its conversion lie."""
    path, revision = source(model)
    own = fingerprint(str(gguf_file(path) or path), revision)
    return f"random weights, {own}" if model.weights == "random" else own


def settled(config: DictConfig) -> str:
    """`engine.backend`, with "auto" decided: static on a GPU where it computes what this model does, else stock."""
    engine, model = config.engine, config.model
    if engine.backend != "auto":
        return str(engine.backend)
    if engine.verify == "rows" or not model.device.startswith("cuda"):
        return "stock"
    own = load_config(*source(model))
    return "stock" if refusal(own, longest_text(own, model.context_limit)) else "static"


def make_target(
    model: PreTrainedModel, engine: DictConfig, limit: int | None = None, verify: Verify | None = None
) -> TargetModel:
    """The target that a settled `engine` describes, ready to run; on a GPU all its graphs are captured here. With
    `verify` one that verifies drafts so, whatever `engine` says; rows are the stock backend's in any case.

    Raises:
        ValueError: the static backend does not know the model.
    """
    if (verify or engine.verify) == "rows":
        return RowsTarget(model, engine.max_draft, limit)
    if engine.backend != "static":
        return TargetModel(model, engine.max_draft, limit)
    target = StaticTarget(model, engine.max_draft, limit)
    target.capture()
    check(target)
    return target
