"""Measure what steps cost on this machine, with every backend that runs the model here (make bench-steps).

  python -m scripts.bench_steps model=tiny output=FOLDER
  python -m scripts.bench_steps model=smollm2_135m engine.max_draft=31 model.context_limit=2048 measure.repeats=1
  python -m scripts.bench_steps model=vicuna_7b model.weights=random model.context_limit=8192

For a large model measure less, as the second command does. Random weights cost what a model's own do.

Writes steps.csv (milliseconds of a step by backend, tokens and cached tokens; relative to that backend's plain step and
to reading all weights once, in the same rounds), curve.json and curve.csv (the steps and prefills of
engine.backend, for cost=measured) and a manifest. On a GPU, `device_ms` is the forward alone, without the host.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from transformers import PreTrainedModel

from ngram_trie.bench import config as configuration
from ngram_trie.bench import models
from ngram_trie.bench.cost import CostCurve
from ngram_trie.bench.prepare import load_target, on_this_machine
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.bench.records import seal
from ngram_trie.bench.schemas import Run
from ngram_trie.bench.step_costs import Steps, measure_steps, room_for
from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.store.files import content_hash, write_atomically
from ngram_trie.targets.choose import FAST, backend_refusal, network_for
from ngram_trie.targets.cuda_graph import ATTENTION, GraphNetwork
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.network import Network
from ngram_trie.targets.plan import Plan, plan_of

NODES = (0, 1, 3, 7, 11, 15, 23, 31, 47, 63, 95, 127, 191, 255)
CONTEXTS = (64, 256, 512, 1024, 2048, 4096, 8192)
#: Rounds for each of `measure.repeats`, and steps at every point in a round.
ROUNDS, STEPS = 4, 6


def networks(model: PreTrainedModel, limit: int) -> Iterator[tuple[str, Network]]:
    """Each backend that runs the model on its device, by name; on a GPU all ways to attend, beside the one that
    `cuda_graph` takes.
    """
    for backend in ("stock", *FAST):
        is_elsewhere = backend == "cuda_graph" and model.device.type != "cuda"
        if backend == "stock" or not (
            is_elsewhere or backend_refusal(backend, model.config, model.device, model.dtype)
        ):
            yield backend, network_for(model, limit, backend)
    plan = plan_of(model.config)
    if isinstance(plan, Plan) and model.device.type == "cuda":
        for compiled, attention in product((False, True), ATTENTION):
            name = f"cuda_graph, {attention}{', compiled' if compiled else ''}"
            yield name, GraphNetwork(model, plan, attention, compiled, spare=0)


def points(target: TargetModel) -> tuple[list[int], list[int]]:
    """The sizes of steps, in tokens, and the cached tokens that the target has room for."""
    sizes = sorted({nodes + 1 for nodes in NODES if nodes <= target.max_draft} | {target.max_draft + 1})
    longest = target.context_limit - room_for(sizes[-1] - 1)
    return sizes, sorted({length for length in CONTEXTS if length < longest} | {min(longest, CONTEXTS[-1])})


def measured(targets: Mapping[str, TargetModel], rounds: int, steps: int = STEPS) -> dict[str, Steps]:
    """The steps of each target: medians over rounds in which they take turns, in an order that is drawn anew."""
    sizes, contexts = points(next(iter(targets.values())))
    laps: dict[str, list[Steps]] = {name: [] for name in targets}
    rng = np.random.default_rng(0)
    for turn in range(rounds):
        for name in rng.permutation(list(targets)):
            title = f"round {turn + 1} of {rounds}, {name}"
            laps[name].append(measure_steps(targets[name], sizes, contexts, 1, steps, title))
            gc.collect()
    fields = ("wall", "device", "prefill", "reading")
    return {
        name: Steps(sizes, contexts, *(np.median([getattr(lap, field) for lap in each], 0) for field in fields))
        for name, each in laps.items()
    }


def table(found: Mapping[str, Steps]) -> pd.DataFrame:
    """One row for each backend, context and size."""
    rows = [
        {
            "backend": name,
            "context": context,
            "tokens": size,
            "ms": 1e3 * steps.wall[row, column],
            "device_ms": 1e3 * steps.device[row, column],
            "of_plain": steps.wall[row, column] / steps.wall[0, column],
            "of_reading": steps.wall[row, column] / steps.reading,
        }
        for name, steps in found.items()
        for column, context in enumerate(steps.contexts)
        for row, size in enumerate(steps.sizes)
    ]
    return pd.DataFrame(rows).dropna(axis=1, how="all")


def beside(frame: pd.DataFrame, sizes: Sequence[int], baseline: str = "stock") -> pd.DataFrame:
    """How many times as fast as the baseline's each backend's steps of these sizes are, by context and backend."""
    wide = frame[frame.tokens.isin(sizes)].pivot(index=["context", "backend"], columns="tokens", values="ms")
    return wide.xs(baseline, level="backend").reindex(wide.index, level="context") / wide


def bench(run: Run) -> Path:
    """Load, measure, write; returns the folder."""
    configuration.check_beside(run, "bench_steps")
    run = on_this_machine(run)
    rounds = run.measure.repeats * ROUNDS
    folder = Path(run.output or configuration.PROJECT / "results" / "local" / "calibration")
    resolved = configuration.resolve(run)
    manifest = make_manifest(
        {"model": resolved["model"], "engine": resolved["engine"]},
        models.identity(run.model),
        content_hash([NODES, CONTEXTS, rounds, STEPS]),
        run.model.device,
    )
    own = load_target(run)
    limit, max_draft = own.context_limit, own.max_draft
    targets = {name: TargetModel(own.model, max_draft, limit, net) for name, net in networks(own.model, limit)}
    targets[run.live.backend] = own
    frame = table(found := measured(targets, rounds))
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "steps.csv", frame.to_csv(index=False, float_format="%.4g"))
    name = f"{models.name(run.model)} in {run.model.dtype} on {manifest.device}"
    curve: CostCurve = found[run.live.backend].curve(name)
    curve.write(folder)
    manifest.write(folder / "manifest.json")
    seal(folder)
    print(frame.pivot(index=["backend", "tokens"], columns="context", values="of_plain").round(2).to_string())
    print(
        f"\nTime of a step, relative to a plain step of the same backend, by tokens and cached tokens.\n{curve.name}\n"
    )
    print(beside(frame, found["stock"].sizes).round(2).to_string())
    print(f"\nSpeed of a step, relative to stock.\nwritten: {folder}")
    return folder


if __name__ == "__main__":
    hydra_app(bench, __doc__, interrupted="without manifest.json the folder is not complete")
