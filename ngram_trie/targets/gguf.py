"""GGUF files, those of llama.cpp: converted once to a stock folder in single precision, which everything else reads.

The weights are what the file holds: a quantised tensor is multiplied out, so that no product is computed otherwise than
in a model that was never quantised. Conversions lie outside the project, under $NGRAM_TRIE_CACHE.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel

from ngram_trie.store.files import NotInstalled, cache_folder, fingerprint, first_line, package_file


def gguf_file(path: str) -> Path | None:
    """The GGUF file that `path` means: itself, one in an installed package ("package:PACKAGE/FILE"), or the only one of
    a folder that has no config.json. None where it means none: a stock folder, a hub id.

    Raises:
        FileNotFoundError: no such file or package, or several such files; the message says what to do.
    """
    if not path:
        raise FileNotFoundError("model.path: give a GGUF file, a folder with a model, or a hub id")
    try:
        place = package_file(path)
    except NotInstalled as error:
        tiny = "or run the tiny model: PROFILE=tiny (model=tiny)"
        raise NotInstalled(f"model {path}: {error}, {tiny}") from None
    if place.suffix == ".gguf" and not place.is_dir():
        if not place.is_file():
            raise FileNotFoundError(f"model {path}: no such file")
        return place
    found = sorted(place.glob("*.gguf")) if place.is_dir() and not (place / "config.json").exists() else []
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise FileNotFoundError(f"model {path}: it holds several GGUF files, give one of them: {names}")
    return found[0] if found else None


def local_folder(path: str) -> str:
    """What transformers can load in place of `path`: for a GGUF file the folder of its conversion, which is made the
    first time; anything else is given back as it is.

    Raises:
        FileNotFoundError: the file is not there or cannot be converted; the message says what to do.
    """
    file = gguf_file(path)
    if file is None:
        return path
    folder = conversion(file)
    if not folder.exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            # A second process waits for the first one's conversion instead of making it, too.
            with FileLock(folder.with_name(f"{folder.name}.lock")):
                if not folder.exists():
                    _convert(file, folder)
        except Exception as error:  # of gguf, transformers, safetensors, the disk
            raise FileNotFoundError(f"model {path} cannot be converted: {first_line(error)}") from error
    return str(folder)


def conversion(file: Path) -> Path:
    """The folder of a GGUF file's conversion, made or not: named after its name and what it holds."""
    return cache_folder() / "models" / f"{file.stem}-{fingerprint(str(file))}"


def _convert(file: Path, folder: Path) -> None:
    """Write the conversion of `file` to `folder`, which comes into being whole or not at all."""
    about = read_metadata(file)
    print(f"converting {file.name} once, into {folder}", file=sys.stderr)
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a run that was killed
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # bars of progress
            tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
            model = _stock(file, about)
            model.save_pretrained(unfinished)
            tokenizer.save_pretrained(unfinished)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def read_metadata(file: Path) -> dict[str, Any]:
    """What a GGUF file says of itself, by its keys, lists left out.

    Raises:
        ValueError: it is no GGUF file, is cut short, or needs what transformers does not read.
    """
    from gguf import GGUFReader, GGUFValueType

    try:
        reader = GGUFReader(file)
    except Exception as error:  # numpy's many kinds
        raise ValueError(f"it is no GGUF file, cut short or damaged ({first_line(error)[:70]})") from error
    about = {
        name: field.contents() for name, field in reader.fields.items() if field.types[:1] != [GGUFValueType.ARRAY]
    }
    scaled = [tensor.name for tensor in reader.tensors if tensor.name.startswith(("rope_freqs", "rope_factors"))]
    kind = about.get(f"{about.get('general.architecture')}.rope.scaling.type", "none")
    if scaled or kind != "none":
        raise ValueError(
            "it scales its rotary positions, and transformers leaves that out of a GGUF file: "
            "give the folder or hub id of the original model"
        )
    return about


def _stock(file: Path, about: dict[str, Any]) -> PreTrainedModel:
    """The model in a GGUF file, of its own class and in single precision, as if it had never been in one.

    Raises:
        ValueError: tensors are missing.
    """
    read, info = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, output_loading_info=True
    )
    if wrong := sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]])):
        raise ValueError(f"tensors are missing in it or have another shape: {', '.join(wrong[:5])}")
    fields = read.config.to_dict()
    for name in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        fields.pop(name, None)
    bos, eos, eot, pad = (about.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "eot", "padding"))
    ends = sorted({end for end in (eos, eot) if end is not None})
    tokens = {
        "bos_token_id": bos,
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
        "pad_token_id": pad if pad is not None else eos,
    }
    if window := about.get(f"{about['general.architecture']}.attention.sliding_window"):
        fields["sliding_window"] = window  # transformers leaves it out of Phi-3's
    config = type(read.config).from_dict(fields | tokens)
    # transformers saves no model that says that it comes from a GGUF file; this one has its tensors and nothing else
    with torch.device("meta"):
        model: PreTrainedModel = type(read)(config)
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = GenerationConfig(**tokens)
    return model
