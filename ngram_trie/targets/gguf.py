"""GGUF files, those of llama.cpp: converted once to a stock folder in single precision, which everything else reads.

The weights are what the file holds: a quantised tensor is multiplied out, so that no product is computed otherwise than
in a model that was never quantised. Conversions lie outside the project, under $NGRAM_TRIE_CACHE.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from filelock import FileLock
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedConfig, PreTrainedModel

from ngram_trie.store.files import ON_HUB, NotInstalled, cache_folder, fingerprint, first_line, package_file
from ngram_trie.targets.gguf_tokenizer import LISTS, read_tokenizer
from ngram_trie.targets.hub import fetch_file

#: Raise it with every change of what a conversion holds, so that none is used that was made otherwise.
VERSION = 2
SUPPRESSED = "tokenizer.ggml.suppress_tokens"
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
#: Fields of an architecture that its tensors show, that all of transformers' converters read, or that decide nothing.
_SHOWN = re.compile(
    "(block_count|context_length|vocab_size|embedding_length.*|(expert_)?(shared_)?feed_forward_length|rope.scaling.*"
    "|attention.head_count(_kv)?|expert_count|(ssm|shortconv)[.].*|full_attention_interval|tensor_data_layout"
    "|use_parallel_residual)"
)


def gguf_file(path: str) -> Path | None:
    """The GGUF file that `path` means: itself, one in an installed package ("package:PACKAGE/FILE"), one on the hub
    ("OWNER/NAME/FILE.gguf", which is fetched the first time), or the only one of a folder that has no config.json.
    None where it means none: a stock folder, a hub id.

    Raises:
        FileNotFoundError: no such file or package, several such files, or a part of one, or the hub does not give it;
            the message says what to do.
    """
    if not path:
        raise FileNotFoundError("model.path: give a GGUF file, a folder with a model, or a hub id")
    try:
        place = package_file(path)
    except NotInstalled as error:
        tiny = "or run the tiny model: PROFILE=tiny (model=tiny)"
        raise NotInstalled(f"model {path}: {error}, {tiny}") from None
    is_folder = place.is_dir()
    if place.suffix.lower() == ".gguf" and not is_folder:
        if not place.is_file() and (named := ON_HUB.fullmatch(path)):
            place = fetch_file(*named.groups())
        if not place.is_file():
            raise FileNotFoundError(f"model {path}: no such file")
        found = [place]
    else:
        files = sorted(place.iterdir()) if is_folder and not (place / "config.json").exists() else []
        found = [file for file in files if file.suffix.lower() == ".gguf"]
    if found and (part := _PART.search(found[0].name)) and int(part[2]) > 1:
        first = found[0].with_name(_PART.sub(f"-00001-of-{part[2]}.gguf", found[0].name))
        whole = _PART.sub(".gguf", found[0].name)
        raise FileNotFoundError(
            f"model {path}: it is cut into {int(part[2])} parts: join them with llama.cpp's "
            f"`llama-gguf-split --merge {first} {whole}`, and give {whole}"
        )
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
    """The folder of a GGUF file's conversion, made or not: named after its name, what it holds and what converts it."""
    converter = f"{VERSION}-{transformers.__version__}"
    return cache_folder() / "models" / f"{file.stem}-{fingerprint(str(file))}-{converter}"


def _convert(file: Path, folder: Path) -> None:
    """Write the conversion of `file` to `folder`, which comes into being whole or not at all."""
    about = read_metadata(file)
    tokenizer = read_tokenizer(about)
    print(f"converting {file.name} once, into {folder}", file=sys.stderr)
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a run that was killed
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # bars of progress
            unfinished.mkdir()
            link = unfinished / "source.gguf"  # transformers knows no other spelling of the ending
            link.symlink_to(file.absolute())
            model = _stock(link, about)
            link.unlink()
            model.save_pretrained(unfinished)
            tokenizer.save_pretrained(unfinished)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def read_metadata(file: Path) -> dict[str, Any]:
    """What a GGUF file says of itself, by its keys; of its lists only those of its tokenizer.

    Raises:
        ValueError: it is no GGUF file, is cut short, or needs what transformers does not read.
    """
    from gguf import GGUFReader, GGUFValueType

    try:
        reader = GGUFReader(file)
    except Exception as error:  # numpy's many kinds
        raise ValueError(f"it is no GGUF file, cut short or damaged ({first_line(error)[:70]})") from error
    about = {
        name: field.contents()
        for name, field in reader.fields.items()
        if field.types[:1] != [GGUFValueType.ARRAY] or name in (*LISTS, SUPPRESSED)
    }
    if about.get("tokenizer.ggml.model") == "llama":  # what llama.cpp takes where a file of pieces does not say
        default = {"bos": 1, "eos": 2, "unknown": 0}
        about = {f"tokenizer.ggml.{name}_token_id": number for name, number in default.items()} | about
    if about.get("split.count", 1) > 1:
        raise ValueError(
            f"it is one of {about['split.count']} parts: join them with llama.cpp's "
            "`llama-gguf-split --merge FIRST_PART WHOLE.gguf`"
        )
    scaled = [tensor.name for tensor in reader.tensors if tensor.name.startswith(("rope_freqs", "rope_factors"))]
    scaling = f"{about.get('general.architecture')}.rope.scaling"
    kind = about.get(f"{scaling}.type", "none")  # without a type llama.cpp scales by the factor
    if scaled or kind != "none" or about.get(f"{scaling}.factor", 1) not in (0, 1):
        raise ValueError(
            "it scales its rotary positions, and transformers leaves that out of a GGUF file: "
            "give the folder or hub id of the original model"
        )
    return about


def _stock(file: Path, about: dict[str, Any]) -> PreTrainedModel:
    """The model in a GGUF file, of its own class and in single precision, as if it had never been in one.

    Raises:
        ValueError: tensors are missing, or see `_check`.
    """
    config, settings = _settings(file, about)
    read, info = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, output_loading_info=True
    )
    if wrong := sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]])):
        raise ValueError(f"tensors are missing in it or have another shape: {', '.join(wrong[:5])}")
    # transformers saves no model that says that it comes from a GGUF file; this one has its tensors and nothing else
    with torch.device("meta"):
        model: PreTrainedModel = type(read)(config)
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = settings
    return model


def _settings(file: Path, about: Mapping[str, Any]) -> tuple[PreTrainedConfig, GenerationConfig]:
    """What a GGUF file says of its network and of the tokens that begin and end an answer.

    Raises:
        ValueError: see `_check`.
    """
    found, architecture = AutoConfig.from_pretrained(file.parent, gguf_file=file.name), about["general.architecture"]
    fields = found.to_dict()
    for name in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        fields.pop(name, None)
    bos, eos, eot, eom, pad = (
        about.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "eot", "eom", "padding")
    )
    more = found.eos_token_id if isinstance(found.eos_token_id, list) else []  # Gemma 4's, which no header says
    ends = sorted({end for end in (eos, eot, eom, *more) if end is not None})
    tokens = {
        "bos_token_id": bos,
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
        "pad_token_id": pad if pad is not None else eos,
    }
    if window := about.get(f"{architecture}.attention.sliding_window"):
        fields["sliding_window"] = window  # transformers leaves it out of Phi-3's
    theta, rope = about.get(f"{architecture}.rope.freq_base"), fields.get("rope_parameters") or {}
    if theta and "rope_theta" in rope:
        fields["rope_parameters"] = rope | {"rope_theta": theta}  # and this one out of StarCoder2's
    config = type(found).from_dict(fields | tokens)
    _check(about, config)
    return config, GenerationConfig(**tokens, suppress_tokens=about.get(SUPPRESSED))


def _check(about: Mapping[str, Any], config: PreTrainedConfig) -> None:
    """Compare every field that the file has of its architecture with what `config` makes of it.

    Raises:
        ValueError: transformers reads a field otherwise than it is meant, or not at all.
    """
    values = config.to_dict()
    ropes = values.get("rope_parameters") or {}
    ropes = [ropes, *(part for part in ropes.values() if isinstance(part, dict))]  # one for each kind of layer
    heads = getattr(config, "num_attention_heads", None) or 1
    width = [values.get("head_dim") or values.get("hidden_size", 0) // heads, values.get("global_head_dim")]
    parts = [rope.get("partial_rotary_factor") or values.get("partial_rotary_factor") or 1 for rope in ropes]
    turned = [int(size * part) for size in width if size for part in parts]
    epsilons = [value for name, value in values.items() if re.fullmatch("(rms_|layer_)?norm_(eps|epsilon)", name)]
    meant: dict[str, list[Any]] = {
        "rope.freq_base": [rope.get("rope_theta") for rope in ropes],
        "rope.dimension_count": turned,
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.layer_norm_epsilon": epsilons,
        "attention.layer_norm_rms_epsilon": epsilons,
        "attention.shared_kv_layers": [values.get("num_kv_shared_layers")],
        "expert_used_count": [values.get("num_experts_per_tok")],
        "attn_logit_softcapping": [values.get("attn_logit_softcapping")],
        "final_logit_softcapping": [values.get("final_logit_softcapping")],
        "attention.sliding_window": [values.get("sliding_window")],
    }
    for key, value in about.items():
        name = key.removeprefix(f"{about['general.architecture']}.").removesuffix("_swa")
        is_off = value == 0 and not isinstance(value, bool)
        if name == key or is_off or _SHOWN.fullmatch(name):
            continue
        if not any(known is not None and math.isclose(value, known, rel_tol=1e-4) for known in meant.get(name, ())):
            shown = round(value, 6) if isinstance(value, float) else value
            raise ValueError(
                f"it says {key} = {shown}, which transformers reads otherwise or not at all: "
                "give the folder or hub id of the original model"
            )
