"""What drafting costs: time to index a prompt, time of a draft, memory, by length (make bench-drafting)."""

from __future__ import annotations

import time
import timeit
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from ngram_trie.bench.provenance import cpu_name, make_manifest
from ngram_trie.cli.app import run
from ngram_trie.drafter import Drafter
from ngram_trie.methods import ConfigError, choices, make_method
from ngram_trie.prompt import Prompt
from ngram_trie.report.run_folder import save_csv
from ngram_trie.store.files import place
from ngram_trie.tree import IntArray

#: Steps of a simulated answer, and how often a prompt is indexed.
NUM_STEPS, NUM_INDEX = 400, 15


def token_drafters() -> dict[str, Callable[[], Drafter]]:
    """The methods that draft from tokens alone and need nothing built before."""
    found: dict[str, Callable[[], Drafter]] = {}
    for name in choices()["method"]:
        try:
            method = make_method(name)
        except ConfigError:  # it needs a folder that only a run knows
            continue
        if isinstance(method, Drafter) and method.reads == "tokens" and not method.parts() and not method.own_model:
            found[name] = partial(make_method, name)
    return found


def synthetic_text(length: int, rng: np.random.Generator, source: IntArray | None = None) -> IntArray:
    """(length,) tokens: half of them fresh, half in passages of 3 to 30 copied from `source` or from what is there."""
    weights = 1 / np.arange(10, 4010)
    words = rng.choice(4000, size=length + 64, p=weights / weights.sum())
    text = np.empty(length + 64, np.int64)
    size = 0
    while size < length:
        chunk = words[size : size + int(rng.integers(3, 30))]
        old = text[:size] if source is None else source
        if len(old) > 60 and rng.random() < 0.5:
            at = rng.integers(len(old) - len(chunk))
            chunk = old[at : at + len(chunk)]
        chunk = chunk[: len(text) - size]
        text[size : size + len(chunk)] = chunk
        size += len(chunk)
    return text[:length]


def bench(make: Callable[[], Drafter], text: IntArray, answer: list[int]) -> dict[str, float]:
    """Milliseconds to index, microseconds to propose and to observe, and the MiB that were allocated at the peak."""
    drafter = make()
    # of which every method reads all, whatever part it asks for
    prompt = Prompt(text, dict.fromkeys(("user", "context", "released"), (0, len(text))))

    def decode() -> tuple[list[float], list[float]]:
        propose, observe = [], []
        for token in answer:
            begin = time.perf_counter()
            drafter.observe([token])
            middle = time.perf_counter()
            drafter.propose(10**6)
            observe.append(middle - begin)
            propose.append(time.perf_counter() - middle)
        return propose, observe

    drafter.start(prompt)
    decode()  # compiles, and warms the caches
    index = timeit.repeat(lambda: drafter.start(prompt), number=1, repeat=NUM_INDEX)
    propose, observe = decode()
    tracemalloc.start()
    drafter.start(prompt)
    for token in answer[:20]:
        drafter.observe([token])
        drafter.propose(10**6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "index ms": float(np.median(index)) * 1e3,
        "propose us": float(np.median(propose)) * 1e6,
        "p99 us": float(np.quantile(propose, 0.99)) * 1e6,
        "observe us": float(np.median(observe)) * 1e6,
        "peak MiB": peak / 2**20,
    }


def costs(lengths: Sequence[int], methods: Mapping[str, Callable[[], Drafter]]) -> pd.DataFrame:
    """One row for each method and length: the columns of `bench`."""
    rng = np.random.default_rng(0)
    texts = {length: synthetic_text(length, rng) for length in lengths}
    answers = {length: synthetic_text(NUM_STEPS, rng, text).tolist() for length, text in texts.items()}
    rows: list[dict[str, object]] = []
    for name, make in methods.items():
        rows += [{"method": name, "tokens": each, **bench(make, texts[each], answers[each])} for each in lengths]
        print(pd.DataFrame(rows[-len(lengths) :]).round(2).to_string(index=False), flush=True)
    return pd.DataFrame(rows)


def main(
    lengths: Annotated[list[int], typer.Option(min=1, help="tokens of the prompts; once for each")] = [  # noqa: B006
        1_000,
        10_000,
        100_000,
    ],
    methods: Annotated[
        list[str] | None, typer.Option(help="of configs/method; all that read tokens by default")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="folder; default: results/local/bench_drafting")] = None,
) -> None:
    """Measure what drafting costs: time to index a prompt, time to propose a draft, peak memory.

    The texts are synthetic. Words follow a Zipf law and whole passages are repeated, in the text and in the simulated
    answer, as in a document and its summary. `propose` is timed over the steps of an answer whose tokens are observed
    one by one; it includes building the draft tree.

      python -m scripts.bench_drafting --lengths 1000 --methods blend --methods suffix
    """
    every = token_drafters()
    if unknown := [name for name in methods or () if name not in every]:
        raise ValueError(f"--methods {unknown[0]}: must be one of {', '.join(every)}")
    print(cpu_name())
    table = costs(sorted(lengths), {name: every[name] for name in methods or every})
    folder = output or place("results/local/bench_drafting")
    folder.mkdir(parents=True, exist_ok=True)
    save_csv(table, folder / "drafting.csv")
    make_manifest({"lengths": list(lengths), "steps": NUM_STEPS}, "none", "generated").write(folder / "manifest.json")
    print(f"written: {folder}")


if __name__ == "__main__":
    run(main)
