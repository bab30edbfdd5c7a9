"""Accept lengths of every method with a published rule on 280 recorded answers: a replay always gives the same."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.recorded import TRACES, datastores_of_other_answers

from ngram_trie.baselines.context_ngrams import ContextNgrams
from ngram_trie.baselines.llma import LLMA
from ngram_trie.baselines.ngram_predictor import NgramPredictor
from ngram_trie.baselines.rest import REST
from ngram_trie.baselines.sam import SAMDecoding
from ngram_trie.baselines.suffix_decoding import SuffixDecoding
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import Trace, read_traces
from ngram_trie.blend.variants import BlendDrafter
from ngram_trie.drafter import Drafter
from ngram_trie.drafters import NgramTrieDrafter, ReleasedNgramTrieDrafter

pytestmark = pytest.mark.skipif(not TRACES.exists(), reason="needs the recorded answers of ../shared/traces")

#: Settings and the mean over the steps of summarization and of rag.
SHALLOW = {"ties": "shallow"}
MEASURED: list[tuple[type[Drafter], dict[str, Any], float, float]] = [
    (BlendDrafter, {}, 3.439, 2.276),
    (ContextNgrams, {}, 3.044, 1.976),
    (ContextNgrams, {"q": 2}, 2.356, 1.629),
    (LLMA, {}, 2.745, 1.681),
    (LLMA, {"which": "last"}, 2.638, 1.682),
    (NgramPredictor, {}, 2.223, 1.671),
    (NgramPredictor, {"ties": "earlier"}, 2.261, 1.658),
    (NgramTrieDrafter, {"num_draft": 64} | SHALLOW, 3.083, 1.882),
    (NgramTrieDrafter, {"num_draft": 64, "update_with_output": True} | SHALLOW, 3.109, 1.996),
    (NgramTrieDrafter, {"num_draft": 8, "ties": "deep"}, 2.635, 1.718),
    (ReleasedNgramTrieDrafter, {"num_draft": 64}, 2.957, 1.818),
    (SAMDecoding, {}, 2.610, 1.706),
    (SAMDecoding, {"alpha": None, "num_draft": 64, "require_full": True}, 2.821, 1.723),
    (SuffixDecoding, {}, 2.750, 1.835),
    (SuffixDecoding, {"alpha": None}, 3.176, 1.962),
    (SuffixDecoding, {"alpha": None, "totals": "occurrences"}, 3.177, 1.963),
    (SuffixDecoding, {"alpha": None, "ties": "deep"}, 2.918, 1.869),
]


@functools.cache
def recorded() -> list[Trace]:
    return read_traces(TRACES)


def of_task(traces: list[Trace], task: str) -> list[Trace]:
    return [trace for trace in traces if trace.prompt.dataset == task]


@pytest.mark.parametrize(
    ("kind", "fields", "summarization", "rag"),
    MEASURED,
    ids=[f"{kind.__name__}, {fields}" for kind, fields, *_ in MEASURED],
)
def test_accept_lengths(kind: type[Drafter], fields: dict[str, Any], summarization: float, rag: float) -> None:
    drafter = kind(**fields)
    measured = [
        np.mean([length for trace in of_task(recorded(), task) for length in replay(drafter, trace).accept_lengths])
        for task in ("summarization", "rag")
    ]
    assert measured == pytest.approx([summarization, rag], abs=6e-4)


def test_accept_lengths_with_a_datastore_of_other_answers(tmp_path: Path) -> None:
    """About 41,000 tokens: of ten parts by question, the nine that a question is not in."""
    settings: list[tuple[type[Drafter], dict[str, Any]]] = [
        (REST, {}), (SAMDecoding, {"static_bias": 5}), (SAMDecoding, {"static_bias": 0}),
    ]  # fmt: skip
    steps: dict[tuple[int, str], list[int]] = {(at, task): [] for at in range(3) for task in ("summarization", "rag")}
    for datastore, traces in datastores_of_other_answers(recorded(), tmp_path):
        for at, task in steps:
            kind, fields = settings[at]
            drafter = kind(datastore=str(datastore), **fields)
            for trace in of_task(traces, task):
                steps[at, task] += replay(drafter, trace).accept_lengths
    measured = [float(np.mean(lengths)) for lengths in steps.values()]
    assert measured == pytest.approx((1.061, 1.120, 2.610, 1.714, 2.623, 1.797), abs=6e-4)
