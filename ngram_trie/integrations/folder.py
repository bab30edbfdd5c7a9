"""transformers' `custom_generate` as a folder, on disk or as a repository of the hub:

    model.generate(**inputs, custom_generate=str(folder()), trust_remote_code=True, drafter="blend")

transformers reads `custom_generate/generate.py` of the folder, which calls `generate` below. A folder is given all that
`generate` was given, streamer and tokenizer too, before anything is settled; a callable
(`ngram_trie.custom_generate`) only what is left of it afterwards.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation.streamers import BaseStreamer

from ngram_trie.drafter import Shape
from ngram_trie.generate import Budget, SpeculativeOutput, Speculator, generate_of
from ngram_trie.methods import DrafterLike

_FOLDER = Path(__file__).parent / "hub"
#: Options of the call that say where the folder is loaded from. transformers (5.23) hands them to the folder as well.
_LOADING = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")


def folder() -> Path:
    """The folder that comes with the package; its content is laid out as a repository of the hub."""
    return _FOLDER


def copy_to(place: Path | str) -> Path:
    """Copy the folder, to be uploaded or kept beside a model; returns the place.

    Raises:
        FileExistsError: the place already has a custom_generate.
    """
    place = Path(place)
    if (place / "custom_generate").exists():
        raise FileExistsError(f"{place}/custom_generate: is there already; remove it, or give another folder")
    ignored = shutil.ignore_patterns("__pycache__", *(["README.md"] if (place / "README.md").exists() else []))
    shutil.copytree(_FOLDER, place, ignore=ignored, dirs_exist_ok=True)
    return place


def generate(
    model: PreTrainedModel,
    inputs: torch.Tensor | None = None,
    *,
    drafter: DrafterLike | None = None,
    num_draft: int | None = None,
    shape: Shape = "tree",
    budget: Budget = "auto",
    seed: int | None = None,
    streamer: BaseStreamer | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    stop_strings: str | Sequence[str] | None = None,
    **options: Any,
) -> torch.Tensor | SpeculativeOutput:
    """What `model.generate(inputs, **options)` returns, in fewer forwards.

    Args:
        drafter, num_draft, shape, budget, seed: as in `speculative_generate`.
        streamer, tokenizer, stop_strings, options: as in transformers' `generate`, with its defaults.

    Raises:
        ValueError: an option, an input or a drafter that does not fit; one line.
    """
    options = {name: value for name, value in options.items() if name not in _LOADING}
    speculator = Speculator(model, drafter, tokenizer, num_draft=num_draft, shape=shape, budget=budget)
    ends, options = speculator.take_stop_strings(stop_strings, options)

    def decode(model: PreTrainedModel, input_ids: torch.Tensor, **settled: Any) -> torch.Tensor | SpeculativeOutput:
        asked: dict[str, Any] = {"stop_strings": ends, "seed": seed}
        return speculator.custom_generate(model, input_ids, stream_to=streamer, **asked, **settled)

    return generate_of(model)(inputs, custom_generate=decode, **options)
