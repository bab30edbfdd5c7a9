"""What a model is at a moment: a copy of it must never be asked for what it no longer is.

Of each module its class, what hangs on it, its settings and its tensors' shapes and addresses; the configuration; and,
of what a copy is kept (`ngram_trie.targets.cpu` keeps one of the weights), digests of all tensors. For these the
weights are read, which takes as long as a token or two, unless the kernel knows that nothing was written to them
(`targets.writes`). PyTorch's counters would not do: `weight.data += delta`, as adapters are merged, raises none.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import os
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MethodType
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from ngram_trie.store.compiled import compiled
from ngram_trie.targets.internals import has_global_hook, hooks_of, new_model, tensors_of
from ngram_trie.targets.plan import plan_of
from ngram_trie.targets.writes import PAGE, Span, Watch

#: Attributes of modules that have no part in a forward.
_IDLE = {"training", "padding_idx", "gradient_checkpointing", "name_or_path", "vocab_size", "generate"}
_LANES = 64
#: By name, a module and its own tensors by theirs.
_Held: TypeAlias = dict[str, tuple[torch.nn.Module, dict[str, torch.Tensor]]]
#: What watches the tensors of a model, and the digests of what it watches.
_WATCHED: WeakKeyDictionary[PreTrainedModel, tuple[Watch, list[bytes]]] = WeakKeyDictionary()


class Part(NamedTuple):
    """A module, without its parts and the values of its tensors; of buffers without their types."""

    kind: type
    forward: Any
    hooks: list[Any]
    settings: dict[str, Any]
    tensors: dict[str, tuple[torch.Size, torch.dtype | None]]


class ModelState(NamedTuple):
    """What decides a model's answers; see the module. Equal ones are of models that answer alike."""

    device: torch.device
    config: str
    hooked: bool
    parts: Mapping[str, Part]
    digests: list[bytes]
    addresses: list[int]
    autocast: torch.dtype | None = None
    process: int = 0


def state_of(model: PreTrainedModel) -> ModelState:
    """The state of a model, which is put in evaluation mode. Digests are made where a packed copy is."""
    held = _held(model)
    if any(module.training for module, _ in held.values()):
        model.eval()
    tensors = _tensors(held)
    digests = [] if isinstance(plan_of(model.config), str) else _digests(model, tensors)
    config, autocast = repr(vars(model.config)), autocast_dtype(model.device)
    parts, addresses = _parts(held), [tensor.data_ptr() for tensor in tensors]
    return ModelState(model.device, config, has_global_hook(), parts, digests, addresses, autocast, os.getpid())


def addresses_of(model: PreTrainedModel) -> list[int]:
    """Where the tensors of a model lie. Graphs hold the addresses of weights, which go on being read when the model has
    others: `model.to()`, `load_state_dict(assign=True)`.
    """
    return [tensor.data_ptr() for tensor in _tensors(_held(model))]


def _held(model: PreTrainedModel) -> _Held:
    """Its modules and what they hold. This walk takes a good part of what a look at the model does."""
    return {name: (module, tensors_of(module)) for name, module in model.named_modules()}


def _tensors(held: _Held) -> list[torch.Tensor]:
    """Parameters and buffers, each once."""
    return list({id(each): each for _, own in held.values() for each in own.values()}.values())


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The type that products are computed in where `torch.autocast` is entered; None where it is not."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


def alteration(model: PreTrainedModel) -> str | None:
    """What of a model is not as its configuration says, beside the values of tensors: a hook, an adapter, another
    activation; None if nothing is.
    """
    with torch.device("meta"):
        config = copy.deepcopy(model.config)
        is_known = type(model).__module__.startswith("transformers.models.")
        make = functools.partial(new_model, type(model)) if is_known else AutoModelForCausalLM.from_config
        said = _parts(_held(make(config, dtype=model.dtype)))
    parts = _parts(_held(model))
    for name in said | parts:
        if name not in said or name not in parts:
            return f"{name} is not as the configuration says ({'missing' if name in said else 'added'})"
        for field, ours, theirs in zip(Part._fields, parts[name], said[name], strict=True):
            if ours != theirs:
                return f"{name or type(model).__name__} is not as the configuration says ({field})"
    return None


def _parts(held: _Held) -> dict[str, Part]:
    return {name: _part(module, own) for name, (module, own) in held.items()}


def _part(module: torch.nn.Module, own: Mapping[str, torch.Tensor]) -> Part:
    settings = {
        name: _unheld(value)
        for name, value in vars(module).items()
        if name[0] != "_" and name not in _IDLE and (isinstance(value, int | float | str | tuple) or callable(value))
    }
    tensors = {
        name: (tensor.shape, tensor.dtype if isinstance(tensor, torch.nn.Parameter) else None)
        for name, tensor in own.items()
    }
    return Part(type(module), type(module).forward, [*map(_unheld, hooks_of(module))], settings, tensors)


class _Same(weakref.ref[Any]):
    """Of what is compared by its identity, as long as it lives."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self() is not None and self() is other()

    __hash__ = weakref.ref.__hash__


def _unheld(value: Any) -> Any:
    """What is equal to that of the same object as long as it lives, and keeps no model in memory."""
    if isinstance(value, functools.partial):
        named = {name: _unheld(each) for name, each in value.keywords.items()}
        return _unheld(value.func), [*map(_unheld, value.args)], named
    if isinstance(value, type) or not (callable(value) or isinstance(value, torch.nn.Module)):
        return value
    with contextlib.suppress(TypeError):  # of some objects there are no weak references
        if isinstance(value, MethodType):
            return _Same(value.__func__), _Same(value.__self__)
        return _Same(value)
    return value


def _digests(model: PreTrainedModel, tensors: Sequence[torch.Tensor]) -> list[bytes]:
    """A digest of all tensors of which a network keeps a copy. Graphs read the model's own parameters, but rotary
    tables are copies everywhere. Whole pages are not read again while the kernel sees no write to any of them.
    """
    is_copied = model.device.type == "cpu" and model.dtype == torch.float32
    kept = [each for each in tensors if is_copied or not isinstance(each, torch.nn.Parameter)]
    kept = [each.detach() for each in kept if each.dtype == torch.float32]  # holds the memory until it is read
    spans: list[Span] = []
    rest: list[bytes] = []
    for tensor in kept:
        first, behind = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
        start, end = -(first // -PAGE) * PAGE, behind // PAGE * PAGE
        if first and start < end and tensor.is_cpu and tensor.is_contiguous():
            spans.append((start, end))
            rest += [ctypes.string_at(first, start - first), ctypes.string_at(end, behind - end)]
        else:  # less than a page, elsewhere, or without memory of its own, as quantised weights may be
            rest.append(tensor.cpu().contiguous().flatten().numpy().tobytes())
    watch, known = _WATCHED.get(model, (None, []))
    if watch is None or watch.spans != spans or not watch.saw_no_write():
        watch = Watch(spans)  # before they are read
        known = _digests_of([_rows((ctypes.c_char * (end - start)).from_address(start)) for start, end in spans])
        _WATCHED[model] = watch, known
    small = bytearray().join(rest)
    small += bytes(-len(small) % (4 * _LANES))
    return [*known, _digest(_rows(small)).tobytes()]


def _rows(memory: Any) -> np.ndarray:
    """(k, `_LANES`) the words of an object that lends its memory."""
    return np.frombuffer(memory, np.uint32).reshape(-1, _LANES)


def _digests_of(parts: list[np.ndarray]) -> list[bytes]:
    """One of each part, by all threads; the longest part's first."""
    parts.sort(key=len, reverse=True)  # threads have as much to read as each other
    count = min(torch.get_num_threads(), len(parts))
    with ThreadPoolExecutor(max(1, count)) as threads:
        shares = [*threads.map(lambda first: [_digest(part).tobytes() for part in parts[first::count]], range(count))]
    return [shares[place % count][place // count] for place in range(len(parts))]


@compiled(nogil=True, error_model="numpy")
def _digest(words: np.ndarray) -> np.ndarray:
    """A digest (`_LANES`,) of words (k, `_LANES`). No change of one word leaves it as it was, nor, but by chance, do
    several: where a word stands counts.
    """
    digest = np.ones(_LANES, np.uint32)
    for row in range(len(words)):
        for lane in range(_LANES):
            mixed = digest[lane] ^ words[row, lane]
            digest[lane] = (mixed << np.uint32(13) | mixed >> np.uint32(19)) * np.uint32(0x9E3779B1)
    return digest
