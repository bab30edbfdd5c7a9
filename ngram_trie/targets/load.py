"""Loading tokenizers and weights from a folder, a GGUF file or the hub; no code from a checkpoint is run.

Wherever a path is asked for, a GGUF file and "package:PACKAGE/FILE" do as well (`ngram_trie.targets.gguf`).
"""

from __future__ import annotations

import errno
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from ngram_trie.store.files import first_line
from ngram_trie.targets.gguf import cache_folder, gguf_file, local_folder
from ngram_trie.targets.hub import Unreachable, fetch, hub_said, is_unreachable
from ngram_trie.targets.sentencepiece import restore_merges


def window_of(config: Any) -> int | None:
    """The sliding window of such a model; None for one whose kind of model has none, whatever its config says."""
    config = config.get_text_config()
    kinds = getattr(config, "layer_types", None) or ()
    is_read = hasattr(type(config), "sliding_window") or "sliding_attention" in kinds
    return getattr(config, "sliding_window", None) if is_read else None


def ropes_of(config: Any) -> dict[str, Mapping[str, Any]]:
    """Parameters of the rotary embeddings by kind of layer; under "" where all are of one kind."""
    config = config.get_text_config()
    rope, kinds = getattr(config, "rope_parameters", None) or {}, set(getattr(config, "layer_types", None) or ())
    return {kind: rope[kind] for kind in kinds if kind in rope} or {"": rope}


def longest_text(config: Any, limit: int | None = None) -> int:
    """Largest number of tokens of prompt and output together that a model of this `config` takes here, or `limit` where
    that is less. Scaled rotation reaches as far as its factor says. Without a limit it is no more than a window that
    this kind of model does not read (a GGUF file of a Mistral is one of a Llama).
    """
    ropes, config = ropes_of(config).values(), config.get_text_config()  # the part that reads text
    length = config.max_position_embeddings
    scaled = [
        int(rope["factor"] * rope.get("original_max_position_embeddings", length))
        for rope in ropes
        if rope.get("rope_type") in ("yarn", "dynamic")
    ]
    own = [max(length, *scaled, 0), limit]
    is_mixed = "full_attention" in (getattr(config, "layer_types", None) or ())
    if limit is None and window_of(config) is None and not is_mixed:
        own.append(getattr(config, "sliding_window", None))
    return min(size for size in own if size)


def draft_limit(config: Any, num_prompt: int) -> int:
    """Length of a text up to which drafts may be verified behind a prompt of `num_prompt` tokens. Some models turn keys
    otherwise once a text exceeds a length, by the last position that a forward reads: only plain steps do there what
    plain steps do. LongRoPE turns once, dynamic NTK with every token.
    """
    found = longest_text(config)
    for rope in ropes_of(config).values():
        kind = rope.get("rope_type")
        original = rope.get("original_max_position_embeddings", config.get_text_config().max_position_embeddings)
        if kind == "dynamic" or (kind == "longrope" and num_prompt <= original):
            found = min(found, original)
    return found


def choose_device(name: str) -> torch.device:
    """The device that `name` means; "auto" takes the GPU where there is one.

    Raises:
        ValueError: no such device here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"model.device={name}: torch sees no GPU here; use model.device=cpu or auto")
    return torch.device(name)


def load_tokenizer(path: str, revision: str | None = None, **options: Any) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder, GGUF file or hub id; no code from the checkpoint is run.

    Args:
        options: passed on to transformers, such as `legacy=True` for Llama tokenizers that were published before that
            setting: without it, the word behind a special token loses its space.

    Raises:
        FileNotFoundError: nothing to load; the message says what to do.
    """
    # AutoTokenizer would take a class by the architecture, Qwen2's for one, which cuts text in a way of its own
    kind = PreTrainedTokenizerFast if gguf_file(path) else AutoTokenizer
    path = local_folder(path)
    try:
        tokenizer = kind.from_pretrained(path, revision=revision, **options)
    except Exception as error:  # many libraries' own kinds
        raise _cannot_load(path, error, revision, "the tokenizer of ") from error
    restore_merges(tokenizer, path, revision)
    return tokenizer


def load_config(path: str, revision: str | None = None) -> PreTrainedConfig:
    """The config of a folder, GGUF file or hub id.

    Raises:
        FileNotFoundError: nothing to load; the message says what to do.
    """
    path = local_folder(path)
    try:
        return AutoConfig.from_pretrained(path, revision=revision)
    except Exception as error:  # many libraries' own kinds
        raise _cannot_load(path, error, revision) from error


def context_limit(path: str, revision: str | None = None, limit: int | None = None) -> int:
    """Largest number of tokens of prompt and output together: the model's own, or `limit` where that is less.

    Raises:
        FileNotFoundError: nothing to load.
    """
    return longest_text(load_config(path, revision), limit)


def load_model(
    path: str, dtype: str = "float32", device: str = "auto", revision: str | None = None, attention: str = "sdpa"
) -> PreTrainedModel:
    """A causal language model from a folder, a GGUF file or the hub; no code from the checkpoint is run.

    Args:
        path: a folder, a GGUF file or a hub id. `name_or_path` of the model is the folder, file or id that was read.
        dtype: "float32", "bfloat16" or "float16".
        device: see `choose_device`.
        attention: "sdpa" or "eager" (flash attention 2 takes no custom mask).

    Raises:
        FileNotFoundError: nothing to load, or the weights do not fit the config; the message says what to do.
    """
    folder = local_folder(path)
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            # A folder: of a hub id with weights in PyTorch's own format transformers would ask a service, in a thread
            # of its own, to convert them.
            folder if Path(folder).is_dir() else fetch(folder, revision),
            dtype=dtype,
            attn_implementation=attention,
            weights_only=True,  # of files in PyTorch's own format, which older repositories have: tensors and no code
            output_loading_info=True,
        )
    except Exception as error:  # many libraries' own kinds
        raise _cannot_load(folder, error, revision) from error
    model.name_or_path = str(gguf_file(path) or path)  # its conversion is known by the file
    # transformers fills what is missing with random numbers and only warns
    wrong = {name: sorted(map(str, info[name])) for name in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    if any(wrong.values()):
        listed = "; ".join(f"{name.replace('_', ' ')}: {', '.join(keys[:5])}" for name, keys in wrong.items() if keys)
        raise FileNotFoundError(f"model {path!r}: the weights do not fit its config ({listed})")
    return model.to(choose_device(device)).eval()


def load_pretrained(
    path: str, dtype: str = "float32", device: str = "auto", revision: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer of a folder, a GGUF file, "package:PACKAGE/FILE" or a hub id; see `load_model`.

    Raises:
        FileNotFoundError: nothing to load; the message says what to do.
    """
    return load_model(path, dtype, device, revision), load_tokenizer(path, revision)


def random_model(
    architecture: str, dtype: str = "float32", device: str = "auto", attention: str = "sdpa", **changes: Any
) -> PreTrainedModel:
    """A causal language model with random weights, always the same ones, made on the device: for what a model costs
    where its weights cannot be had.

    Args:
        architecture: a folder with a config.json, or a GGUF file.
        dtype, device, attention: as in `load_model`.
        changes: fields of its config that shall be otherwise.

    Raises:
        FileNotFoundError: no such config.
    """
    file = Path(local_folder(architecture)) / "config.json"
    if not file.exists():
        raise FileNotFoundError(f"model.architecture={architecture}: there is no config.json in the folder")
    config = AutoConfig.for_model(**json.loads(file.read_text(encoding="utf-8")) | changes)
    torch.manual_seed(0)
    with torch.device(choose_device(device)):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype), attn_implementation=attention)
    return model.eval()


def _cannot_load(path: str, error: Exception, revision: str | None = None, part: str = "") -> FileNotFoundError:
    """An error of one line on which model, or which `part` of it, was not loaded, why, and what helps."""
    is_folder = Path(path).is_dir()
    # A damaged file in PyTorch's own format is a RuntimeError or an OSError like many others.
    if (
        isinstance(error, SafetensorError | pickle.UnpicklingError | EOFError)
        or "PytorchStreamReader" in str(error)
        or (isinstance(error, OSError) and error.errno == errno.EINVAL)
    ):
        # what torch says at length includes the advice to run the file's code
        said = f"{type(error).__name__}: {first_line(error)[:70]}"
        reason = f"its weights are cut short, damaged, or not only tensors ({said}): "
        is_conversion = Path(path).is_relative_to(cache_folder())
        reason += "delete the folder, it is converted again" if is_conversion else "fetch them again"
        if not is_folder:
            reason += f", after deleting models--{path.replace('/', '--')} in {constants.HF_HUB_CACHE}"
    elif part and "backend tokenizer" in str(error):
        reason = (
            "there is no tokenizer.json, and no tokenizer.model that can be read: take them from the original model"
        )
    elif is_folder:
        has_config = (Path(path) / "config.json").exists()
        reason = first_line(error) if has_config else "there is no config.json in the folder"
    else:
        reason = f"{hub_said(error)}; or give a folder with its files: model.path=FOLDER"
    kind = Unreachable if is_unreachable(error) else FileNotFoundError
    return kind(f"{part}model {path!r} cannot be loaded: {reason}")
