from __future__ import annotations

import json
from pathlib import Path

import pytest

from ngram_trie.bench.records import Failure, Lossless, PromptRecord, RecordKey, RecordWriter, read_records
from ngram_trie.decoding import PhaseSeconds


def record(question: str = "q1", **fields: object) -> PromptRecord:
    about = {"run": "r", "method": "m", "model": "x", "dataset": "d", "turn": 0, "repeat": 0, "prompt_hash": "h"}
    about |= {"num_prompt_tokens": 3, "state": "cold", "kind": "drafter", "question_id": question}
    about |= {"output_ids": [4, 5, 6], "accept_lengths": [2], "tree_sizes": [4], "seconds": PhaseSeconds(0.5)}
    return PromptRecord(**about | fields)  # type: ignore[arg-type]


def test_round_trip() -> None:
    original = record(
        lossless=Lossless("tie", 3, 0.01),
        seconds=PhaseSeconds(1.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
        draft_us=[3.5],
        stop_reason="eos",
    )
    assert PromptRecord.from_json(original.to_json()) == original
    failed = record(output_ids=[], accept_lengths=[], failure=Failure("prompt_too_long", "9 tokens"))
    assert PromptRecord.from_json(failed.to_json()) == failed


def test_a_line_without_a_session_is_of_the_first() -> None:
    line = json.loads(record().to_json())
    del line["session"]  # as all files before sessions
    assert PromptRecord.from_json(json.dumps(line)) == record(session=0)
    assert record(session=1).key != record().key == RecordKey("m", "d", "q1", 0)
    assert record().key.item == ("d", "q1", 0, "")


def test_a_torn_last_line_is_dropped_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    with RecordWriter(path, "r") as writer:
        writer.write(record("q1"))
        writer.write(record("q2"))
    with path.open("a") as file:
        file.write(record("q3").to_json()[:40])  # killed while writing
    assert [r.question_id for r in read_records(path)] == ["q1", "q2"]
    with RecordWriter(path, "r") as writer:
        assert RecordKey("m", "d", "q2", 0) in writer
        assert RecordKey("m", "d", "q3", 0) not in writer
        writer.write(record("q3"))
        assert list(writer.records.values()) == [record("q1"), record("q2"), record("q3")]
    assert [r.question_id for r in read_records(path)] == ["q1", "q2", "q3"]


def test_records_of_another_run_are_not_adopted(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "records.jsonl", "r") as writer:
        writer.write(record())
    with pytest.raises(FileExistsError, match="of run r, not of other"):
        RecordWriter(tmp_path / "records.jsonl", "other")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 0}, "schema version 0"),
        ({"extra": 1}, "extra"),
        ({"output_ids": ["4", 5, 6]}, r"output_ids\.0: must be a valid integer"),
        ({"seconds": {"total": -1.0}}, "seconds="),
        ({"accept_lengths": [3, -1], "tree_sizes": [4, 4]}, "a step that emits no token"),
        ({"tree_sizes": [4, 4]}, "tree_sizes: 2 steps"),
        ({"output_ids": [1]}, "account for"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(record("q0").to_json() + "\n" + json.dumps(json.loads(record().to_json()) | change) + "\n")
    with pytest.raises(ValueError, match=message) as error:
        list(read_records(path))
    assert f"{path}:2" in str(error.value)


@pytest.mark.parametrize("line", ["[1]", "{", "\xff"])
def test_a_line_of_something_else_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(line.encode("latin-1") + b"\n")
    with pytest.raises(ValueError, match=r"records.jsonl:1: "):
        list(read_records(path))


def written(folder: Path, *questions: str) -> Path:
    with RecordWriter(folder / "records.jsonl", "r") as writer:
        for question in questions:
            writer.write(record(question))
    return folder / "records.jsonl"


def test_the_same_answer_twice_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "q1", "q2")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[0]]))
    with pytest.raises(ValueError, match=r"records.jsonl:3: the answer of line 1 again"):
        RecordWriter(path, "r")


def test_an_answer_that_the_run_does_not_have_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "q1", "q2")
    known = {record("q1").key}
    with pytest.raises(ValueError, match=r"records.jsonl:2: the run has no answer \('m', 'd', 'q2', 0, '', 0, 0\)"):
        RecordWriter(path, "r", known)


def test_a_file_of_something_else_without_a_last_newline_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("my own notes")
    with pytest.raises(FileExistsError, match="not of run r"):
        RecordWriter(path, "r")
    assert path.read_text() == "my own notes"
