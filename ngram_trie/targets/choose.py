"""Which network answers for a model, on which device: the only place where that is decided, for runs and the library.

A network is kept with the model as long as the model is in the state in which it was made (`targets.state`), and is
compared with the model's own plain steps before it answers (`targets.check`).
"""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from ngram_trie.drafter import Verify
from ngram_trie.targets import cpu, small_gemm
from ngram_trie.targets.check import disagreement, plain_steps, probe
from ngram_trie.targets.cpu import PackedNetwork
from ngram_trie.targets.cuda_graph import GraphNetwork
from ngram_trie.targets.load import longest_text
from ngram_trie.targets.network import Network
from ngram_trie.targets.plan import plan_of
from ngram_trie.targets.rows import RowsNetwork
from ngram_trie.targets.state import ModelState, addresses_of, alteration, autocast_dtype, state_of
from ngram_trie.targets.stock import StockNetwork
from ngram_trie.tree import IntArray

#: The networks for speed, by `engine.backend`.
FAST = {"cpu": PackedNetwork, "cuda_graph": GraphNetwork}


def backend_refusal(backend: str, config: PreTrainedConfig, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why a network for speed does not run such a model here, in one line; None if it does."""
    what = plan_of(config)
    if backend == "cpu" and device.type != "cpu":
        what = f"a model on {device}"
    elif backend == "cpu" and dtype != torch.float32:
        what = f"a model in {str(dtype).removeprefix('torch.')}: model.dtype=float32"
    elif not isinstance(what, str):
        return None
    return f"engine.backend={backend} does not run {what}; use engine.backend=stock"


def fastest(config: PreTrainedConfig, device: torch.device, dtype: torch.dtype, num_bytes: int | None = None) -> str:
    """The `engine.backend` that computes fastest what such a model does: "cuda_graph" on a GPU, "cpu" on a CPU with
    room for a copy of the weights; else "stock".

    Args:
        num_bytes: of the weights in single precision; None for those of a model that is not in memory yet.
    """
    backend = {"cuda": "cuda_graph", "cpu": "cpu"}.get(device.type, "stock")
    if backend == "stock" or backend_refusal(backend, config, device, dtype):
        return "stock"
    if backend == "cpu" and not cpu.fits(2 * weight_bytes(config) if num_bytes is None else num_bytes):
        return "stock"
    return backend


def weight_bytes(config: PreTrainedConfig) -> int:
    """Bytes of the weights of such a model in single precision; none is made."""
    with torch.device("meta"):
        return 4 * int(AutoModelForCausalLM.from_config(config.get_text_config()).num_parameters())


@dataclass
class _Kept:
    """What is known of a model in a state.

    Attributes:
        networks: by backend, a network, or why it does not answer.
        checked: by backend, tokens of the prompt with which its answers were compared.
    """

    state: ModelState
    networks: dict[str, Network | str] = field(default_factory=dict)
    checked: dict[str, int] = field(default_factory=dict)


_KEPT: WeakKeyDictionary[PreTrainedModel, _Kept] = WeakKeyDictionary()
_MAKING = threading.RLock()


def network_for(model: PreTrainedModel, limit: int, backend: str = "auto", verify: Verify = "tree") -> Network:
    """What answers for the model, in the state that it is in, in texts of up to `limit` tokens; the same object as long
    as that state lasts.

    Args:
        backend: "stock", "cpu", "cuda_graph", or "auto" for the fastest that answers as the model does; says so where
            something that hangs on the model is why it is a slower one.
        verify: rows are verified by the model's own modules in any case.

    Raises:
        ValueError: the backend does not know the model, or drafts would change its answers.
    """
    with _MAKING:
        state = state_of(model)
        if model not in _KEPT or _KEPT[model].state != state:
            _KEPT.pop(model, None)  # its memory is free before more is taken
            _KEPT[model] = _Kept(state)
        limit = longest_text(model.config, limit)
        kept, prompt = _KEPT[model], probe(model, limit)
        is_auto = backend == "auto"
        if verify == "rows":
            backend = "rows"
        elif is_auto:  # one that was made has its memory
            backend = next((name for name in FAST if name in kept.networks), None) or _fastest_now(model)
        elif backend in FAST and (reason := backend_refusal(backend, model.config, model.device, model.dtype)):
            raise ValueError(reason)
        found = _checked(model, kept, backend, prompt, limit)
        if isinstance(found, str) and backend in FAST:
            if not is_auto:
                raise ValueError(f"engine.backend={backend}: {found}; use engine.backend=stock")
            warnings.warn(f"{found}: the model's own modules verify drafts, which takes longer", stacklevel=2)
            found = _checked(model, kept, "stock", prompt, limit)
        if isinstance(found, str):
            raise ValueError(
                f"model type {model.config.model_type}: {found}: drafts would change its answers; use the model's own "
                "generate"
            )
        return found


def _fastest_now(model: PreTrainedModel) -> str:
    """`fastest` for a model in memory, in this process and this thread."""
    num_bytes = model.num_parameters() * model.dtype.itemsize
    backend = "stock" if autocast_dtype(model.device) else fastest(model.config, model.device, model.dtype, num_bytes)
    if backend == "cpu" and not small_gemm.is_usable():
        warnings.warn(
            "this process is a fork of one that has answered, and the loops for speed do not survive that: the model's "
            "own modules verify drafts, which takes longer; start processes by spawn",
            stacklevel=3,
        )
        return "stock"
    return backend


def _checked(model: PreTrainedModel, kept: _Kept, backend: str, prompt: IntArray, limit: int) -> Network | str:
    """The kept network of a backend, made and compared with the model's own steps where it was not yet, behind this
    prompt; or why it does not answer. The model takes its steps while the network is made.
    """
    is_due = len(prompt) > kept.checked.get(backend, 0) and not isinstance(kept.networks.get(backend), str)
    with ThreadPoolExecutor(1) as other:
        # what is entered around a call, such as autocast, is of its thread: no network for speed is made there
        # for graphs, weights are joined, which a step under way must not see
        beside = other.submit(plain_steps, model, prompt) if is_due and backend == "cpu" else None
        if backend not in kept.networks:
            kept.networks[backend] = _made(model, backend)
            if kept.state.addresses != addresses_of(model):  # weights were joined
                kept.state = state_of(model)
    network = kept.networks[backend]
    if is_due and not isinstance(network, str):
        steps = beside.result() if beside else plain_steps(model, prompt)
        if said := disagreement(network, model, prompt, steps, limit):
            network = kept.networks[backend] = said
        kept.checked[backend] = len(prompt)  # only now: an interrupted look has seen nothing
    return network


def _made(model: PreTrainedModel, backend: str) -> Network | str:
    if backend not in FAST:
        return RowsNetwork(model) if backend == "rows" else StockNetwork(model)
    plan = plan_of(model.config)
    if isinstance(plan, str):
        return plan
    if said := alteration(model):
        return said
    return FAST[backend](model, plan)
