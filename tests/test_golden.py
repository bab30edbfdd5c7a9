"""What must not change while the code does: committed runs derive again byte by byte, committed answers replay to the
live steps, configurations keep their identity, and every `_target_` that a manifest names can be imported.

A change that is meant: `python tests/test_golden.py` writes golden/identities.json anew; say in CHANGELOG why.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest import mock

import pytest
from omegaconf import OmegaConf

from ngram_trie.bench.config import named, resolve
from ngram_trie.bench.live import split_missing
from ngram_trie.bench.records import INPUTS, SUMS, RecordKey, RunManifest, read_records, records_file
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import read_traces
from ngram_trie.cli.overrides import composed
from ngram_trie.drafter import Drafter
from ngram_trie.methods import build, choices, imported
from ngram_trie.report import derive, run_folder
from ngram_trie.store.files import CONFIGS, PROJECT, content_hash

RESULTS = PROJECT / "results"
IDENTITIES = Path(__file__).parent / "golden" / "identities.json"
RUNS = sorted(path.parent for path in RESULTS.rglob("records.jsonl.gz"))
#: The one that is quickly derived.
SMALL = RESULTS / "table3" / "tiny"
#: What a run writes in words and numbers. Figures depend on the fonts at hand.
TEXTS = (".csv", ".json", ".md")


def name_of(run: Path) -> str:
    return str(run.relative_to(RESULTS))


@pytest.mark.parametrize(
    "run", [pytest.param(run, id=name_of(run), marks=() if run == SMALL else pytest.mark.slow) for run in RUNS]
)
def test_committed_run_derives_again(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "CALIBRATIONS", run_folder.KEPT)
    derived = tmp_path / "run"
    derived.mkdir()
    for name in (*INPUTS, SUMS):
        if (run / name).exists():
            shutil.copy(run / name, derived / name)
    derive.write(derived, without_loops=(run / "table_without_loops.json").exists())
    kept = [file for file in run.rglob("*") if file.suffix in TEXTS and (file.parent == run or file.parent not in RUNS)]
    differing = [str(f.relative_to(run)) for f in kept if f.read_bytes() != (derived / f.relative_to(run)).read_bytes()]
    assert not differing and {"table.json", "table.md"} <= {file.name for file in kept}


def recorded_methods(config: dict[str, Any]) -> dict[str, Drafter]:
    """The methods of a recorded run that a replay repeats and whose parts are here: cold, or with a built store. One
    that remembers answers has also met the live run's warm-up.
    """
    whole = {"methods": {}, "grid": None, "method": None, **config}
    built = {name: build(part, f"method {name}") for name, part in named(whole, "method").items()}
    there, _ = split_missing(built)
    return {
        name: method
        for name, method in there.items()
        if isinstance(method, Drafter) and method.traits.reads == "tokens" and method.traits.state != "warm"
    }


@pytest.mark.slow
@pytest.mark.parametrize("run", [run for run in RUNS if (run / "traces.jsonl").exists()], ids=name_of)
def test_committed_answers_replay_to_the_live_steps(run: Path) -> None:
    manifest = RunManifest.read(run / "manifest.json")
    if manifest.config["engine"].get("verify") == "rows":
        pytest.skip("rows verify several drafts at once; a replay verifies their tree")
    live = {record.key: record for record in read_records(records_file(run))}
    traces = list(read_traces(run / "traces.jsonl"))
    methods = recorded_methods(manifest.config)
    if set(methods) <= {"vanilla"}:
        pytest.skip("its methods read more than tokens, or their tables are not built here")
    for name, method in methods.items():
        for trace in traces:
            record = live.get(RecordKey(name, *trace.key))
            if record and not record.failure:
                result = replay(method, trace, manifest.config["engine"]["max_draft"])
                assert (name, trace.key, result.accept_lengths) == (name, trace.key, record.accept_lengths)
                assert result.tree_sizes == record.tree_sizes


def identities() -> dict[str, str]:
    """Hash of the resolved configuration of each experiment, and of the default one with each single choice."""
    asked = [f"experiment={name}" for name in choices()["experiment"]]
    asked += [f"{group}={name}" for group in ("model", "dataset", "method") for name in choices()[group]]
    asked[asked.index("model=local")] += " model.path=FILE"
    asked[asked.index("experiment=ablation_blend")] += " engine.traces=answers.jsonl"
    replayed = "engine=replay engine.traces=answers.jsonl"
    asked += [replayed, f"{replayed} experiment=drafters", "grid={n:[8,9]}"]
    with mock.patch.dict(os.environ):
        os.environ.pop("SPEC_BENCH", None)  # where a local copy of that file lies
        return {overrides: content_hash(resolve(composed(overrides.split()))) for overrides in asked}


@pytest.mark.slow
def test_configurations_keep_their_identity() -> None:
    assert identities() == json.loads(IDENTITIES.read_text(encoding="utf-8"))


def targets(value: Any) -> set[str]:
    """All `_target_` strings within a configuration."""
    if isinstance(value, dict):
        own = {value["_target_"]} if isinstance(value.get("_target_"), str) else set()
        return own.union(*(targets(part) for part in value.values()))
    return set().union(*(targets(part) for part in value)) if isinstance(value, list) else set()


def test_every_target_that_a_file_names_can_be_imported() -> None:
    manifests = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.rglob("manifest.json")]
    configs = [OmegaConf.to_container(OmegaConf.load(path), resolve=False) for path in CONFIGS.rglob("*.yaml")]
    found = set().union(*(targets(each) for each in [*manifests, *configs]))
    assert len(found) > 30
    for name in sorted(found):
        assert callable(resolve_name(imported(name))), name


if __name__ == "__main__":
    IDENTITIES.write_text(json.dumps(identities(), indent=1) + "\n", encoding="utf-8")
