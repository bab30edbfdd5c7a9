"""Ways of drafting in vLLM, side by side: the same prompts, an engine for each way, turn by turn.

Each way has a process of its own (`ngram_trie.integrations.vllm_worker`) in vLLM's virtual environment, and the ways
take turns lap by lap, so that what else happens on the machine falls on all of them. laps.jsonl holds what was
measured, a line a lap, and is continued after an interruption; everything else is derived from it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ngram_trie import metrics
from ngram_trie.decoding import PhaseSeconds
from ngram_trie.engines.journal import Journal, read_journal
from ngram_trie.files import PROJECT, write_atomically
from ngram_trie.prompt import Prompt
from ngram_trie.records import Lossless, PromptRecord
from ngram_trie.versus import ACCEPT_LENGTH, SPEEDUP, versus

NONE = "none"
LAPS = "laps.jsonl"
#: Most tokens of a draft, for every way.
NUM_DRAFT = 6


def _ours(method: str) -> dict[str, Any]:
    model = f"ngram_trie.integrations.vllm.{method}"
    return {"speculative": {"method": "custom_class", "model": model, "num_speculative_tokens": NUM_DRAFT}}


#: Questions come again, and nothing may be drafted from an answer to itself: no answers are kept.
_SUFFIX = {
    "speculative": {
        "method": "suffix", "num_speculative_tokens": NUM_DRAFT, "suffix_decoding_max_cached_requests": 0,
    }
}  # fmt: skip
#: What a way's engine is made with. "suffix" needs arctic-inference in vLLM's environment.
WAYS: Mapping[str, Mapping[str, Any]] = {
    NONE: {},
    "ngram": {
        "speculative": {
            "method": "ngram", "num_speculative_tokens": NUM_DRAFT, "prompt_lookup_min": 2, "prompt_lookup_max": 5,
        }
    },
    "suffix": _SUFFIX,
    "suffix, ours": _SUFFIX | {"ours_for_suffix": True},
    "blend": _ours("blend"),
    "ngram_trie_output": _ours("ngram_trie_output"),
}  # fmt: skip


@dataclass(frozen=True)
class Lap:
    """Prompts that are asked together.

    Attributes:
        name: "batch 4", "rate 0.5", "identity".
        concurrent, rate: as in `Engine.lap`.
        prompts: indices.
        num_tokens: of each answer.
        round: from 0.
    """

    name: str
    concurrent: int
    rate: float | None
    prompts: Sequence[int]
    num_tokens: int
    round: int


def plan(
    num_prompts: int, per_lap: int, num_tokens: int, batches: Sequence[int], rates: Sequence[float], rounds: int
) -> Iterator[Lap]:
    """Laps of all rounds: every prompt once, for identity; then the first ones at each batch size and rate."""
    yield Lap("identity", max(batches), None, range(num_prompts), num_tokens // 2, 0)
    for turn in range(rounds):
        for batch in batches:
            yield Lap(f"batch {batch}", batch, None, range(min(num_prompts, max(per_lap, batch))), num_tokens, turn)
        for rate in rates:
            yield Lap(f"rate {rate:g}", max(batches), rate, range(min(num_prompts, per_lap)), num_tokens, turn)


class Worker:
    """An engine in a process.

    Raises:
        ValueError: it did not start; one line.
    """

    def __init__(self, python: Path, log: Path, **options: Any) -> None:
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        command = [str(python), "-m", "ngram_trie.integrations.vllm_worker", json.dumps(options)]
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True
            )
        about = self._read()
        if "error" in about:
            raise ValueError(about["error"])
        self.versions: dict[str, str] = about["versions"]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"error": "the engine ended without a word; its log says more"}

    def lap(self, prompts: Sequence[Sequence[int]], **options: Any) -> dict[str, Any]:
        """
        Raises:
            ValueError: the engine ended; one line.
        """
        assert self._process.stdin
        print(json.dumps({"prompts": prompts, **options}), file=self._process.stdin, flush=True)
        found = self._read()
        if "error" in found:
            raise ValueError(found["error"])
        return found

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def run(journal: Journal, python: Path, model: str, prompts: Sequence[Prompt], laps: Sequence[Lap]) -> dict[str, str]:
    """Measure what the journal does not have yet; returns the versions, and why ways are left out."""
    folder = journal.path.parent
    done = {(row["way"], row["lap"], row["round"]) for row in journal.rows}
    workers: dict[str, Worker] = {}
    notes: dict[str, str] = {}
    try:
        for way, options in WAYS.items():
            print(f"starting vLLM: {way}", flush=True)
            try:
                log = folder / f"engine_{way.replace(', ', '_')}.log"
                workers[way] = Worker(python, log, model=model, **options)
                notes |= workers[way].versions
                # what compiles does so now
                workers[way].lap([prompts[0].ids.tolist()] * 2, max_tokens=24, concurrent=2)
            except ValueError as error:
                workers.pop(way, None)
                notes[f"not run: {way}"] = str(error)
                print(f"not run: {way}: {error}", flush=True)
        if NONE not in workers:
            raise ValueError(notes[f"not run: {NONE}"])
        for number, lap in enumerate(laps):
            order = list(workers)
            order = order[number % len(order) :] + order[: number % len(order)]
            for way in order:
                if (way, lap.name, lap.round) in done:
                    continue
                asked = [prompts[index].ids.tolist() for index in lap.prompts]
                found = workers[way].lap(asked, max_tokens=lap.num_tokens, concurrent=lap.concurrent, rate=lap.rate)
                journal.add({"way": way, "lap": lap.name, "round": lap.round, "prompts": list(lap.prompts), **found})
                print(f"{lap.name}, round {lap.round}, {way}: {found['seconds']:.1f} s", flush=True)
    finally:
        for worker in workers.values():
            worker.close()
    return notes


def table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row for each lap's name and way, all rounds together.

    Columns:
        tokens_per_second: of the whole server. ratio, low, high: answers' speed, tokens over seconds, against no
            drafts, with its 95% interval (`ngram_trie.versus`).
        ttft_ms: time to first token, median. tpot_p50_ms, tpot_p99_ms: time per further token, over answers.
        accept_length: tokens emitted a step, over all steps. vllm_accept_length: 1 + accepted / drafts, over the steps
            with a draft, as vLLM counts.
        accepted_1 and so on: of the drafts, the share whose first (second, ...) token was accepted.
        answers, different: how many were compared with those without drafts, and how many are not the same.
    """
    compared = _versus(rows)
    plain = {
        (row["lap"], row["round"]): [answer["ids"] for answer in row["answers"]] for row in rows if row["way"] == NONE
    }
    found = []
    for lap in dict.fromkeys(row["lap"] for row in rows):
        for way in WAYS:
            ours = [row for row in rows if row["lap"] == lap and row["way"] == way]
            if not ours:
                continue
            answers = [answer for row in ours for answer in row["answers"]]
            per_token = [1e3 * (a["at"][-1] - a["at"][0]) / (len(a["ids"]) - 1) for a in answers if len(a["ids"]) > 1]
            steps = [emitted for a in answers for emitted in a["emitted"][1:]]
            pairs = [
                answer["ids"] == other
                for row in ours
                for answer, other in zip(row["answers"], plain.get((lap, row["round"]), []), strict=False)
            ]
            drafts = sum(row["drafts"] for row in ours)
            places = [np.array(row["per_position"]) for row in ours if row["per_position"]]
            found.append(
                {
                    "lap": lap,
                    "way": way,
                    "tokens_per_second": sum(len(a["ids"]) for a in answers) / sum(row["seconds"] for row in ours),
                    **compared.get((lap, way), {}),
                    "ttft_ms": 1e3 * float(np.median([a["at"][0] for a in answers])),
                    "tpot_p50_ms": float(np.percentile(per_token, 50)) if per_token else np.nan,
                    "tpot_p99_ms": float(np.percentile(per_token, 99)) if per_token else np.nan,
                    "accept_length": float(np.mean(steps)) if steps else np.nan,
                    "vllm_accept_length": 1 + metrics.ratio_of(sum(row["accepted"] for row in ours), drafts),
                    **{
                        f"accepted_{place + 1}": metrics.ratio_of(float(count), drafts)
                        for place, count in enumerate(np.sum(places, axis=0) if places else ())
                    },
                    "answers": len(pairs),
                    "different": pairs.count(False),
                }
            )
    return pd.DataFrame(found)


def _records(rows: Sequence[Mapping[str, Any]]) -> Iterator[PromptRecord]:
    """Each answer as the project's record of one, its lap as the data set."""
    for row in rows:
        for index, answer in zip(row["prompts"], row["answers"], strict=True):
            yield PromptRecord(
                run="",
                method=row["way"],
                model="",
                dataset=row["lap"],
                question_id=str(index),
                turn=0,
                repeat=0,
                prompt_hash="",
                num_prompt_tokens=0,
                state="cold",
                kind="drafter",
                output_ids=answer["ids"],
                # vLLM's first step emits one token: the prompt's own
                accept_lengths=answer["emitted"][1:],
                seconds=PhaseSeconds(total=answer["at"][-1], prefill=answer["at"][0]),
                lossless=Lossless("identical"),
                baseline=NONE,
                session=row["round"],
            )


def _pairs(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Every way against every other, by lap."""
    frame = metrics.to_frame(_records(rows))
    found = versus(frame, [SPEEDUP, ACCEPT_LENGTH], [way for way in WAYS if way in set(frame.method)])
    return found[found.dataset.isin([row["lap"] for row in rows])]


def _versus(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, float]]:
    """By lap and way: speed against no drafts, and its interval."""
    pairs = _pairs(rows)
    pairs = pairs[(pairs.measure == SPEEDUP) & (pairs.a == NONE)]
    return {
        (pair.dataset, pair.b): {"ratio": 1 / pair.ratio, "low": 1 / pair.high, "high": 1 / pair.low}
        for pair in pairs.itertuples()
    }


def write(folder: Path) -> str:
    """Write table.csv, ways.md and versus.csv from the laps; returns the table as text."""
    rows = read_journal(folder / LAPS)
    frame = table(rows)
    for name, each in (("table", frame), ("versus", _pairs(rows))):
        each.to_csv(folder / f"{name}.csv", index=False, float_format="%.5g", lineterminator="\n")
    shown = frame.map(lambda value: f"{value:.2f}" if isinstance(value, float) else str(value))
    lines = [shown.columns, ["---"] * len(shown.columns), *shown.to_numpy().tolist()]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    write_atomically(folder / "ways.md", text + "\n")
    return text
