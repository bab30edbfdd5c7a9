"""Where the recorded answers lie that replays are checked against; tests skip where they are absent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ngram_trie.baselines.datastore import build_datastore
from ngram_trie.bench.traces import Trace
from ngram_trie.store.files import PROJECT

SHARED = PROJECT.parent / "shared"
TRACES = SHARED / "traces" / "spec_bench.vicuna-7b-v1.3.jsonl"
EVEN_TRACES = SHARED / "traces" / "spec_bench.vicuna-7b-v1.3.even.jsonl"
#: What the functions of the paper's released code give on 160 of those answers.
RELEASED_TRIE = SHARED / "traces" / "spec_bench.vicuna-7b-v1.3.released_trie.jsonl"
PLD_RECORDED = SHARED / "traces" / "spec_bench.vicuna-7b-v1.3.pld_recorded.jsonl"


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def datastores_of_other_answers(traces: list[Trace], folder: Path) -> Iterator[tuple[Path, list[Trace]]]:
    """Questions in ten parts: a datastore of the answers to those of the nine others, and the turns of this one."""
    for part in range(10):
        inside = [trace for trace in traces if int(trace.prompt.question_id) // 2 % 10 == part]
        others = [trace.output_ids for trace in traces if int(trace.prompt.question_id) // 2 % 10 != part]
        build_datastore(others, folder / str(part))
        yield folder / str(part), inside
