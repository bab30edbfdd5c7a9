"""Spec-Bench: the file's own messages, what of them was handed over, turns, references, and prompts to warm up on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow
import pytest
from omegaconf import OmegaConf
from pyarrow import parquet
from support import datasets
from support.datasets import write_lines

from ngram_trie.data.spec_bench import WARMUP, SpecBench
from ngram_trie.methods import ConfigError
from ngram_trie.store.files import CONFIGS, PROJECT

PUBLISHED = PROJECT.parent / "shared" / "spec_bench" / "question.jsonl"
ROWS = [
    {"question_id": 81, "category": "writing", "turns": ["Write: a\nstory.", "Again, shorter."]},
    {"question_id": 101, "category": "reasoning", "turns": ["Who?", "Why?"], "reference": ["You.", "Because."]},
    {
        "question_id": 161,
        "category": "translation",
        "turns": ["Translate German to English: Er sagte: ja"],
        "reference": ["He said: yes"],
    },
    {
        "question_id": 241,
        "category": "summarization",
        "turns": ["Summarize: It rained. He said: stay"],
        "reference": ["Rain."],
    },
    {"question_id": 242, "category": "summarization", "turns": ["Summarize: It snowed."], "reference": ["Snow."]},
    {
        "question_id": 481,
        "category": "rag",
        "turns": ["First passage.\nSecond one.\nWho sang?"],
        "reference": [["James Ray", "George Harrison"]],
    },
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(write_lines(tmp_path / "question.jsonl", ROWS))


def configured(name: str, path: Path | None, **fields: object) -> SpecBench:
    """The set over a file of any content, unless a checksum is given."""
    return datasets.configured(name, **{"path": str(path) if path else None, "checksum": None} | fields)


def test_what_was_handed_over_is_the_context(path: Path) -> None:
    questions = {question.question_id: question for question in configured("spec_bench", path).questions}
    assert [(q.before, q.context, q.after) for q in map(questions.__getitem__, ("161", "241", "481"))] == [
        ("Translate German to English: ", "Er sagte: ja", ""),
        ("Summarize: ", "It rained. He said: stay", ""),
        ("", "First passage.\nSecond one.", "\nWho sang?"),
    ]
    assert questions["81"].context == questions["81"].message  # of other categories all of it
    assert {question.released_span for question in questions.values()} == {"user"}


def test_a_second_turn_follows_what_vanilla_answers_to_the_first(path: Path) -> None:
    first, second = configured("spec_bench", path, category="writing").questions
    assert (first.turn, first.message, first.history) == (0, "Write: a\nstory.", ())
    assert (second.turn, second.message, second.history) == (1, "Again, shorter.", (("Write: a\nstory.", None),))
    assert first.question_id == second.question_id == "81"


def test_references_are_of_their_turn_and_short_answers_are_told_apart(path: Path) -> None:
    questions = configured("spec_bench", path, category=["reasoning", "rag", "summarization"]).questions
    assert [(q.question_id, q.turn, q.reference) for q in questions] == [
        ("101", 0, "You."),
        ("101", 1, "Because."),
        ("241", 0, "Rain."),
        ("242", 0, "Snow."),
        ("481", 0, "James Ray; George Harrison"),
    ]
    assert questions[-1].answers == ("James Ray", "George Harrison") and questions[0].answers == ()


def test_limit_and_parity_go_by_question_and_id(path: Path) -> None:
    assert [(q.question_id, q.turn) for q in configured("spec_bench", path, limit=2).questions] == [
        ("81", 0),
        ("81", 1),
        ("101", 0),
        ("101", 1),
    ]
    assert [q.question_id for q in configured("spec_bench_summarization", path, parity="even").questions] == ["242"]
    assert [q.question_id for q in configured("spec_bench_summarization", path, parity="odd").questions] == ["241"]


def test_no_test_question_warms_up(path: Path) -> None:
    summarization = configured("spec_bench_summarization", path)
    assert {q.question_id for q in summarization.questions} == {"241", "242"}
    # of other categories, those nearest in length
    assert [q.question_id for q in summarization.warmup] == ["481", "81"]
    everything = configured("spec_bench", path)
    assert [q.message for q in everything.warmup] == [WARMUP, WARMUP]
    assert not {q.question_id for q in everything.warmup} & {q.question_id for q in everything.questions}
    assert configured("spec_bench_rag", path, warmup=0).warmup == []


def test_what_is_wrong_is_one_line(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^dataset spec_bench: dataset.category=summary: did you mean summarization"):
        configured("spec_bench", path, category="summary")
    other = tmp_path / "other.jsonl"
    other.write_text('{"prompt": "What?"}\n')
    with pytest.raises(ConfigError, match=r"^dataset spec_bench: dataset.checksum=null: https://.*dataset.path=FILE$"):
        configured("spec_bench", None)
    with pytest.raises(
        ConfigError, match=r"^dataset spec_bench: .*other\.jsonl:1: question_id: Field required; it has prompt: "
    ):
        configured("spec_bench", other)


def test_a_local_file_must_be_the_published_one(path: Path, tmp_path: Path) -> None:
    checksum = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    rag = configured("spec_bench_rag", path, checksum=checksum)
    assert rag.questions == configured("spec_bench_rag", path).questions
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError) as raised:
        configured("spec_bench_rag", path, checksum=checksum)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    assert f"damaged or changed: its checksum is {found}, not {checksum}: copy https://" in str(raised.value)
    assert str(raised.value).endswith("in an experiment datasets.spec_bench_rag.checksum=null")
    with pytest.raises(ConfigError, match=r"^dataset spec_bench_rag: path=.*none\.jsonl: no such file; a copy"):
        configured("spec_bench_rag", tmp_path / "none.jsonl", checksum=checksum)


@pytest.mark.skipif(not PUBLISHED.exists(), reason="needs ../shared/spec_bench/question.jsonl")
def test_the_published_file_word_for_word() -> None:
    rows = [json.loads(line) for line in PUBLISHED.read_text(encoding="utf-8").split("\n") if line]
    checksum = OmegaConf.load(CONFIGS / "dataset" / "spec_bench.yaml").checksum
    dataset = configured("spec_bench", PUBLISHED, checksum=checksum)
    published = [(str(row["question_id"]), turn, text) for row in rows for turn, text in enumerate(row["turns"])]
    assert [(q.question_id, q.turn, q.message) for q in dataset.questions] == published
    # build_prompt wants messages that chat templates leave as they are
    assert all(q.message == q.message.strip() for q in dataset.questions)
    for name in ("summarization", "rag"):
        questions = configured(f"spec_bench_{name}", PUBLISHED).questions
        assert len(questions) == 80 and all(q.reference for q in questions)
        assert {q.dataset for q in questions} == {f"spec_bench_{name}"}
        if name == "rag":
            assert all(q.after.count("\n") == 1 and q.after.endswith("?") for q in questions)
            assert all(len(q.context.split("\n")) == 5 and len(q.after) < 100 < len(q.context) for q in questions)
        else:
            assert {q.before for q in questions} == {"Summarize: "}


RAG = "Please answer.\n\nContext:\nA mill.\n\nA river.\n\nQuestion:\nWhere?"


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """The folder that NVIDIA's script writes, made up."""
    splits = {
        "qualitative": [("a1", "rag", [RAG, "And when?"]), ("b2", "writing", ["Write."]), ("c3", "qa", ["Who?"])],
        "throughput_1k": [("d4", "low_entropy", ["Sort."]), ("e5", "high_entropy", ["Invent."])],
        "throughput_16k": [("f6", "mixed_entropy", ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"])],
    }
    for split, rows in splits.items():
        (tmp_path / split).mkdir()
        table = pyarrow.Table.from_pylist(
            [dict(zip(("question_id", "category", "turns"), row, strict=True), source="x") for row in rows]
        )
        parquet.write_table(table, tmp_path / split / "test.parquet")
    return tmp_path


def test_speed_bench_has_splits_categories_and_turns(prepared: Path) -> None:
    rag = datasets.configured("speed_bench", path=str(prepared), category="rag", warmup=1)
    first, second = rag.questions
    assert (first.context, first.after) == ("A mill.\n\nA river.", "\n\nQuestion:\nWhere?")
    assert first.message == RAG
    assert (second.turn, second.message, second.history) == (1, "And when?", ((RAG, None),))
    assert [question.question_id for question in rag.warmup] == ["b2"]
    for path in (prepared, prepared / "throughput_1k" / "test.parquet"):
        fast = datasets.configured("speed_bench", path=str(path), split="throughput_1k")
        assert [question.message for question in fast.questions] == ["Sort.", "Invent."]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"split": "throughput_16k"}, "prepare_data.py"),
        ({"split": "throughput_3k"}, "dataset.split=throughput_3k: "),
        ({"split": "throughput_8k"}, "of split 'throughput_8k'"),
        ({"category": "code"}, "dataset.category=code: "),
    ],
)
def test_what_speed_bench_cannot_give_is_one_line(prepared: Path, fields: dict[str, str], said: str) -> None:
    with pytest.raises((ConfigError, FileNotFoundError), match=said):
        datasets.configured("speed_bench", path=str(prepared), **fields)
