"""`run MODEL DATASET --methods trie,pld,blend --limit 10`: a measurement in few words, written out as overrides.

    run FILE.gguf prompts.jsonl --limit 10
      = run model=local model.path=FILE.gguf dataset=file dataset.path=prompts.jsonl dataset.limit=10 ...

Overrides may stand beside the words and options, and win over what these fill in.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ngram_trie.methods import ConfigError, choices, near, settings_of, sizes, text_of
from ngram_trie.store.files import ON_HUB, PACKAGED

#: Other names of methods, beside those of configs/method.
ALIASES = {"trie": "ngram_trie", "prompt_lookup": "pld", "generate": "hf_generate", "suffix_decoding": "suffix"}
DEFAULT_METHODS = "trie,pld,blend"
#: Most drafted nodes a step under budget=equal by default: what a CPU, and what a GPU verifies at little cost (with the
#: root they fill a graph of 32).
CPU_NODES, GPU_NODES = 8, 31
#: What a short measurement differs in from configs/measure: each answer once, each prompt read once for all methods.
BRIEF = {"measure.repeats": "1", "measure.share_prefill": "true", "measure.max_new_tokens": "128"}


@dataclass(frozen=True)
class Option:
    """An option with a value.

    Attributes:
        help: for the help text.
        key: the setting that it writes, where it is one alone.
    """

    help: str
    key: str = ""


OPTIONS = {
    "--methods": Option(f"names with commas (default {DEFAULT_METHODS}); trie means ngram_trie"),
    "--limit": Option("only the first N prompts of each data set"),
    "--budget": Option("nodes per draft: equal, published, or auto (learns what pays)", "budget"),
    "--num-nodes": Option(f"with --budget equal: most nodes per step ({CPU_NODES} on a CPU, {GPU_NODES} on a GPU)"),
    "--max-new-tokens": Option("longest answer (128)", "measure.max_new_tokens"),
    "--repeats": Option("how often each prompt is answered (1)", "measure.repeats"),
    "--output": Option("the folder of results", "output"),
    "--device": Option("auto, cpu or cuda", "model.device"),
    "--dtype": Option("float32, bfloat16 or float16", "model.dtype"),
}
FLAGS = {
    "--dry-run": Option("print what would be done: answers, memory, disk", "dry_run"),
    "--samples": Option("also write samples.md: the answers as text", "samples"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    for name, option in OPTIONS.items():
        parser.add_argument(name, help=option.help)
    for name, option in FLAGS.items():
        parser.add_argument(name, help=option.help, action="store_true")


def values(options: argparse.Namespace) -> dict[str, str | bool | None]:
    """What was given to the options and flags, by their names."""
    return {name: getattr(options, name[2:].replace("-", "_")) for name in OPTIONS | FLAGS}


def written_out(words: Sequence[str], options: Mapping[str, str | bool | None]) -> dict[str, str]:
    """The overrides that a command line stands for, each with how it was written there; "" for what was filled in.

    Args:
        words: MODEL and DATASET, where given, and overrides.
        options: values of `OPTIONS` and `FLAGS`, by their names.

    Raises:
        ConfigError: a name that is not there, with the nearest ones; a word too many; options that contradict.
    """
    given = {name: value for name, value in options.items() if value not in (None, False)}
    overrides = [word for word in words if _is_override(word)]
    names = [word for word in words if word not in overrides]
    if len(names) > 2:
        raise ConfigError(f"{names[2]}: one word too many; MODEL and DATASET are {names[0]} and {names[1]}")
    if names and len(names) < 2:
        raise ConfigError(
            f"{names[0]}: give MODEL and DATASET, such as smollm2_135m docs_rag, or overrides FIELD=VALUE"
        )
    overrides = _own_model(overrides)
    taken = {override.lstrip("+~").partition("=")[0] for override in overrides}
    made: dict[str, tuple[str, str]] = {}  # by key the override, and how it was written

    def make(lines: Iterable[str], written: str) -> None:
        for line in lines:
            key = line.lstrip("+").partition("=")[0]
            if written and key in taken:
                raise ConfigError(f"{written} and {key}: they are one setting; give one of them")
            made[key] = line, written  # an option wins over what is filled in

    limit = str(given.get("--limit", ""))
    if names:
        if wrong := taken & {"model", "dataset", "experiment"}:
            raise ConfigError(f"{min(wrong)}: MODEL and DATASET are given as words; give the words or this setting")
        make(model_overrides(names[0]), names[0])
        for line in dataset_overrides(names[1], limit):
            make([line], f"--limit {limit}" if ".limit=" in line else names[1])
        make([f"{key}={value}" for key, value in BRIEF.items()], "")
    elif limit:
        make([f"dataset.limit={limit}"], f"--limit {limit}")
    if "--methods" in given or (names and not taken & {"method", "grid"}):
        if "experiment" in taken:
            raise ConfigError("--methods: an experiment has its own; ~methods.NAME leaves one of them out")
        written = f"--methods {given['--methods']}" if "--methods" in given else ""
        make(method_overrides(str(given.get("--methods", DEFAULT_METHODS))), written)
    is_open = bool(names) and not taken & {"budget", "grid", "budget.num_nodes"}
    sized = _sized(overrides, made, taken) if is_open and not {"--budget", "--num-nodes"} & given.keys() else []
    make([f"+{owner}.budget=published" for owner in sized if owner != "method"], "")
    for line, name in _budget(given, is_open and "method" not in sized):
        make([line], f"{name} {given[name]}" if name in given else "")
    for name, option in (OPTIONS | FLAGS).items():
        if option.key and name in given and name != "--budget":
            value = "true" if given[name] is True else quoted(str(given[name]))
            make([f"{option.key}={value}"], name if given[name] is True else f"{name} {given[name]}")
    lines = {line: written for key, (line, written) in made.items() if key not in taken}
    return lines | {override: override for override in overrides}


def _is_override(word: str) -> bool:
    """Whether a word is a setting; a file may have a = in its name, too."""
    return word.startswith("~") or ("=" in word and not Path(word).expanduser().exists())


def _sized(overrides: Sequence[str], made: Mapping[str, tuple[str, str]], taken: set[str]) -> list[str]:
    """Where a method is given a size of its own ("method", "methods.pld"), which a budget would replace."""
    files, found = choices()["method"], []
    for line in [*overrides, *(line for line, _ in made.values())]:
        group, _, names = line.lstrip("+").partition("=")
        kind, _, owner = group.partition("@")
        for name in names.split(",") if kind == "method" else ():
            fields = sizes(settings_of(files[name]), 1) if name in files else {}
            if any(f"{owner or kind}.{field}" in taken for field in fields):
                found.append(owner or kind)
    return found


def _budget(given: Mapping[str, str | bool], is_filled_in: bool) -> list[tuple[str, str]]:
    """Which budget, and how many nodes, each with its option; of words alone, the same few for all methods."""
    rule, nodes = given.get("--budget"), str(given.get("--num-nodes", ""))
    if nodes and rule not in (None, "equal"):
        raise ConfigError(f"--num-nodes: only for --budget equal, not {rule}")
    if not rule and not nodes and not is_filled_in:
        return []
    if rule not in (None, "equal"):
        return [(f"budget={rule}", "--budget")]
    nodes = nodes or str(_nodes(str(given.get("--device", "auto"))))
    return [("budget=equal", "--budget" if rule else "--num-nodes"), (f"budget.num_nodes={nodes}", "--num-nodes")]


def _nodes(device: str) -> int:
    import torch  # takes seconds

    return GPU_NODES if device != "cpu" and torch.cuda.is_available() else CPU_NODES


def _own_model(overrides: Sequence[str]) -> list[str]:
    """Overrides in which a model of one's own is called by its own name: `model=OWNER/NAME` is a path, and `model.path`
    without a `model` is of no model that ships.
    """
    written: list[str] = []
    for override in overrides:
        key, _, value = override.partition("=")
        path = value.strip("'\"")
        is_path = key == "model" and ("/" in path or path.lower().endswith(".gguf")) and "," not in path
        written += _local(path) if is_path else [override]
    keys = [line.partition("=")[0] for line in written]
    if "model.path" in keys and "model" not in keys and not _has_model(written):
        written.insert(0, "model=local")
    return written


def _has_model(overrides: Sequence[str]) -> bool:
    """Whether an experiment among them has a model of its own, of which `model.path` is then a copy."""
    known = choices()["experiment"]
    named = [known.get(line.removeprefix("experiment=")) for line in overrides if line.startswith("experiment=")]
    return any(file and "override /model:" in text_of(file) for file in named)


def model_overrides(word: str) -> list[str]:
    """A model: a name of configs/model, or its beginning; a folder, a GGUF file or a hub id, of a GGUF file there
    OWNER/NAME/FILE.gguf.

    Raises:
        ConfigError: it is not one of these.
    """
    known = [name for name in choices()["model"] if name != "local"]
    if name := _match(word, known):
        return [f"model={name}"]
    is_hub_id = ON_HUB.fullmatch(word) or (
        re.fullmatch(r"[\w.-]+/[\w.-]+", word) and not word.lower().endswith(".gguf")
    )
    if word.startswith(PACKAGED) or Path(word).expanduser().exists() or is_hub_id:
        return _local(word)
    if "/" in word or word.lower().endswith(".gguf"):
        raise ConfigError(f"MODEL {word}: no such file or folder")
    raise ConfigError(f"MODEL {word}: {near(word, known)}; or a folder, a GGUF file, or a hub id OWNER/NAME")


def _local(path: str) -> list[str]:
    found = Path(path).expanduser()
    return ["model=local", f"model.path={quoted(str(found.absolute()) if found.exists() else path)}"]


def dataset_overrides(words: str, limit: str = "") -> list[str]:
    """Data sets: a JSONL file, or names of configs/dataset with commas.

    Raises:
        ConfigError: a name that is not there, or a data set that knows no limit.
    """
    files = choices()["dataset"]
    known = [name for name in files if name != "file"]
    if Path(words).is_file() or words.endswith((".jsonl", ".json", ".gz")):
        path = Path(words).expanduser()
        if not path.is_file():
            raise ConfigError(f"DATASET {words}: no such file")
        return [
            "dataset=file",
            f"dataset.path={quoted(str(path.absolute()))}",
            *([f"dataset.limit={limit}"] * bool(limit)),
        ]
    made = []
    names = words.split(",")
    for word in names:
        if not (name := _match(word, known)):
            raise ConfigError(f"DATASET {word}: {near(word, known)}; or a JSONL file with `prompt` in each line")
        where = "dataset" if len(names) == 1 else f"datasets.{name}"
        made.append(f"dataset={name}" if len(names) == 1 else f"+dataset@{where}={name}")
        if limit:
            if "limit" not in settings_of(files[name]):
                raise ConfigError(f"--limit: data set {name} has no limit")
            made.append(f"{where}.limit={limit}")
    return made


def method_overrides(words: str) -> list[str]:
    """Methods by names with commas, each in the table under its name in configs/method.

    Raises:
        ConfigError: a name that is not there.
    """
    known = list(choices()["method"])
    names = []
    for word in filter(None, map(str.strip, words.split(","))):
        plain = word.lower().replace("-", "_")
        name = ALIASES.get(plain, plain)
        if name not in known:
            raise ConfigError(f"--methods: {word}: {near(plain, [*known, *ALIASES])}")
        names.append(name)
    if not names:
        raise ConfigError(f"--methods: give names with commas, such as {DEFAULT_METHODS}")
    names = list(dict.fromkeys(names))
    return [f"method={names[0]}"] if len(names) == 1 else [f"+method@methods.{name}={name}" for name in names]


def _match(word: str, known: Sequence[str]) -> str:
    """The name that a word means: itself, or the only one that begins so; else ""."""
    plain = word.lower().replace("-", "_")
    begins = [name for name in known if name.startswith(plain)] if plain else []
    return plain if plain in known else begins[0] if len(begins) == 1 else ""


def quoted(text: str) -> str:
    """A text as Hydra reads it back."""
    if re.fullmatch(r"[\w./:@%?-]+", text):
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
