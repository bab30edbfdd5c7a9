"""A stand-in for captured CUDA graphs, where there is no GPU: the calls of a step are recorded once and from then on
repeated on the very tensors that they ran on, into the ones that they made. An address that has changed, a shape or a
number that was not read from a buffer, stays as it was at the recording, as in a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ngram_trie.targets.cuda_graph import CapturedStep, GraphNetwork


class Recording(TorchDispatchMode):
    """Notes every call while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        self.calls.append((function, args, kwargs or {}, made))
        return made

    def replay(self) -> None:
        for function, args, kwargs, made in self.calls:
            there = storages(args, kwargs)
            if function._schema.is_mutable:
                function(*args, **kwargs)
            elif not storages(made) <= there:  # a view lies where it lay
                for old, new in zip(tree_leaves(made), tree_leaves(function(*args, **kwargs)), strict=True):
                    if isinstance(old, torch.Tensor):
                        old.copy_(new)


def storages(*trees: Any) -> set[int]:
    """Where the tensors among some arguments lie."""
    return {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(trees) if isinstance(leaf, torch.Tensor)}


def recorded(network: GraphNetwork, nodes: Callable[[], Sequence[torch.Tensor]]) -> CapturedStep:
    """In the place of `GraphNetwork._plain`."""
    with Recording() as recording:
        left = nodes()
    return CapturedStep(recording.replay, *left)
