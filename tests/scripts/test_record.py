"""Recording answers: they are vanilla's, and an interrupted recording goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig
from support.plain import greedy

from ngram_trie import built
from ngram_trie.cli import overrides as command_line
from ngram_trie.config import ConfigError
from ngram_trie.engines.likely_file import companion
from ngram_trie.engines.prepare import load_target
from ngram_trie.engines.traces import read_traces
from ngram_trie.records import RunManifest, read_records
from scripts import run
from scripts.record import main

ASKED = ("dataset=rag", "dataset.limit=2", "method=blend", "measure.max_new_tokens=20", "model.device=cpu")


def composed(*given: str) -> DictConfig:
    return command_line.composed(list(given))


def test_answers_are_the_models_own_and_a_cut_recording_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "new" / "answers.jsonl"
    config = composed(*ASKED, f"output={path}")
    main(config)
    whole = path.read_bytes()
    traces = read_traces(path)
    model = load_target(config).model
    assert len(traces) == 2
    for trace in traces:
        assert trace.output_ids == greedy(model, trace.prompt.ids.tolist(), 20)
        assert trace.max_output_tokens == 20 and trace.stop_reason == "max_new_tokens"
    path.write_bytes(whole[: len(whole) - 30])  # killed in the middle of a line
    main(config)
    assert path.read_bytes() == whole
    main(config)
    assert path.read_bytes() == whole


def test_two_turns_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    main(composed("dataset=chat", "dataset.limit=1", *ASKED[2:], "model=embedded_general", f"output={path}"))
    first, second = read_traces(path)
    answer = [*first.prompt.ids, *first.output_ids]
    assert (first.prompt.turn, second.prompt.turn) == (0, 1)
    assert second.prompt.ids[: len(first.prompt.ids)].tolist() == answer[: len(first.prompt.ids)]
    assert len(second.prompt.ids) > len(first.prompt.ids)


def test_likely_tokens_are_written_beside_the_answers_and_replayed(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    rows = companion(path)
    config = composed(*ASKED, "likely=8", f"output={path}")
    main(config)
    whole = path.read_bytes(), rows.read_bytes()
    traces = read_traces(path)
    for trace in traces:
        assert trace.likely and (trace.likely.k, trace.likely.num_rows) == (8, len(trace.prompt.ids) + 19)
        assert trace.likely.map()["tokens"][len(trace.prompt.ids) - 1 :, 0].tolist() == trace.output_ids
    path.write_bytes(whole[0][:-30])  # killed in the middle of a line: its rows are there
    main(config)
    assert (path.read_bytes(), rows.read_bytes()) == whole
    rows.write_bytes(whole[1][:-30])  # killed in the middle of the rows: there is no line yet
    path.write_bytes(whole[0][: whole[0].index(b"\n") + 1])
    main(config)
    assert (path.read_bytes(), rows.read_bytes()) == whole
    for other in ("likely=null", "likely=4"):
        with pytest.raises(ConfigError, match=rf"{other}: .*answers\.jsonl was begun with likely=8"):
            main(composed(*ASKED, other, f"output={path}"))

    replayed = [f"engine.traces={path}", "engine=replay", "method=token_recycling", f"output={tmp_path / 'run'}"]
    records = list(read_records(run.measure(composed(*replayed)) / "records.jsonl"))
    assert len(records) == 2 and all(record.lower_bound for record in records)
    table = (tmp_path / "run" / "table.md").read_text(encoding="utf-8")
    assert "Lower bounds, not exact: token_recycling." in table
    manifest = RunManifest.read(tmp_path / "run" / "manifest.json")
    assert manifest.prompts != built.digest(path)  # what was read of the model decides the run, too
    rows.unlink()
    with pytest.raises(ConfigError, match=r"likely=8: .* was begun with likely=null"):
        main(config)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((), "output: give the file"),
        (("output=FILE", "method=hf_generate"), "method=hf_generate: give a drafter"),
        (("output=FILE", "likely=99999999"), r"likely=99999999: must be less than or equal to 1024"),
        (("output=FILE", "method=space"), "method=space: give a drafter for the run's own model"),
        (("output=FILE", "dataset.limit=1", "model=embedded_general"), "answers of another model"),
    ],
)
def test_what_it_cannot_record_is_one_line(tmp_path: Path, overrides: tuple[str, ...], message: str) -> None:
    path = tmp_path / "answers.jsonl"
    given = [part.replace("FILE", str(path)) for part in overrides]
    if "another model" in message:
        main(composed(*ASKED, f"output={path}"))
    with pytest.raises((ConfigError, ValueError), match=message):
        main(composed(*ASKED, *given))
