"""Ways of drafting in vLLM in turns, with stand-ins for its engines: what is asked, continued, and made of the laps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from support.forced import MANIFEST

from ngram_trie.engines import vllm_bench
from ngram_trie.engines.journal import Journal
from ngram_trie.prompt import Prompt

PROMPTS = [Prompt(np.arange(10) + place, {}, "rag", str(place)) for place in range(4)]
LAPS = list(vllm_bench.plan(4, per_lap=2, num_tokens=7, batches=(1, 4), rates=(0.5,), rounds=2))


class Engine:
    """Emits the prompt's tokens, one a step without drafts and two with."""

    asked: ClassVar[list[tuple[str, int]]] = []

    def __init__(self, python: Path, log: Path, **options: Any) -> None:
        self.way = options["speculative"]["method"] if "speculative" in options else "none"
        if self.way == "suffix":
            raise ValueError("arctic-inference is not installed")
        self.versions = {"vllm": "0"}

    def lap(self, prompts: Sequence[Sequence[int]], max_tokens: int, **load: Any) -> dict[str, Any]:
        Engine.asked.append((self.way, len(prompts)))
        step = 1 if self.way == "none" else 2
        answers = []
        for prompt in prompts:
            emitted = [1] + [step] * ((max_tokens - 1) // step)
            ids = list(prompt)[: sum(emitted)]
            times = [0.1 * (place + 1) / step for place in range(len(ids))]
            answers.append({"ids": ids, "at": times, "emitted": emitted})
        return {"seconds": 2.0 / step, "answers": answers, "drafts": 5, "accepted": 5, "per_position": [4, 1]}

    def close(self) -> None:
        pass


def test_laps_are_every_prompt_once_and_then_batches_and_rates() -> None:
    assert [(lap.name, list(lap.prompts), lap.round) for lap in LAPS] == [
        ("identity", [0, 1, 2, 3], 0),
        *[
            (name, asked, turn)
            for turn in (0, 1)
            for name, asked in (("batch 1", [0, 1]), ("batch 4", [0, 1, 2, 3]), ("rate 0.5", [0, 1]))
        ],
    ]


def test_ways_take_turns_and_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_bench, "Worker", Engine)
    monkeypatch.setattr(Engine, "asked", [])
    with Journal(tmp_path / vllm_bench.LAPS, MANIFEST) as journal:
        vllm_bench.run(journal, Path("python"), "model", PROMPTS, LAPS[:2])
    first = [way for way, number in Engine.asked if number == 4]
    assert len(first) == 4
    done = len(Engine.asked)
    with Journal(tmp_path / vllm_bench.LAPS, MANIFEST) as journal:
        notes = vllm_bench.run(journal, Path("python"), "model", PROMPTS, LAPS)
        measured = [(row["way"], row["lap"], row["round"]) for row in journal.rows]
    assert notes["not run: suffix"] == "arctic-inference is not installed"
    assert len(set(measured)) == len(measured) and len(Engine.asked) > done
    ways = {way for way, *_ in measured}
    assert len(measured) == len(ways) * len(LAPS)
    starts = [way for way, lap, turn in measured if lap == "batch 1"]
    assert starts[0] != starts[len(ways)]  # another begins in the next round

    text = vllm_bench.write(tmp_path)
    table = vllm_bench.table(journal.rows).set_index(["lap", "way"])
    assert "suffix" not in ways and "| ngram |" in text and (tmp_path / "ways.md").exists()
    plain, drafted = table.loc[("batch 1", "none")], table.loc[("batch 1", "ngram")]
    assert (plain.accept_length, drafted.accept_length, drafted.vllm_accept_length) == (1, 2, 2)
    assert drafted.ratio == pytest.approx(2, rel=0.2)
    assert table.loc[("identity", "ngram"), "answers"] == 4


def test_an_answer_that_is_not_the_plain_one_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(Engine):
        def lap(self, prompts: Sequence[Sequence[int]], **options: Any) -> dict[str, Any]:
            found = super().lap(prompts, **options)
            if self.way == "ngram":
                found["answers"][0]["ids"][0] += 1
            return found

    monkeypatch.setattr(vllm_bench, "Worker", Wrong)
    with Journal(tmp_path / vllm_bench.LAPS, MANIFEST) as journal:
        vllm_bench.run(journal, Path("python"), "model", PROMPTS, LAPS[:1])
    found = vllm_bench.table(journal.rows).set_index("way")
    assert found.different["ngram"] == 1 and found.different["none"] == 0


def test_without_the_plain_engine_there_is_nothing_to_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any, **__: Any) -> None:
        raise ValueError("vLLM 0.1: at least 0.20 is needed")

    monkeypatch.setattr(vllm_bench, "Worker", none)
    with pytest.raises(ValueError, match=r"vLLM 0\.1: at least"), Journal(tmp_path / "laps.jsonl", MANIFEST) as journal:
        vllm_bench.run(journal, Path("python"), "model", PROMPTS, LAPS)
