"""The lines that end a run, and the warning of noise."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from support.records import manifest, record

from ngram_trie.bench.records import PromptRecord
from ngram_trie.report.run_folder import RunFolder
from ngram_trie.report.verdict import noise, verdict


def run(folder: Path, records: list[PromptRecord], engine: str = "live") -> RunFolder:
    config = {"engine": {"name": engine}, "methods": {}}
    manifest(config).write(folder / "manifest.json")
    return RunFolder(folder, records)


def answers(count: int, **seconds: float) -> list[PromptRecord]:
    steps = {"vanilla": (1, 1, 1)}
    return [record(m, str(q), steps.get(m, (3,)), s + 0.01 * q) for q in range(count) for m, s in seconds.items()]


def test_the_fastest_is_named_with_its_interval_and_what_is_not_separated(tmp_path: Path) -> None:
    said = verdict(run(tmp_path, answers(10, vanilla=4.0, pld=2.0, blend=2.0, slow=5.0))).splitlines()
    assert said[0] == "2 of 3 methods are faster than plain decoding on 10 prompts of qa with toy."
    assert said[1].startswith("Fastest: pld, 1.9") and said[1].endswith("(1.0 to 2.0 tokens/s).")
    assert said[2:] == ["It is not separated from blend."]
    alone = verdict(run(tmp_path, answers(10, vanilla=4.0, pld=2.0, slow=5.0))).splitlines()
    assert alone[2:] == ["It is separated from slow."]
    many = answers(10, vanilla=4.0, **{f"pld{n}": 2.0 for n in range(9)})
    assert verdict(run(tmp_path, many)).endswith("It is not separated from pld1, pld2, pld3, pld4, pld5 and 3 more.")


def test_a_noisy_copy_of_a_question_is_no_question_more(tmp_path: Path) -> None:
    clean = answers(4, vanilla=4.0, pld=2.0)
    noisy = [dataclasses.replace(each, noise_kind="paragraph") for each in clean]
    assert verdict(run(tmp_path, clean + noisy)) == verdict(run(tmp_path, clean))


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (answers(10, vanilla=2.0, pld=2.5), "No drafter is shown to be faster than plain decoding on 10 prompts"),
        (answers(3, vanilla=4.0, pld=2.0), "too few prompts to tell 1 method from plain decoding, give 6 or more"),
        (
            answers(9, vanilla=4.0, **{f"pld{n}": 2.0 for n in range(20)}),
            "to tell 20 methods from plain decoding, give 10",
        ),
        (answers(1, vanilla=4.0, pld=2.0), "one question gives no interval"),
    ],
)
def test_no_winner_is_named_where_none_is_shown(tmp_path: Path, records: list[PromptRecord], words: str) -> None:
    said = verdict(run(tmp_path, records))
    assert words in said and "fastest" not in said and "\n" not in said


def test_speeds_that_cannot_be_name_nobody(tmp_path: Path) -> None:
    said = verdict(run(tmp_path, answers(10, vanilla=10.0, pld=2.0, slow=12.0)))
    assert said.startswith("No verdict: pld is at 4.9") and "x on qa with 3.00 tokens a pass, which" in said
    both = answers(10, vanilla=4.0, pld=2.0)
    other = [dataclasses.replace(r, dataset="rag") for r in answers(10, vanilla=10.0, pld=2.0)]
    assert "x on rag with 3.00" in verdict(run(tmp_path, both + other))  # over both it would be possible
    own = [dataclasses.replace(r, kind="decoder", method="library") if r.method == "pld" else r for r in other]
    assert "library is at 4.9" in verdict(run(tmp_path, own))
    late = [dataclasses.replace(r, seconds=dataclasses.replace(r.seconds, total=9 + r.seconds.total, prefill=9.0))
            for r in answers(10, vanilla=4.0, pld=1.0) if r.seconds]  # fmt: skip
    assert "pld is at 3.8" in verdict(run(tmp_path, late))  # by decoding alone
    manifest({"engine": {"name": "live", "backend": "stock"}, "methods": {}}).write(tmp_path / "manifest.json")
    assert "No verdict" not in verdict(RunFolder(tmp_path, own))  # a network of its own may be faster
    short = [dataclasses.replace(r, accept_lengths=[], output_ids=[7]) for r in answers(8, vanilla=4.0, pld=2.0)]
    verdict(run(tmp_path, short))  # an answer of one token has no steps
    times = [(m, str(q), (3,), 4.0 + 8 * q - 2 * (m == "pld"), 1.0) for q in range(6) for m in ("vanilla", "pld")]
    scattered = [record(*each) for each in times]
    said = verdict(run(tmp_path, scattered))
    assert said.startswith("No verdict: plain decoding's steps scatter by ") and "one core" not in said  # it had one
    two = dataclasses.replace(manifest({"engine": {"name": "live"}, "methods": {}}), num_threads=2)
    two.write(tmp_path / "manifest.json")
    assert "on one core (OMP_NUM_THREADS=1)" in verdict(RunFolder(tmp_path, scattered))


def test_a_replay_speaks_of_accept_lengths(tmp_path: Path) -> None:
    records = [record("pld", str(q), (2, 1)) for q in range(3)] + [record("blend", str(q), (3,)) for q in range(3)]
    said = verdict(run(tmp_path, records, "replay"))
    assert said.startswith("blend: 3.00 tokens per pass, the most of these drafters, over 3 recorded answers of toy.")


def timed(prompt: int, seconds: float) -> PromptRecord:
    made = record("vanilla", f"{prompt}-{seconds}", (1,) * 10, seconds=seconds + 1, prefill=1.0)
    return dataclasses.replace(made, num_prompt_tokens=prompt)


def test_scattered_steps_of_plain_decoding_are_noise_and_longer_texts_are_not(tmp_path: Path) -> None:
    by_length = [timed(length, 1.0 + length / 100) for length in (10, 60, 110, 160, 210)]
    assert noise(run(tmp_path, by_length)) == ""
    assert "scatter by" in noise(run(tmp_path, [timed(10, s) for s in (1.0, 1.9, 1.1, 0.7, 1.5)]))
    assert noise(run(tmp_path, [timed(10, s) for s in (1.0, 1.9)])) == ""
    other = [dataclasses.replace(timed(10, 2 + s), method="own", baseline="own") for s in (1.0, 1.01, 1.02, 1.03)]
    assert noise(run(tmp_path, by_length[:4] + other)) == ""  # a target of another speed
