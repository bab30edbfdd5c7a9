"""What an evaluation costs on a cluster, from measured seconds, and what is lost when nodes are (docs/clusters.md).

A simulation of a schedule: shards go to whichever worker is free first. A lost node loses the answer that was being
measured; its shard waits, loads the model again and goes on. Nothing else is lost, which `make test-cluster` tests.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from ngram_trie.bench.provenance import make_manifest
from ngram_trie.bench.records import read_records
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import Trace, answers
from ngram_trie.cli.app import run
from ngram_trie.cli.recordings import replayable
from ngram_trie.report.run_folder import save_csv
from ngram_trie.store.files import PROJECT

MEASURED = PROJECT / "results" / "speed" / "vicuna-7b-h100" / "teacher_forced" / "records.jsonl.gz"
#: Spec-Bench has 480 questions, 80 of them of two turns. Billions of weights of the models, which a plain step reads.
TURNS, METHODS, MODELS = 560, 38, (7, 7, 7, 8, 13, 4)
REPLAYED, CORES, GPUS, REPLAY_METHODS = 1_000_000, 100, 8, ("ngram_trie", "suffix", "blend")
#: Seconds to load a model, and until a lost shard begins again (SLURM's own default for a task that is requeued).
LOAD, REQUEUE = 60.0, 120.0
PER_WORKER, LOSSES_PER_HOUR, SEED, DRAWS = (1, 4, 16), (0, 1), 0, 20


def schedule(
    shards: Sequence[NDArray[np.float64]], workers: int, losses_per_hour: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Hours until the last shard has ended, and hours of work that were lost.

    Args:
        shards: seconds of each answer of each shard.
        losses_per_hour: of the whole cluster, at random times; each hits one worker.
    """
    free = [0.0] * workers
    waiting = [(0.0, number, 0) for number in range(len(shards))]
    rate = losses_per_hour / 3600 / workers
    lost = end = 0.0
    while waiting:
        ready, number, begun = heapq.heappop(waiting)
        start = max(heapq.heappop(free), ready)
        ends = start + LOAD + np.cumsum(shards[number][begun:])
        loss = start + (rng.exponential(1 / rate) if rate else np.inf)
        finish = float(ends[-1])
        if loss < finish:
            done = int(np.searchsorted(ends, loss))
            heapq.heappush(waiting, (loss + REQUEUE, number, begun + done))
            lost += loss - max(start, float(ends[done - 1]) if done else start)
            finish = loss
        else:
            end = max(end, finish)
        heapq.heappush(free, finish)
    return end / 3600, lost / 3600


def simulated(name: str, seconds: NDArray[np.float64], answers: int, workers: int) -> list[dict[str, object]]:
    """One row for each number of shards and of losses: means over `DRAWS` draws of answers from `seconds`."""
    rows: list[dict[str, object]] = []
    for per_worker in PER_WORKER:
        for losses in LOSSES_PER_HOUR:
            rng = np.random.default_rng(SEED)
            # questions are dealt out in turn, so shards are of one size in questions and of several in seconds
            draws = (np.array_split(rng.choice(seconds, answers), per_worker * workers) for _ in range(DRAWS))
            found = np.array([[*schedule(part, workers, losses, rng), sum(map(np.sum, part)) / 3600] for part in draws])
            hours, lost, work = found.mean(axis=0)
            ideal = work / workers
            about = {"evaluation": name, "workers": workers, "shards": per_worker * workers, "losses_per_hour": losses}
            rows.append(about | {"hours": hours, "ideal": ideal, "lost_minutes": 60 * lost})
    return rows


def replay_seconds(traces: Sequence[Trace]) -> NDArray[np.float64]:
    """Seconds of one core to replay each answer, the mean of `REPLAY_METHODS`."""
    found = []
    for name in REPLAY_METHODS:
        drafter = replayable(name, Path())
        replay(drafter, traces[0])  # compiled code is loaded at its first call
        for trace in traces:
            started = perf_counter()
            replay(drafter, trace)
            found.append(perf_counter() - started)
    return np.mean(np.reshape(found, (len(REPLAY_METHODS), -1)), axis=0)


def main(
    traces: Annotated[Path, typer.Option(help="recorded answers to time the replay with")],
    output: Annotated[Path, typer.Option(help="folder of the table")] = PROJECT / "results" / "local" / "scale",
) -> None:
    """Hours of two evaluations: Spec-Bench with 38 methods on 6 models, and a replay of a million answers.

    Seconds of a live answer are those of plain decoding on an H100 (results/speed/vicuna-7b-h100), in proportion to a
    model's weights, and the same for every method: most are faster, none much slower.
    """
    plain = [r.seconds.total for r in read_records(MEASURED) if r.method == "vanilla" and r.seconds]
    live = np.concatenate([np.array(plain) * billions / 7 for billions in MODELS])
    replayed = replay_seconds(list(answers(traces)))
    table = pd.DataFrame([
        *simulated("Spec-Bench live", live, TURNS * METHODS * len(MODELS), GPUS),
        *simulated("replay, one method", replayed, REPLAYED, CORES),
    ])  # fmt: skip
    output.mkdir(parents=True, exist_ok=True)
    save_csv(table, output / "scale.csv")
    rates = {"live_seconds": float(live.mean()), "replay_seconds": float(replayed.mean()), "answers": len(replayed)}
    make_manifest(rates, "none", traces.name).write(output / "manifest.json")
    print(pd.DataFrame([rates]).to_string(index=False), table.round(2).to_string(index=False), sep="\n")


if __name__ == "__main__":
    run(main)
