"""Records of a toy run, as tests of metrics, tables and comparisons make them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from ngram_trie.bench import metrics
from ngram_trie.bench.records import Failure, Lossless, PromptRecord, RecordWriter, RunManifest
from ngram_trie.decoding import PhaseSeconds


def record(
    method: str = "vanilla",
    question: str = "1",
    accept: tuple[int, ...] = (1, 1, 1),
    seconds: float | PhaseSeconds = 1.0,
    prefill: float = 0.0,
    *,
    dataset: str = "qa",
    repeat: int = 0,
    session: int = 0,
    state: str = "cold",
    kind: str = "drafter",
    lossless: Lossless | None = None,
    failed: bool = False,
    **fields: Any,
) -> PromptRecord:
    """`fields` are further ones of the record."""
    if failed:
        fields |= {"failure": Failure("OutOfMemoryError", "no room")}
    else:
        clock = seconds if isinstance(seconds, PhaseSeconds) else PhaseSeconds(total=seconds, prefill=prefill)
        answer = {"output_ids": [7] * (sum(accept) + 1), "accept_lengths": list(accept), "seconds": clock}
        fields = answer | fields
    return PromptRecord(
        **{"run": "r", "model": "toy", "turn": 0, "prompt_hash": "h", "num_prompt_tokens": 5} | fields,
        method=method, dataset=dataset, question_id=question, repeat=repeat, session=session, state=state, kind=kind,
        lossless=lossless,
    )  # fmt: skip


def frame(*records: PromptRecord) -> pd.DataFrame:
    return metrics.to_frame(records)


def manifest(config: dict[str, Any], **fields: Any) -> RunManifest:
    about = {"model": "m", "prompts": "p", "commit": None, "dirty": None, "device": "a toy", "num_threads": 1}
    return RunManifest(**{"run": "r", "config": config, **about, "versions": {}, "started": "now"} | fields)


def write_records(folder: Path, records: Iterable[PromptRecord], config: dict[str, Any], **fields: Any) -> Path:
    """A folder of a run as it is before anything is derived; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest(config, **fields).write(folder / "manifest.json")
    with RecordWriter(folder / "records.jsonl", "r") as writer:
        for each in records:
            writer.write(each)
    return folder
