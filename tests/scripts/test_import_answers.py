"""Recordings as text become token ids that replay reads, with the prompts that their authors' code makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ngram_trie.bench.traces import read_traces
from ngram_trie.cli.app import invoke
from ngram_trie.store.files import PROJECT
from ngram_trie.targets.load import load_tokenizer
from scripts import import_answers

TOKENIZER = PROJECT / "data" / "tiny" / "model"


def imported(kind: str, *paths: Path, output: Path, **options: str) -> list[Any]:
    more = [part for name, value in options.items() for part in (f"--{name}", value)]
    arguments = [kind, *map(str, paths), "--tokenizer", str(TOKENIZER), "--model", "Tiny", "--output", str(output)]
    invoke(import_answers.main, [*arguments, *more])
    return read_traces(output)


def lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def longbench(tmp_path: Path) -> tuple[Path, Path]:
    """A copy with two predictions, of which the second was cut, and the rows."""
    for name, value in (
        ("dataset2prompt", {"news": "News: {context} Summary:"}),
        ("dataset2maxlen", {"news": 6}),
        ("model2maxlen", {"model": 40}),
    ):
        lines(tmp_path / "config" / f"{name}.json", value)
    rows = lines(
        tmp_path / "rows.jsonl",
        {"context": "The shop opens at nine.", "answers": ["a"]},
        {"context": "The library has books. " * 30, "answers": ["b"]},
    )
    answers = ({"pred": "At nine.", "answers": ["a"]}, {"pred": "The library has many books and", "answers": ["b"]})
    return lines(tmp_path / "pred" / "model" / "news.jsonl", *answers), rows


def test_predictions_of_longbench(longbench: tuple[Path, Path], tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(TOKENIZER))
    whole, cut = imported("longbench", *longbench, output=tmp_path / "out.jsonl")
    assert (whole.model, whole.prompt.dataset, whole.prompt.question_id) == ("Tiny", "news", "1")
    chat = [{"role": "user", "content": "News: The shop opens at nine. Summary:"}]
    assert whole.prompt.ids.tolist() == tokenizer.apply_chat_template(chat, add_generation_prompt=True).input_ids
    assert whole.output_ids[-1] == tokenizer.eos_token_id and tokenizer.decode(whole.output_ids[:-1]) == "At nine."
    assert len(cut.output_ids) == 6 and cut.output_ids[-1] != tokenizer.eos_token_id
    assert len(cut.prompt.ids) < 60 < 30 * 4  # its middle is left out
    assert [trace.prompt.question_id for trace in imported(
        "longbench", *longbench, output=tmp_path / "even.jsonl", parity="even"
    )] == ["2"]  # fmt: skip


def test_predictions_to_other_questions_are_refused(longbench: tuple[Path, Path], tmp_path: Path) -> None:
    predicted, rows = longbench
    lines(rows, {"context": "x", "answers": ["a"]}, {"context": "x", "answers": ["c"]})
    with pytest.raises(SystemExit, match=r"news.jsonl:2: not an answer to the question in the same line"):
        imported("longbench", predicted, rows, output=tmp_path / "out.jsonl")
    with pytest.raises(SystemExit, match="longbench: give two files"):
        imported("longbench", predicted, output=tmp_path / "out.jsonl")


def test_sessions_of_tau_bench(tmp_path: Path) -> None:
    def session(task: int, *texts: str | None) -> dict[str, Any]:
        roles = ["system", "user", "assistant", "user", "assistant", "user"]
        return {"task_id": task, "traj": [{"role": r, "content": t} for r, t in zip(roles, texts, strict=False)]}

    sessions = [session(3, "You help.", "Hello.", "Yes?", "A book.", None), session(3, "You help.", "Hi.", "Good day.")]
    path = tmp_path / "shop" / "act" / "4B" / "one.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(sessions))
    tokenizer = load_tokenizer(str(TOKENIZER))
    found = imported("tau_bench", tmp_path / "shop", output=tmp_path / "out.jsonl")
    assert len(imported("tau_bench", path, path, output=tmp_path / "new" / "twice.jsonl")) == 2 * len(found)
    assert [(t.prompt.dataset, t.prompt.question_id, t.prompt.turn) for t in found] == [
        ("shop", "3", 0),
        ("shop", "3", 1),
    ]
    assert [tokenizer.decode(t.output_ids[:-1]) for t in found] == ["Yes?", "Good day."]
    assert "Hi." in tokenizer.decode(found[1].prompt.ids) and "Hello." not in tokenizer.decode(found[1].prompt.ids)
