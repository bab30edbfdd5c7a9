"""Published sets from local files of exactly their layout; no network."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from omegaconf import OmegaConf

from data.hub import HubDataset
from ngram_trie.config import CONFIGS, ConfigError, build

pytest.importorskip("datasets")

MT_BENCH = [
    {"prompt": [f"Question {i}?", "And then?"], "reference": [], "category": "writing", "prompt_id": 80 + i}
    for i in range(1, 7)
]
HUMANEVAL = [
    {
        "task_id": f"HumanEval/{i}",
        "prompt": f'\n\ndef f{i}(x: int) -> int:\n    """ Add {i}.\n    """\n',
        "canonical_solution": f"    return x + {i}\n",
        "test": "def check(candidate):\n    pass\n",
        "entry_point": f"f{i}",
    }
    for i in range(5)
]
GSM8K = [{"question": f"What is {i} + {i}? ", "answer": f"It is {2 * i}.\n#### {2 * i}"} for i in range(5)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def write(path: Path, rows: list) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pd.DataFrame(rows).to_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def configured(name: str, **fields: object) -> HubDataset:
    return build(OmegaConf.merge(OmegaConf.load(CONFIGS / "dataset" / f"{name}.yaml"), fields), f"dataset {name}")


def test_mt_bench_asks_first_turns(tmp_path: Path) -> None:
    dataset = configured("mt_bench", path=str(write(tmp_path / "mt.jsonl", MT_BENCH)))
    assert [(q.question_id, q.message) for q in dataset.questions] == [
        (str(80 + i), f"Question {i}?") for i in range(1, 5)
    ]
    assert [q.question_id for q in dataset.warmup] == ["85", "86"]
    # FastChat's own file has other names for the same
    own = [{"question_id": r["prompt_id"], "category": "writing", "turns": r["prompt"]} for r in MT_BENCH]
    path = str(write(tmp_path / "question.jsonl", own))
    again = configured("mt_bench", path=path, prompt="turns", id="question_id")
    assert again.questions == dataset.questions


def test_humaneval_is_asked_in_words(tmp_path: Path) -> None:
    write(tmp_path / "openai_humaneval" / "test-00000-of-00001.parquet", HUMANEVAL)
    dataset = configured("humaneval", path=str(tmp_path), limit=2)
    assert [q.question_id for q in dataset.questions] == ["HumanEval/0", "HumanEval/1"]
    question = dataset.questions[1]
    assert (
        question.message.startswith("Complete the following Python function.\n\n")
        and "def f1(x: int)" in question.context
    )
    assert question.message == question.message.strip() and question.reference == "    return x + 1\n"


def test_gsm8k_takes_its_split_and_numbers_its_questions(tmp_path: Path) -> None:
    write(tmp_path / "main" / "test-00000-of-00001.parquet", GSM8K)
    write(tmp_path / "main" / "train-00000-of-00001.parquet", GSM8K[:1])
    dataset = configured("gsm8k", path=str(tmp_path))
    assert [(q.question_id, q.message) for q in dataset.questions] == [
        ("gsm8k-1", "What is 0 + 0?"),
        ("gsm8k-2", "What is 1 + 1?"),
        ("gsm8k-3", "What is 2 + 2?"),
    ]
    assert [q.question_id for q in configured("gsm8k", path=str(tmp_path), parity="even").questions] == ["gsm8k-2"]


def test_what_is_wrong_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"dataset gsm8k: .*: no such file, or no \.jsonl, \.json, \.parquet file"):
        configured("gsm8k", path=str(tmp_path / "none.jsonl"))
    path = str(write(tmp_path / "x.jsonl", GSM8K))
    with pytest.raises(ConfigError, match="question 1 has no field 'turns'; it has question, answer"):
        configured("gsm8k", path=path, prompt="turns")
    with pytest.raises(ConfigError, match="5 questions, of which 5 are for warming up"):
        configured("gsm8k", path=path, warmup=5)
    (tmp_path / "torn.jsonl").write_text("{not json", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"torn\.jsonl: not readable"):
        configured("gsm8k", path=str(tmp_path / "torn.jsonl"))
    import datasets

    def no_network(*_: object, **__: object) -> None:
        raise ConnectionError("Couldn't reach the Hub\nand a long story")

    monkeypatch.setattr(datasets, "load_dataset", no_network)
    with pytest.raises(ConfigError) as raised:
        configured("gsm8k")
    assert str(raised.value).endswith(
        "the hub does not give openai/gsm8k (Couldn't reach the Hub); "
        "give a copy of its files: dataset.path=FILE (datasets.gsm8k.path=FILE in an experiment)"
    )
