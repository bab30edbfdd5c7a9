"""Which target verifies the drafts."""

from __future__ import annotations

import warnings

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from ngram_trie.drafter import Verify
from ngram_trie.targets import cpu, fused_llama, small_gemm
from ngram_trie.targets.check import check, disagreement
from ngram_trie.targets.cpu import CpuTarget
from ngram_trie.targets.cuda_graph import CudaGraphTarget
from ngram_trie.targets.load import longest_text
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.rows import RowsTarget
from ngram_trie.targets.state import State, autocast_dtype


def backend_for(network: PreTrainedConfig, device: torch.device, dtype: torch.dtype, context_limit: int | None) -> str:
    """The fastest backend that computes what such a model does: "cuda_graph" on a GPU, "cpu" on a CPU whose memory
    holds the weights twice; else "stock".
    """
    limit = longest_text(network, context_limit)
    if device.type == "cuda":
        return "stock" if fused_llama.refusal(network, limit) else "cuda_graph"
    if device.type != "cpu" or cpu.refusal(network, dtype, device, limit):
        return "stock"
    return "cpu" if cpu.fits(2 * weight_bytes(network)) else "stock"


def weight_bytes(network: PreTrainedConfig) -> int:
    """Bytes of the weights of such a model in single precision; none is made."""
    with torch.device("meta"):
        return 4 * AutoModelForCausalLM.from_config(network).num_parameters()


def make_target(
    model: PreTrainedModel, backend: str, max_draft: int, limit: int | None = None, verify: Verify = "tree"
) -> TargetModel:
    """A target of this `backend` ("stock", "cpu" or "cuda_graph"), ready to run; on a GPU all its graphs are captured
    here. Rows are verified by the stock backend in any case.

    Raises:
        ValueError: the backend does not know the model, or answers otherwise than the model's own plain steps.
    """
    if verify == "rows":
        return _agreeing(RowsTarget(model, max_draft, limit))
    if backend == "stock":
        return _agreeing(TargetModel(model, max_draft, limit))
    if backend == "cpu":
        return _agreeing(CpuTarget(model, max_draft, limit))
    target = CudaGraphTarget(model, max_draft, limit)
    target.capture()
    check(target, backend)
    return _agreeing(target)


def _agreeing(target: TargetModel, state: State | None = None) -> TargetModel:
    """Raises:
    ValueError: the target answers otherwise than its model's own plain steps.
    """
    if said := disagreement(target, state):
        raise ValueError(
            f"model type {target.model.config.model_type}: {said}: drafts would change its answers; use the model's "
            "own generate"
        )
    return target


def target_for(model: PreTrainedModel, limit: int, state: State | None = None) -> TargetModel:
    """The fastest target for the library: packed where the model, in its `state`, and the machine allow it, else stock;
    says so where something that hangs on the model is why.

    Raises:
        ValueError: drafts would change the model's answers.
    """
    limit = longest_text(model.config, limit)
    is_packed = cpu.refusal(model.config, model.dtype, model.device, limit) is None and not autocast_dtype(model.device)
    if is_packed and not small_gemm.is_usable():
        warnings.warn(
            "this process is a fork of one that has answered, and the loops for speed do not survive that: the model's "
            "own modules verify drafts, which takes longer; start processes by spawn",
            stacklevel=2,
        )
    elif is_packed and cpu.fits(model.num_parameters() * model.dtype.itemsize):
        network: cpu.CpuModel | str | None = cpu.cpu_network(model, state)
        if not isinstance(network, str):
            target = CpuTarget(model, context_limit=limit, network=network)
            if (network := disagreement(target, state)) is None:
                return target
        warnings.warn(f"{network}: the model's own modules verify drafts, which takes longer", stacklevel=2)
    return _agreeing(TargetModel(model, context_limit=limit), state)
