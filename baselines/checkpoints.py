"""Reading the weights that methods bring along: from a folder or the hub, no pickle, every key and shape checked."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from ngram_trie.store.files import first_line
from ngram_trie.targets.hub import SUFFIXES, cached, fetch

Tensors = dict[str, torch.Tensor]


def locate(path: str, revision: str | None = None) -> Path:
    """The folder of `path`, a folder or hub id; what the hub has is fetched once and cached.

    Raises:
        Unreachable: the hub does not answer.
        FileNotFoundError: neither; the message says what to do.
    """
    return Path(path) if Path(path).is_dir() else fetch(path, revision)


def weight_parts(path: str, revision: str | None, how: str) -> dict[Path, str]:
    """`Drafter.parts` of weights at `path`: a folder that `how` makes, or a hub id, whose files are in the cache once
    they were fetched (`locate`).
    """
    folder = Path(path)
    if folder.is_dir() and not weight_files(folder):
        return {folder / f"*{SUFFIXES[0]}": how}
    if folder.is_absolute() or folder.exists():
        return {folder: how}
    return {cached(path, revision) or folder: "the hub has not given its weights"}


def weight_files(folder: Path) -> list[Path]:
    """The files of weights in `folder`, in order."""
    return sorted(file for file in folder.glob("*") if file.suffix in SUFFIXES and file.name != "training_args.bin")


def read_tensors(folder: Path) -> Tensors:
    """All tensors of the weight files in `folder`, mapped from the files: memory is taken as they are read. Files in
    PyTorch's own format are read with `weights_only`.

    Raises:
        FileNotFoundError: no weights there, or files that cannot be read.
    """
    tensors: Tensors = {}
    for file in weight_files(folder):
        try:
            part = load_file(file) if file.suffix == SUFFIXES[0] else _load(file)
        except Exception as error:  # many kinds; a pickle's where it holds more than tensors
            raise FileNotFoundError(f"{file}: not readable as weights: {first_line(error)}") from None
        tensors |= part
    if not tensors:
        raise FileNotFoundError(f"{folder}: no weights there (*{', *'.join(SUFFIXES)})")
    return tensors


def _load(file: Path) -> Tensors:
    """Mapped where the file is a zip, as PyTorch writes since 1.6."""
    tensors: Tensors = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    return tensors


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json beside the weights; empty if there is none."""
    file = folder / "config.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def fill(
    module: nn.Module,
    tensors: Mapping[str, torch.Tensor],
    where: Path,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> None:
    """Make `tensors` the parameters of `module`, whose own may be on the meta device: each goes to its device and
    precision by itself, so that there is never a second copy of all. Tensors that are one in the file stay one.

    Raises:
        ValueError: keys are missing or unexpected, or shapes differ; the message lists them.
    """
    shapes = {key: value.shape for key, value in module.state_dict().items()}
    wrong = {
        "missing": sorted(set(shapes) - set(tensors)),
        "unexpected": sorted(set(tensors) - set(shapes)),
        "of another shape": [
            f"{key} {tuple(tensors[key].shape)}, not {tuple(shapes[key])}"
            for key in sorted(set(shapes) & set(tensors))
            if tensors[key].shape != shapes[key]
        ],
    }
    if any(wrong.values()):
        listed = "; ".join(f"{what}: {', '.join(keys[:4])}" for what, keys in wrong.items() if keys)
        raise ValueError(f"{where}: these weights do not fit the target model ({listed})")
    moved: dict[tuple[int, torch.Size], torch.Tensor] = {}
    filled: Tensors = {}
    for key in shapes:
        place = tensors[key].data_ptr(), shapes[key]
        if place not in moved:
            moved[place] = tensors[key].to(device=device, dtype=dtype)
        filled[key] = moved[place]
    module.load_state_dict(filled, assign=True)
