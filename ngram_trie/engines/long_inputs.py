"""What long prompts and long replays take: time and memory, and how they grow (scripts/bench_long.py)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from ngram_trie.config import ConfigError, choices, make_method
from ngram_trie.drafter import Drafter
from ngram_trie.engines.drafting_costs import bench, synthetic_text
from ngram_trie.engines.traces import Trace
from ngram_trie.files import PROJECT
from ngram_trie.prompt import Prompt
from ngram_trie.tree import IntArray

#: Tokens of a simulated answer, and of each recorded one's prompt.
ANSWER, PROMPT = 128, 1000


def token_drafters() -> list[str]:
    """The methods that draft from tokens alone and need nothing that has to be built before."""
    found = []
    for name in choices()["method"]:
        try:
            method = make_method(name)
        except ConfigError:  # it needs a folder that only a run knows
            continue
        if isinstance(method, Drafter) and method.reads == "tokens" and not method.parts() and not method.own_model:
            found.append(name)
    return found


def long_prompts(lengths: Sequence[int], methods: Sequence[str] | None = None) -> pd.DataFrame:
    """One row a method: milliseconds to index a prompt of each length and microseconds of a step, with the exponent by
    which each grows from the shortest prompt to the longest (1: in proportion), and the longest one's memory.

    Args:
        lengths: increasing, two at least, in thousands.
    """
    rng = np.random.default_rng(0)
    texts = {length: synthetic_text(length, rng) for length in lengths}
    answers = {length: synthetic_text(ANSWER, rng, text).tolist() for length, text in texts.items()}
    rows = []
    for name in methods or token_drafters():
        found = {n: bench(partial(make_method, name), _prompt(texts[n]), answers[n]) for n in lengths}
        index = {n: cell["index ms"] for n, cell in found.items()}
        step = {n: cell["propose us"] + cell["observe us"] for n, cell in found.items()}
        rows.append(
            {
                "method": name,
                **{f"index ms {n // 1000}k": index[n] for n in lengths},
                "exponent": _exponent(index),
                **{f"step us {n // 1000}k": step[n] for n in lengths},
                "step exponent": _exponent(step),
                f"MiB {lengths[-1] // 1000}k": found[lengths[-1]]["peak MiB"],
            }
        )
    return pd.DataFrame(rows)


def _prompt(ids: IntArray) -> Prompt:
    """One of which every method reads all, whatever part it asks for."""
    return Prompt(ids, dict.fromkeys(("user", "context", "released"), (0, len(ids))))


def _exponent(values: dict[int, float]) -> float:
    """b where a value grows as length ** b from the first length to the last."""
    (short, first), *_, (long, last) = values.items()
    return float(np.log(max(last, 1e-9) / max(first, 1e-9)) / np.log(long / short))


def write_long_traces(path: Path, number: int) -> None:
    """A file of `number` synthetic answers to prompts of `PROMPT` tokens."""
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        for place in range(number):
            prompt = synthetic_text(PROMPT, rng)
            answer = synthetic_text(ANSWER, rng, prompt).tolist()
            file.write(Trace("synthetic", Prompt(prompt, {}, "rag", str(place)), answer).to_json() + "\n")


def replay_memory(number: int, method: str = "pld") -> int:
    """MB that a replay of `number` answers in one process takes at its peak, tables included.

    Raises:
        RuntimeError: the replay failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        traces = Path(folder) / "traces.jsonl"
        write_long_traces(traces, number)
        told = [f"method={method}", "engine=replay", f"engine.traces={traces}", f"output={folder}/run"]
        command = [sys.executable, "-m", "scripts.run", *told, "engine.num_jobs=1"]
        process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"the replay of {number} answers failed with status {process.returncode}")
    return round(usage.ru_maxrss * 1024 / 1e6)
