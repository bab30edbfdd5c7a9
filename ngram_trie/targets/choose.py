"""Which target verifies the drafts: what `engine` and `model` in a configuration come to."""

from __future__ import annotations

import torch
from omegaconf import DictConfig
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from ngram_trie.drafter import Verify
from ngram_trie.files import fingerprint
from ngram_trie.targets import compact, packed
from ngram_trie.targets.check import check
from ngram_trie.targets.gguf import gguf_file
from ngram_trie.targets.load import load_config, longest_text
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.packed import PackedTarget
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
    """`engine.backend`, with "auto" decided: static on a GPU and packed on a CPU where they compute what this model
    does, and where a CPU's memory holds the weights twice; else stock.
    """
    engine, model = config.engine, config.model
    if engine.backend != "auto":
        return str(engine.backend)
    device = torch.device(model.device)
    if engine.verify == "rows" or device.type not in ("cpu", "cuda"):
        return "stock"
    network = load_config(*source(model))
    limit = longest_text(network, model.context_limit)
    if device.type == "cuda":
        return "stock" if compact.refusal(network, limit) else "static"
    refused = packed.refusal(network, getattr(torch, model.dtype), device, limit)
    return "stock" if refused or not packed.fits(2 * weight_bytes(network)) else "packed"


def weight_bytes(network: PreTrainedConfig) -> int:
    """Bytes of the weights of such a model in single precision; none is made."""
    with torch.device("meta"):
        return 4 * AutoModelForCausalLM.from_config(network).num_parameters()


def make_target(
    model: PreTrainedModel, engine: DictConfig, limit: int | None = None, verify: Verify | None = None
) -> TargetModel:
    """The target that a settled `engine` describes, ready to run; on a GPU all its graphs are captured here. With
    `verify` one that verifies drafts so, whatever `engine` says; rows are the stock backend's in any case.

    Raises:
        ValueError: the static or packed backend does not know the model.
    """
    if (verify or engine.verify) == "rows":
        return RowsTarget(model, engine.max_draft, limit)
    if engine.backend == "stock":
        return TargetModel(model, engine.max_draft, limit)
    if engine.backend == "packed":
        target: TargetModel = PackedTarget(model, engine.max_draft, limit)
    else:
        target = StaticTarget(model, engine.max_draft, limit)
        target.capture()
    check(target, engine.backend)
    return target


def target_for(model: PreTrainedModel, limit: int) -> TargetModel:
    """The fastest target for the library: packed where the model and the machine allow it, else stock."""
    limit = longest_text(model.config, limit)
    is_packed = packed.refusal(model.config, model.dtype, model.device, limit) is None
    if is_packed and packed.fits(model.num_parameters() * model.dtype.itemsize):
        return PackedTarget(model, context_limit=limit)
    return TargetModel(model, context_limit=limit)
