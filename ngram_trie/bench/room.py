"""What the weights of a run take of a device's memory, and which of its methods fit beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from ngram_trie.baselines.checkpoints import weight_files
from ngram_trie.drafter import Drafter
from ngram_trie.targets.hub import cached

#: Of a GPU's memory, what caches, masks and logits take, in gigabytes.
CACHE_GB = 4.0


def weights_gb(path: str, revision: str | None = None) -> float:
    """Gigabytes of the weight files of a folder or hub id that are on this machine; 0 without any."""
    folder = Path(path) if Path(path).is_dir() else cached(path, revision)
    return sum(file.stat().st_size for file in weight_files(folder)) / 1e9 if folder else 0.0


def method_gb(method: object) -> float:
    """Gigabytes of the weights that a method brings along."""
    weights = method.weights() if isinstance(method, Drafter) else {}
    return sum(weights_gb(path, revision) for path, revision in weights.items())


def left_out(methods: Mapping[str, float], target: float, memory: float) -> dict[str, str]:
    """Of each method that does not fit, why. The smallest go first, so that as many as possible do.

    Args:
        methods: gigabytes of weights by method.
        target: those of the model that all share.
        memory: of the device; 0 where there is none, and everything fits.
    """
    taken, found = target + CACHE_GB, {}
    for name in sorted(methods, key=lambda name: methods[name]):
        taken += methods[name]
        if memory and methods[name] and taken > memory:
            found[name] = (
                f"its weights take {methods[name]:.1f} GB; with them the run needs {taken:.0f} GB of GPU memory, and "
                f"there are {memory:.0f}"
            )
            taken -= methods[name]
    return found


def check_room(method: object, device: torch.device) -> None:
    """Raises:
    OutOfMemoryError: the device is a GPU without room for the method's weights beside what is there already.
    """
    needed = method_gb(method)
    if device.type == "cuda" and needed:
        free = torch.cuda.mem_get_info(device)[0] / 1e9
        if needed + CACHE_GB > free:
            raise torch.OutOfMemoryError(
                f"its weights take {needed:.1f} GB, caches {CACHE_GB:.0f} GB, and {free:.1f} GB of GPU memory are free"
            )
