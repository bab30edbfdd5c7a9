"""Which target verifies the drafts: what `engine` and `model` in a configuration come to."""

from __future__ import annotations

import numpy as np
import torch
from omegaconf import DictConfig
from transformers import AutoConfig, PreTrainedModel

from ngram_trie.bench import differences
from ngram_trie.compact import refusal
from ngram_trie.rows import RowsTarget
from ngram_trie.static import StaticTarget
from ngram_trie.target import TargetModel, context_limit, fingerprint, load_model, random_model

#: Largest relative error of logits that rounding explains, over the layers of a large model.
MOST_APART = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}


def source(model: DictConfig) -> tuple[str, str | None]:
    """Folder or hub id, and revision, that say what the network is."""
    return (model.architecture, None) if model.weights == "random" else (model.path, model.revision)


def name(model: DictConfig) -> str:
    """The model's name in records and titles; says what is not real about it."""
    return f"{model.name} (random weights)" if model.weights == "random" else str(model.name)


def identity(model: DictConfig) -> str:
    """What its weights add to a run's identity."""
    return ("random weights, " if model.weights == "random" else "") + fingerprint(*source(model))


def settled(config: DictConfig) -> str:
    """`engine.backend`, with "auto" decided: static on a GPU where it computes what this model does, else stock."""
    engine, model = config.engine, config.model
    if engine.backend != "auto":
        return str(engine.backend)
    if engine.verify == "rows" or not model.device.startswith("cuda"):
        return "stock"
    limit = context_limit(*source(model), model.context_limit)
    path, revision = source(model)
    return "stock" if refusal(AutoConfig.from_pretrained(path, revision=revision), limit) else "static"


def load(
    path: str, revision: str | None, *, dtype: str, device: str, attention: str, architecture: str | None = None
) -> PreTrainedModel:
    """The weights of `path`, or with an `architecture` that network with random ones."""
    if architecture:
        return random_model(architecture, dtype, device, attention)
    return load_model(path, dtype, device, revision, attention)


def make_target(model: PreTrainedModel, engine: DictConfig, limit: int | None = None) -> TargetModel:
    """The target that a settled `engine` describes, ready to run; on a GPU all its graphs are captured here.

    Raises:
        ValueError: the static backend does not know the model.
    """
    if engine.verify == "rows":
        return RowsTarget(model, engine.max_draft, limit)
    if engine.backend != "static":
        return TargetModel(model, engine.max_draft, limit)
    target = StaticTarget(model, engine.max_draft, limit)
    target.capture()
    check(target)
    return target


def check(target: StaticTarget) -> None:
    """Compare a prompt and a tree with the stock modules: a fast answer must not be a wrong one.

    Raises:
        ValueError: the logits are further apart than rounding takes them.
    """
    length, nodes = min(64, target.context_limit // 2), min(8, target.max_draft + 1)
    found = differences(target, TargetModel(target.model, nodes, 2 * length), length, nodes)
    apart = float(np.max([found["prefill_logits"], found["tree_logits"]]))
    if not apart <= MOST_APART[target.model.dtype]:  # neither is NaN
        raise ValueError(
            f"engine.backend=static: its logits are {apart:.2g} from the stock modules' on {target.device}, relative; "
            "use engine.backend=stock"
        )
