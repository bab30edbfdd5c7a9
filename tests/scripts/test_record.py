"""Recording answers: they are vanilla's, and an interrupted recording goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tiny import greedy

from ngram_trie.bench.prepare import load_target
from ngram_trie.bench.schemas import Run
from ngram_trie.bench.traces import read_traces
from ngram_trie.cli import overrides as command_line
from ngram_trie.cli.record import main
from ngram_trie.methods import ConfigError

ASKED = ("dataset=rag", "dataset.limit=2", "method=blend", "measure.max_new_tokens=8", "model.device=cpu")


def composed(*given: str) -> Run:
    return command_line.composed(list({line.partition("=")[0]: line for line in given}.values()))


def test_answers_are_the_models_own_and_a_cut_recording_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "new" / "answers.jsonl"
    config = composed(*ASKED, f"output={path}")
    main(config)
    whole = path.read_bytes()
    traces = read_traces(path)
    model = load_target(config).model
    assert len(traces) == 2
    for trace in traces:
        assert trace.output_ids == greedy(model, trace.prompt.ids.tolist(), 8)
        assert trace.max_output_tokens == 8 and trace.stop_reason == "max_new_tokens"
    path.write_bytes(whole[: len(whole) - 30])  # killed in the middle of a line
    main(config)
    assert path.read_bytes() == whole
    main(config)
    assert path.read_bytes() == whole


def test_two_turns_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    main(composed("dataset=chat", "dataset.limit=1", *ASKED[2:], "model=tiny_general", f"output={path}"))
    first, second = read_traces(path)
    answer = [*first.prompt.ids, *first.output_ids]
    assert (first.prompt.turn, second.prompt.turn) == (0, 1)
    assert second.prompt.ids[: len(first.prompt.ids)].tolist() == answer[: len(first.prompt.ids)]
    assert len(second.prompt.ids) > len(first.prompt.ids)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((), "output: give the file"),
        (("output=FILE", "dry_run=true"), "dry_run: record does not take it; leave it out"),
        (("output=FILE", "shard=0/2"), "shard: record does not take it"),
        (("output=FILE", "method=hf_generate"), "method=hf_generate: give a drafter"),
        (("output=FILE", "method=space"), "method=space: give a drafter for the run's own model"),
        (("output=FILE", "dataset.limit=1", "model=tiny_general"), "answers of another model"),
        (("output=FILE", "measure.max_new_tokens=9"), "holds answers of at most 8 tokens, not 9: give another file"),
    ],
)
def test_what_it_cannot_record_is_one_line(tmp_path: Path, overrides: tuple[str, ...], message: str) -> None:
    path = tmp_path / "answers.jsonl"
    given = [part.replace("FILE", str(path)) for part in overrides]
    if "answers of" in message:
        main(composed(*ASKED, f"output={path}"))
    with pytest.raises((ConfigError, ValueError), match=message):
        main(composed(*ASKED, *given))
