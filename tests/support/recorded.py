"""Where the recorded answers lie that replays are checked against; tests skip where they are absent."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from ngram_trie.baselines.datastore import build_datastore
from ngram_trie.bench.traces import Trace
from ngram_trie.store.files import PROJECT
from ngram_trie.targets.load import load_tokenizer

SHARED = PROJECT.parent / "shared"
TRACES = SHARED / "traces" / "spec_bench.vicuna-7b-v1.3.jsonl"
EVEN_TRACES = SHARED / "traces" / "spec_bench.vicuna-7b-v1.3.even.jsonl"
#: What the functions of the paper's released code give on 160 of those answers.
RELEASED_TRIE = SHARED / "traces" / "spec_bench.vicuna-7b-v1.3.released_trie.jsonl"
LLAMA = SHARED / "tokenizers" / "llama2" / "tokenizer.model"
PLD_RECORDED = SHARED / "traces" / "spec_bench.vicuna-7b-v1.3.pld_recorded.jsonl"


def vicuna_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The Llama tokenizer as lmsys/vicuna-7b-v1.3 publishes it: a SentencePiece file and no tokenizer.json."""
    if not LLAMA.exists():
        pytest.skip(f"{LLAMA.relative_to(PROJECT.parent)} is not beside the project")
    shutil.copy(LLAMA, folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    about = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return load_tokenizer(str(folder), legacy=True)


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
