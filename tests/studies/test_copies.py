"""Shares of copied n-grams by hand, and what is drawn of a run."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.records import record, write_records

from ngram_trie.bench.traces import Trace, write_traces
from ngram_trie.decoding import PhaseSeconds
from ngram_trie.prompt import Prompt
from ngram_trie.report.run_folder import RunFolder
from ngram_trie.store.files import place
from scripts.studies import copies


def test_n_grams_that_the_text_had_before() -> None:
    assert copies.share_of_copies([1, 2, 3, 4, 5], [1, 2, 3, 4]) == 1
    assert copies.share_of_copies([1, 2, 3, 4, 5], [9, 8, 7, 6, 5]) == 0
    assert copies.share_of_copies([1, 2], [7, 7, 7, 7, 7]) == 0.5  # the first four are new
    assert copies.share_of_copies([1, 2, 3, 4], [5, 1, 2, 3, 4]) == 0.5  # 5123 is new, 1234 is the prompt's
    assert math.isnan(copies.share_of_copies([1, 2], [3]))


def test_a_run_without_traces_has_its_prompts_built_again(tmp_path: Path) -> None:
    committed = place("results/table1/tiny")
    for name in ("manifest.json", "records.jsonl.gz"):  # what git holds of other runs
        shutil.copy(committed / name, tmp_path)
    built, kept = copies.traces_of(RunFolder(tmp_path)), copies.traces_of(RunFolder(committed))
    assert [(trace.key, trace.output_ids) for trace in built] == [(trace.key, trace.output_ids) for trace in kept]
    assert all(np.array_equal(one.prompt.ids, other.prompt.ids) for one, other in zip(built, kept, strict=True))
    for group, change in (("model", {"chat_template": "vicuna_v1.1"}), ("datasets", {})):  # other ones, or fewer
        about = json.loads((committed / "manifest.json").read_text())
        if not change:
            about["config"][group].popitem()
        about["config"][group].update(change)
        (tmp_path / "manifest.json").write_text(json.dumps(about))
        with pytest.raises(ValueError, match="its prompts were others"):
            copies.traces_of(RunFolder(tmp_path))


def test_a_models_name_says_its_size() -> None:
    assert copies.billions("smollm2-135m") == 0.135 and copies.billions("qwen2.5-coder-1.5B") == 1.5
    assert copies.billions("vicuna-7b-v1.3") == 7
    with pytest.raises(ValueError, match="should say its size"):
        copies.billions("tiny")


def test_speedups_stand_beside_the_share_of_their_answer(tmp_path: Path) -> None:
    records = [
        record(method, f"rag-{number}", (2, 2), PhaseSeconds(1 + seconds, 1.0, verify=seconds), model="some-0.5b")
        for number in range(5)
        for method, seconds in (("vanilla", 4.0), ("pld", 4.0 / (1 + number)))
    ]
    run = write_records(tmp_path, records, {})
    traces = [
        Trace(
            "m",
            Prompt(np.arange(4), {}, records[0].dataset, f"rag-{number}"),
            [*range(number), *range(50, 58 - number)],
        )
        for number in range(5)
    ]
    write_traces(run / "traces.jsonl", traces)
    copies.main([run], tmp_path / "page", "pld", "pld,suffix")
    found = pd.read_csv(tmp_path / "page" / "copies.csv")
    assert found.copied.tolist() == pytest.approx([0, 0, 0, 0, 1 / 5])
    assert found.speedup.tolist() == pytest.approx([1, 2, 3, 4, 5])
    sizes = pd.read_csv(tmp_path / "page" / "size.csv")
    assert sizes.billions.tolist() == [0.5, 0.5] and sizes.dataset.tolist() == ["qa", "all"]
    assert sizes.speedup.tolist() == pytest.approx([20 / (4 + 2 + 4 / 3 + 1 + 4 / 5)] * 2, abs=1e-4)
    assert (sizes.speedup_low < sizes.speedup).all() and sizes.tokens.tolist() == [2, 2]
    with pytest.raises(ValueError, match="no answers of suffix"):
        copies.main([run], tmp_path / "page", "suffix", "pld")
    assert all((tmp_path / "page" / name).exists() for name in ("copies.png", "size.png"))
