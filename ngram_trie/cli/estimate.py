"""What a run would do and take, before weights are loaded: `dry_run=true`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

from ngram_trie.bench import models, schemas
from ngram_trie.bench.config import budgeted, build_all
from ngram_trie.bench.live import Live
from ngram_trie.bench.measure import Engine
from ngram_trie.bench.room import method_gb
from ngram_trie.bench.schemas import Model, Replay, Run
from ngram_trie.drafter import Drafter
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import ON_HUB, cache_folder, relative
from ngram_trie.targets import choose
from ngram_trie.targets.gguf import conversion, gguf_file
from ngram_trie.targets.hub import cached, cached_file
from ngram_trie.targets.load import load_config

#: Gigabytes of the weights that methods of the paper's tables bring along; their pages list them.
WEIGHTS_GB = {
    "double7/vicuna-68m": 0.2,
    "JackFram/llama-68m": 0.2,
    "FasterDecoding/medusa-vicuna-7b-v1.3": 1.5,
    "ankner/hydra-vicuna-7b-v1.3": 3.0,
    "AntMan/vicuna-v1.3-7b-space": 13.5,
}
TITLE = "Plan (nothing is run):"
#: Bytes of a record, as runs of some hundred tokens an answer write them; tables and figures beside them.
RECORD_BYTES, TABLES_BYTES = 4000, 2_000_000


def before_conversion(run: Run) -> str:
    """The plan of a run whose GGUF file is not here or not converted, from which all else follows; "" of others.

    Raises:
        ConfigError: wrong methods or data sets.
    """
    path, size = models.source(run.model)[0], run.model.download_gb
    if isinstance(run.engine, Replay):
        return ""
    named = None if Path(path).exists() else ON_HUB.fullmatch(path)
    file = cached_file(*named.groups()) if named else gguf_file(path)
    if conversion(file).exists() if file else not named:
        return ""
    methods = build_all(budgeted(run), "method")
    datasets = build_all(run, "dataset") if isinstance(run.engine, schemas.Live) else {}
    fetched = "" if file else f"downloaded{f' (about {size:.1f} GB)' if size else ''} and "
    plan = [
        TITLE,
        f"methods: {', '.join(methods)}",
        f"data sets: {', '.join(datasets)}",
        f"model: {models.name(run.model)}, a GGUF file that is first {fetched}converted, once, to 4 bytes a weight",
        f"conversion: {cache_folder()}; prompts, memory and disk are known once any run has made it",
    ]
    return "\n  ".join(plan)


def estimate(engine: Engine, run: Run, folder: Path) -> str:
    """The plan in lines: what is asked, memory, disk."""
    return "\n".join([TITLE, *(f"  {line}" for line in _lines(engine, run, folder))])


def _lines(engine: Engine, run: Run, folder: Path) -> Iterator[str]:
    answers = len(engine.keys)
    yield f"methods: {', '.join(engine.names)}"
    yield (
        f"answers: {answers} = {len(engine.items)} prompts ({', '.join(engine.datasets)}) x {len(engine.names)} "
        f"methods x {engine.repeats} repeats x {engine.sessions} sessions"
    )
    written = RECORD_BYTES * answers + TABLES_BYTES
    if isinstance(engine, Live):
        device, backend = engine.manifest.config["model"]["device"], engine.manifest.config["engine"]["backend"]
        yield f"model: {engine.model}, {run.model.dtype} on {device}, backend {backend}"
        weights = weight_gb(run.model)
        yield f"memory: {_memory(engine, run, weights, torch.device(device), 2 if backend == 'cpu' else 1)}"
        if fetched := _fetched(engine, run.model, weights):
            yield fetched
    free = shutil.disk_usage(next(part for part in (folder, *folder.parents) if part.exists())).free
    yield f"disk: {written / 1e9:.2f} GB to write, {free / 1e9:.0f} GB are free"
    yield f"results: {relative(str(folder.absolute()))}"


def weight_gb(model: Model) -> float:
    """Of the run's weights, in its dtype."""
    size: int = getattr(torch, model.dtype).itemsize
    return choose.weight_bytes(load_config(*models.source(model))) / 4 * size / 1e9


def _memory(engine: Live, run: Run, weights: float, device: torch.device, copies: int) -> str:
    network = load_config(*models.source(run.model)).get_text_config()
    heads = getattr(network, "num_key_value_heads", None) or network.num_attention_heads
    width = getattr(network, "head_dim", None) or network.hidden_size // network.num_attention_heads
    size: int = getattr(torch, run.model.dtype).itemsize
    longest = max((len(p.ids) for p in engine.items.values() if isinstance(p, Prompt)), default=0)
    # on a CPU what is not written takes no memory
    length = engine.context_limit if device.type == "cuda" else longest + run.measure.max_new_tokens
    length = min(engine.context_limit, length) + run.live.max_draft + 1
    cache = 2 * network.num_hidden_layers * heads * width * size * length / 1e9
    needed = weights * copies + cache
    own = {name: gb for name, method in engine.methods.items() if (gb := _method_gb(method))}
    needed += sum(own.values())
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    short = "; NOT ENOUGH" if needed > free / 1e9 else ""
    parts = [f"weights {weights:.1f} GB per copy", f"cache {cache:.2f} GB"]
    parts += [f"{name} {gb:.1f} GB" for name, gb in own.items()]
    return f"about {needed:.1f} GB ({', '.join(parts)}), {free / 1e9:.0f} GB free{short}"


def _method_gb(method: object) -> float:
    """Of the weights that it brings along: of those that are here, or what they are known to take."""
    known = method.weights() if isinstance(method, Drafter) else {}
    return method_gb(method) or sum(WEIGHTS_GB.get(path, 0.0) for path in known)


def _fetched(engine: Live, model: Model, weights: float) -> str:
    """What the hub would be asked for; "" where everything is a file or a folder, or in the hub's cache."""
    path, revision = models.source(model)
    asked: dict[str, tuple[str | None, float]] = {}
    if not gguf_file(path):
        asked[path] = revision, model.download_gb or weights
    for method in engine.methods.values():
        for own, its in method.weights().items() if isinstance(method, Drafter) else ():
            asked[own] = (its, WEIGHTS_GB.get(own, 0.0))
    listed = [
        f"{path}, about {size:.1f} GB" if size else path
        for path, (revision, size) in asked.items()
        if not Path(path).exists() and not cached(path, revision)
    ]
    return f"download: {'; '.join(listed)}" if listed else ""
