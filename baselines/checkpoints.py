"""Reading the weights that methods bring along: from a folder or the hub, no pickle, every key and shape checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors.torch import load_file
from torch import nn

from ngram_trie.store.files import first_line
from ngram_trie.targets.hub import from_hub

SUFFIXES = (".safetensors", ".pt", ".bin")
Tensors = dict[str, torch.Tensor]


def locate(path: str, revision: str | None = None) -> Path:
    """The folder of `path`, a folder or hub id; what the hub has is fetched once and cached.

    Raises:
        FileNotFoundError: neither; the message says what to do.
    """
    if Path(path).is_dir():
        return Path(path)
    patterns = [f"*{suffix}" for suffix in (*SUFFIXES, ".json")]
    with from_hub(f"weights {path!r}", "or give a folder with them"):
        return Path(snapshot_download(path, revision=revision, allow_patterns=patterns))


def weight_parts(path: str, revision: str | None, how: str) -> dict[Path, str]:
    """`Drafter.parts` of weights at `path`, a folder that `how` makes, or a hub id, which is fetched here and now: what
    the hub does not give is missing before anything is measured.
    """
    folder = Path(path)
    if folder.is_dir() and not weight_files(folder):
        return {folder / f"*{SUFFIXES[0]}": how}
    if folder.is_absolute() or folder.exists():
        return {folder: how}
    try:
        return {locate(path, revision): how}
    except FileNotFoundError as error:
        return {Path(path): str(error)}


def weight_files(folder: Path) -> list[Path]:
    """The files of weights in `folder`, in order."""
    return sorted(file for file in folder.glob("*") if file.suffix in SUFFIXES and file.name != "training_args.bin")


def read_tensors(folder: Path) -> Tensors:
    """All tensors of the weight files in `folder`; files in PyTorch's own format are read with `weights_only`.

    Raises:
        FileNotFoundError: no weights there, or files that cannot be read.
    """
    tensors: Tensors = {}
    for file in weight_files(folder):
        try:
            part = (
                load_file(file)
                if file.suffix == ".safetensors"
                else torch.load(file, map_location="cpu", weights_only=True)
            )
        except Exception as error:  # many kinds; a pickle's where it holds more than tensors
            raise FileNotFoundError(f"{file}: not readable as weights: {first_line(error)}") from None
        tensors |= part
    if not tensors:
        raise FileNotFoundError(f"{folder}: no weights there (*{', *'.join(SUFFIXES)})")
    return tensors


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json beside the weights; empty if there is none."""
    file = folder / "config.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def fill(module: nn.Module, tensors: Mapping[str, torch.Tensor], where: Path) -> None:
    """Copy `tensors` into the parameters of `module`, in its own precision.

    Raises:
        ValueError: keys are missing or unexpected, or shapes differ; the message lists them.
    """
    wanted = module.state_dict()
    wrong = {
        "missing": sorted(set(wanted) - set(tensors)),
        "unexpected": sorted(set(tensors) - set(wanted)),
        "of another shape": [
            f"{key} {tuple(tensors[key].shape)}, not {tuple(wanted[key].shape)}"
            for key in sorted(set(wanted) & set(tensors))
            if tensors[key].shape != wanted[key].shape
        ],
    }
    if any(wrong.values()):
        listed = "; ".join(f"{what}: {', '.join(keys[:4])}" for what, keys in wrong.items() if keys)
        raise ValueError(f"{where}: these weights do not fit the target model ({listed})")
    module.load_state_dict({key: tensors[key].to(value.dtype) for key, value in wanted.items()})
