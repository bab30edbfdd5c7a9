"""Questions dealt out to shards, and joined again: what comes out is the run of one process."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ngram_trie.bench import shards
from ngram_trie.bench.prepare import prepare
from ngram_trie.bench.records import SUMS, RunManifest, read_records, seal
from ngram_trie.bench.traces import read_traces
from ngram_trie.cli.commands import derive, measure
from ngram_trie.cli.overrides import composed
from ngram_trie.decoding import PhaseSeconds
from ngram_trie.methods import ConfigError
from ngram_trie.report import derive as derived
from ngram_trie.report.collect import collect
from ngram_trie.store.files import PROJECT

TRACES = PROJECT / "results" / "table1" / "tiny" / "traces.jsonl"
#: A replay with several categories, noise and a drafter that remembers; and a live run with turns of a conversation.
REPLAY = ("engine=replay", f"engine.traces={TRACES}", "engine.num_jobs=1", "noise={kinds: [passages], share: 0.3}")
REPLAY_METHODS = ("+method@methods.pld=pld", "+method@methods.suffix=suffix")
LIVE = (
    *("model.device=cpu", "+dataset@datasets.rag=rag", "+dataset@datasets.chat=chat", "datasets.rag.limit=2"),
    *("datasets.chat.limit=1", "measure.repeats=2", "measure.max_new_tokens=8", "+method@methods.pld=pld"),
)


def run(folder: Path, *overrides: str) -> Path:
    with contextlib.redirect_stdout(io.StringIO()):
        measure(composed([*overrides, f"output={folder}"]))
    return folder


def timeless(folder: Path) -> dict[str, bytes]:
    """The files of a run, derived again as if everything had taken the same time."""
    records = [
        replace(record, draft_us=[1.0] * len(record.draft_us), seconds=PhaseSeconds(0.1, 0.2, 0.3, 0.4))
        for record in read_records(folder / "records.jsonl")
    ]
    (folder / "records.jsonl").write_text("".join(f"{record.to_json()}\n" for record in records))
    seal(folder)
    derived.write(folder)
    kinds = (".jsonl", ".csv", ".json", ".md")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in kinds}


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [(*REPLAY, *REPLAY_METHODS), LIVE], ids=["replay", "live"])
def test_joined_shards_are_the_run_of_one_process(overrides: tuple[str, ...], tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", *overrides)
    for number in (1, 0):
        run(tmp_path / "dealt", *overrides, f"shard={number}/2")
    with contextlib.redirect_stdout(io.StringIO()):
        derive(tmp_path / "dealt")
    one, other = timeless(whole), timeless(tmp_path / "dealt")
    manifests = [RunManifest.read(folder / "manifest.json") for folder in (whole, tmp_path / "dealt")]
    assert one.keys() == other.keys() >= {"records.jsonl", "table.json", "table.md"}
    assert [name for name in one if one[name] != other[name]] == ["manifest.json"]
    assert manifests[1] == replace(
        manifests[0], started=manifests[1].started, environment=manifests[0].environment | {"shards": "2"}
    )


@given(st.integers(1, 9), st.data())
def test_every_question_is_dealt_once_with_all_its_turns_and_noise(of: int, data: st.DataObject) -> None:
    engine = prepare(composed(REPLAY))
    parts = []
    for number in range(min(of, len({item[:2] for item in engine.items}))):
        part = shards.deal(engine, number, of)
        assert part.manifest.shard and [item for _, item in part.manifest.shard.items] == list(part.items)
        assert part.manifest.run == engine.manifest.run
        parts.append(part)
    items = list(engine.items)
    dealt = sorted((place, item) for part in parts for place, item in zip(part.places or [], part.items, strict=True))
    assert dealt == list(enumerate(items))
    questions = [{item[:2] for item in part.items} for part in parts]
    assert sum(map(len, questions)) == len(set().union(*questions))
    assert {key for part in parts for key in part.keys} == set(engine.keys)


@pytest.mark.parametrize(
    ("environ", "shard"),
    [
        ({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "4"}, (3, 4)),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, (1, 2)),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}, (1, 8)),
        ({"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "3", "RANK": "1", "WORLD_SIZE": "2"}, (3, 6)),
    ],
)
def test_a_scheduler_says_which(environ: Mapping[str, str], shard: tuple[int, int]) -> None:
    assert shards.parse("auto", environ) == shard
    assert shards.parse("0/5", environ) == (0, 5)
    assert shards.parse(None, environ) is None


@pytest.mark.parametrize(
    ("given", "environ", "says"),
    [
        ("auto", {}, "neither SLURM_ARRAY_TASK_ID"),
        ("auto", {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "1"}, "submitted again in part"),
        ("4/4", {}, "from 0 to 3"),
    ],
)
def test_what_is_no_shard_is_said(given: str, environ: Mapping[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        shards.parse(given, environ)


def dealt(folder: Path, *numbers: int) -> Path:
    for number in numbers:
        run(folder, *REPLAY[:3], "method=pld", "engine.categories=[rag]", f"shard={number}/3")
    return folder


def test_what_is_missing_is_said_and_nothing_is_joined(tmp_path: Path) -> None:
    folder = dealt(tmp_path, 0, 1)
    with pytest.raises(ValueError, match="its shards are not joined: ngram-trie derive "):
        collect(folder)
    (folder / "shard-1-of-3" / SUMS).unlink()
    with pytest.raises(ValueError, match=r"shard-2-of-3 is not there; shard-1-of-3 has \d of \d answers") as error:
        shards.join(folder)
    assert "\n" not in str(error.value) and not (folder / "records.jsonl").exists()
    with pytest.raises(ConfigError, match="holds shard-0-of-3"):
        run(folder, *REPLAY[:3], "method=pld", "shard=0/1")
    with pytest.raises(ConfigError, match="no question is left for it"):
        run(tmp_path / "other", *REPLAY[:3], "method=pld", "engine.categories=[rag]", "shard=998/999")


def test_a_shard_without_an_answer_of_vanilla_leaves_the_others_their_traces(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "' + "word " * 3000 + '"}\n{"prompt": "A short one."}\n')
    for number in (1, 0):
        with contextlib.suppress(ConfigError):  # it says that nothing was answered
            run(
                tmp_path / "run",
                *("dataset=file", f"dataset.path={prompts}", "method=pld", "model.device=cpu"),
                *("measure.max_new_tokens=4", "measure.repeats=1", f"shard={number}/2"),
            )
    shards.join(tmp_path / "run")
    assert len(read_traces(tmp_path / "run" / "traces.jsonl")) == 1
    assert len(list(read_records(tmp_path / "run" / "records.jsonl"))) == 4


def test_a_run_in_one_piece_is_not_joined_over_and_notes_of_all_shards_are_kept(tmp_path: Path) -> None:
    folder = dealt(tmp_path / "dealt", 0, 1, 2)
    manifest = RunManifest.read(folder / "shard-2-of-3" / "manifest.json")
    replace(manifest, environment={**manifest.environment, "resumed": "late"}).write(
        folder / "shard-2-of-3" / "manifest.json"
    )
    seal(folder / "shard-2-of-3")
    for _ in range(2):
        shards.join(folder)
    joined = RunManifest.read(folder / "manifest.json")
    assert joined.environment["resumed"] == "late" and joined.environment["shards"] == "3"
    replace(joined, environment={}).write(folder / "manifest.json")
    records = (folder / "records.jsonl").read_bytes()
    with pytest.raises(ValueError, match="not joined: it holds a run that was measured in one piece"):
        shards.join(folder)
    assert (folder / "records.jsonl").read_bytes() == records


CHANGES: dict[str, dict[str, Any]] = {
    "commit aaa there, bbb here": {"commit": "bbb"},
    "model replay there, other here": {"model": "other"},
    "device a toy there, another here": {"device": "another"},
    "versions.torch .* there, 0 here": {"versions": {"torch": "0"}},
}


@pytest.mark.parametrize("says", CHANGES)
def test_shards_of_another_run_are_refused_by_name(says: str, tmp_path: Path) -> None:
    folder = dealt(tmp_path, 0, 1, 2)
    for number in range(3):
        path = folder / f"shard-{number}-of-3"
        manifest = replace(RunManifest.read(path / "manifest.json"), commit="aaa", device="a toy")
        changed = CHANGES[says] if number == 2 else {}
        if "versions" in changed:
            changed = {"versions": {**manifest.versions, **changed["versions"]}}
        replace(manifest, **changed).write(path / "manifest.json")
        seal(path)
    with pytest.raises(ValueError, match=f"shard-2-of-3 cannot be joined with shard-0-of-3: {says}"):
        shards.join(folder)
    shutil.rmtree(folder / "shard-2-of-3")


def test_a_drafter_that_remembers_remembers_within_its_shard_and_the_table_says_so(tmp_path: Path) -> None:
    folder = tmp_path
    for number in (0, 1):
        run(folder, *REPLAY[:3], "method=suffix_warm", "engine.categories=[rag]", f"shard={number}/2")
    shards.join(folder)
    assert "Per shard: suffix_warm remember the answers of one shard of 2 alone" in derived.main_tables(
        derived.write(folder)
    )


@pytest.mark.slow
def test_two_processes_of_torchrun_share_a_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "scripts.run", *REPLAY[:3], "method=pld", "shard=auto", f"output={tmp_path}"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    shards.join(tmp_path)
    assert RunManifest.read(tmp_path / "manifest.json").environment["shards"] == "2"
