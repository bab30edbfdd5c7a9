"""What is used of transformers and torch that they may rename: all of it here, each part with a test that says what is
relied on (tests/targets/test_internals.py). A release that changes one is mended here and nowhere else.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer
from transformers.convert_slow_tokenizer import generate_merges
from transformers.generation import logits_process
from transformers.utils import cached_file

__all__ = ["Cache", "DynamicCache", "DynamicLayer", "generate_merges"]

#: What a forward calls the keys and values of the text before: up to transformers 5.23, and from 5.24 on.
CACHE_ARGUMENTS = ("cache", "past_key_values")
#: Where hooks come from that change nothing: they catch hidden states.
WATCHING = ("transformers.utils.output_capturing", "ngram_trie.targets")

#: Processors that look at each row of logits alone.
OF_LOGITS = (
    logits_process.TemperatureLogitsWarper,
    logits_process.TopKLogitsWarper,
    logits_process.TopPLogitsWarper,
    logits_process.TopHLogitsWarper,
    logits_process.MinPLogitsWarper,
    logits_process.TypicalLogitsWarper,
    logits_process.EpsilonLogitsWarper,
    logits_process.EtaLogitsWarper,
    logits_process.SuppressTokensLogitsProcessor,
    logits_process.InfNanRemoveLogitsProcessor,
    logits_process.LogitNormalization,
)
#: Those that also read the row's own text, and keep nothing from call to call.
OF_TEXT = (
    logits_process.RepetitionPenaltyLogitsProcessor,
    logits_process.NoRepeatNGramLogitsProcessor,
    logits_process.NoBadWordsLogitsProcessor,
    logits_process.SequenceBiasLogitsProcessor,
    logits_process.MinLengthLogitsProcessor,
    logits_process.MinNewTokensLengthLogitsProcessor,
    logits_process.ForcedBOSTokenLogitsProcessor,
    logits_process.ForcedEOSTokenLogitsProcessor,
    logits_process.ExponentialDecayLengthPenalty,
    logits_process.SuppressTokensAtBeginLogitsProcessor,
)


def with_cache(module: nn.Module, cache: Cache) -> dict[str, Any]:
    """The arguments of a forward of `module` that let it go on behind a cached text."""
    taken = _arguments(type(module).forward)
    return {next((name for name in CACHE_ARGUMENTS if name in taken), CACHE_ARGUMENTS[-1]): cache, "use_cache": True}


def last_logits_alone(module: nn.Module) -> dict[str, Any]:
    """The arguments of a forward that let it give the last token's logits alone, where it can."""
    return {"logits_to_keep": 1} if "logits_to_keep" in _arguments(type(module).forward) else {}


@functools.cache
def _arguments(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def cache_in(arguments: Mapping[str, Any]) -> Cache | None:
    """The cache among the arguments of a forward, or among what `generate` has settled."""
    there = set(arguments)  # an output warns of the older name, even where it is asked whether it is there
    found = (arguments[name] for name in CACHE_ARGUMENTS if name in there)
    return next((cache for cache in found if cache is not None), None)


def lengths_in(cache: Cache | None) -> set[int]:
    """How many tokens the layers of a cache hold, of those that have rows of their own: others are asked in vain."""
    found = set()
    for layer in cache.layers if cache else ():
        with contextlib.suppress(ValueError, AttributeError):
            found.add(int(layer.get_seq_length()))
    return found


def attention_of(config: PreTrainedConfig) -> str:
    """How attention is computed: "sdpa", "eager", "flash_attention_2", ..."""
    return str(config._attn_implementation)


def keeps_state(model: PreTrainedModel) -> bool:
    """Whether the model's class says that it may keep a state which no token can be taken out of."""
    return bool(model._is_stateful)


def new_model(kind: type[PreTrainedModel], config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """A model of this kind with new weights."""
    made: PreTrainedModel = kind._from_config(config, dtype=dtype)
    return made


def decoder_of(model: PreTrainedModel) -> PreTrainedModel:
    """What gives the head its input: `get_decoder`, where that is not the head (ModernBERT's)."""
    decoder = model.get_decoder()
    return decoder if isinstance(decoder, PreTrainedModel) else model.base_model


def hooks_of(module: nn.Module) -> list[Any]:
    """What is called before and after a module's forward, beside what only watches."""
    own = vars(module)
    hooks = [*own["_forward_pre_hooks"].values(), *own["_forward_hooks"].values()]
    return [hook for hook in hooks if not str(getattr(hook, "__module__", "")).startswith(WATCHING)]


def has_global_hook() -> bool:
    """Whether something is called around the forward of every module."""
    return bool(torch_module._has_any_global_hook())


def tensors_of(module: nn.Module) -> dict[str, Any]:
    """A module's own parameters and buffers, by name."""
    kinds = (vars(module)[kind] for kind in ("_parameters", "_buffers"))
    return {name: tensor for kind in kinds for name, tensor in kind.items() if tensor is not None}


def file_of(path: str, name: str, revision: str | None) -> str | None:
    """Where a file of a folder or hub id lies on this machine; None where there is none, or it cannot be had."""
    found: str | None = cached_file(
        path,
        name,
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        _raise_exceptions_for_gated_repo=False,
    )
    return found
