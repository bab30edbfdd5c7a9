"""What drafting costs: time to index a prompt, time to propose a draft, peak memory (scripts/bench_drafting.py)."""

from __future__ import annotations

import tempfile
import time
import timeit
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ngram_trie import reference
from ngram_trie.baselines.arctic_suffix import ArcticSuffix, is_installed
from ngram_trie.baselines.datastore import Datastore, build_datastore
from ngram_trie.baselines.prompt_lookup import PromptLookup
from ngram_trie.baselines.sam import static_automaton
from ngram_trie.baselines.suffix_decoding import SuffixDecoding
from ngram_trie.blend.background import AnswerStore, Background
from ngram_trie.blend.count_tables import CountTables
from ngram_trie.blend.variants import BlendDrafter
from ngram_trie.budget import Budgeted
from ngram_trie.cost import assumed_curve
from ngram_trie.drafter import Drafter
from ngram_trie.drafters import NgramTrieDrafter, ReleasedNgramTrieDrafter
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree, IntArray

NUM_STEPS = 400
NUM_INDEX = 15
METHODS: dict[str, Callable[[], Drafter]] = {
    "n-gram trie, 32 nodes": NgramTrieDrafter,
    "n-gram trie, 32 nodes, with output": lambda: NgramTrieDrafter(update_with_output=True),
    "released, 64 nodes": ReleasedNgramTrieDrafter,
    "prompt lookup, 10 nodes": PromptLookup,
    "SuffixDecoding, 32 nodes": lambda: SuffixDecoding(alpha=None),
    "blend, 32 nodes": BlendDrafter,
    "blend, what pays of 64 nodes": lambda: Budgeted(BlendDrafter(num_draft=64), cost=assumed_curve()),
    "blend over a table, 32 nodes": lambda: BlendOver(table_of(other_answers())),
    "blend over answers, 32 nodes": lambda: BlendOver(store_of(other_answers())),
    "reference in Python, 32 nodes": lambda: ReferenceDrafter(n=13, prefix_len=3, num_draft=32),
}


if is_installed():
    METHODS["SuffixDecoding, its authors' package"] = lambda: ArcticSuffix(alpha=None)


class BlendOver(BlendDrafter):
    """The blend over what is known of 60,000 tokens of other answers."""

    def __init__(self, known: CountTables | AnswerStore) -> None:
        super().__init__()
        self.known = known

    def background(self, prompt: Prompt) -> Background:
        return self.known.background()


def other_answers() -> list[IntArray]:
    rng = np.random.default_rng(1)
    return [synthetic_text(200, rng) for _ in range(300)]


def table_of(answers: Sequence[IntArray]) -> CountTables:
    return CountTables.of_texts(answers, k=10, escape=3.5, max_context=1)


def store_of(answers: Sequence[IntArray]) -> AnswerStore:
    store = AnswerStore()
    for answer in answers:
        store.add(answer)
    return store


class ReferenceDrafter(Drafter):
    """Algorithm 1 and section 3.2 in plain Python."""

    def __init__(self, n: int, prefix_len: int, num_draft: int) -> None:
        self.n, self.prefix_len, self.num_draft = n, prefix_len, num_draft

    def start(self, prompt: Prompt) -> None:
        self._text = prompt.ids.tolist()
        self._root = reference.build_trie(self._text, self.n, self.prefix_len)

    def observe(self, new_ids: Sequence[int]) -> None:
        self._text.extend(new_ids)

    def propose(self, budget: int) -> DraftTree:
        return reference.draft(self._root, self._text, self.prefix_len, min(self.num_draft, budget), "shallow")


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


def bench(make: Callable[[], Drafter], prompt: Prompt, answer: list[int]) -> dict[str, float]:
    """Milliseconds to index, microseconds to propose and to observe, and the MiB that were allocated at the peak."""
    drafter = make()

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


def bench_tree(num_nodes: int = 32) -> float:
    """Microseconds that the construction of a draft tree takes by itself."""
    tokens, parents = np.arange(num_nodes + 1), np.arange(-1, num_nodes)
    return 1e6 * float(np.median(timeit.repeat(lambda: DraftTree(tokens, parents), number=1, repeat=2000)))


def bench_datastore(num_tokens: int = 300_000) -> str:
    """In words: what it takes to build and to open a datastore of synthetic texts, and the static automaton of it."""
    rng = np.random.default_rng(0)
    documents = [synthetic_text(100, rng).tolist() for _ in range(num_tokens // 100)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build_datastore([[1, 2, 3]], folder)  # compiles
        static_automaton(folder, "")
        begin = time.perf_counter()
        build_datastore(documents, folder)
        built = time.perf_counter()
        store = Datastore(folder)
        opened = time.perf_counter()
        static_automaton(folder, store.digest)
        automaton = time.perf_counter()
    return (
        f"datastore of {num_tokens:,} tokens: built in {built - begin:.2f} s, opened in {1e3 * (opened - built):.2f} ms"
        f"; SAM-Decoding's static automaton of it in {automaton - opened:.2f} s"
    )


def drafting_costs() -> pd.DataFrame:
    """One row for each text and method: the columns of `bench`."""
    rng = np.random.default_rng(0)
    texts = {"900 tokens": synthetic_text(900, rng), "8,000 tokens": synthetic_text(8000, rng)}
    cases = {name: (text, synthetic_text(NUM_STEPS, rng, text).tolist()) for name, text in texts.items()}
    cases["one token 8,000 times"] = (np.full(8000, 7), [7] * NUM_STEPS)
    rows = {
        (text_name, method): bench(make, Prompt(text), answer)
        for text_name, (text, answer) in cases.items()
        for method, make in METHODS.items()
    }
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index.names = ["text", "method"]
    return table
