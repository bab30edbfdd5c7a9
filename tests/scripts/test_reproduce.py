"""Recipes: every command of every target exists and composes; what is there is not made again."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from ngram_trie.cli.app import invoke
from ngram_trie.cli.overrides import composed
from ngram_trie.store.files import PROJECT
from scripts import reproduce
from scripts.reproduce import Asked, steps

QWEN = "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF"
TRACES = PROJECT / "results" / "table1" / "tiny" / "traces.jsonl"


def asked(profile: str = "small", traces: Path | None = None, model: str | None = None) -> Asked:
    return Asked(profile, "docs", traces, traces, None, None, 1, "main", model)


@pytest.mark.slow
@pytest.mark.parametrize("target", reproduce.TARGETS)
def test_every_command_exists_and_composes(target: str) -> None:
    ways = [asked("small"), asked("tiny"), asked(traces=TRACES)]
    commands = {tuple(each) for way in ways for _, found in steps(target, way) for each in found}
    for name, *options in commands:
        assert name in reproduce.COMMANDS or importlib.util.find_spec(f"scripts.{name}"), name
        assert "{" not in " ".join(options)
        if name == "run":
            composed(options)


@pytest.mark.parametrize(
    ("rows", "kind"), [(None, ["tau_bench", "an a"]), (Path("rows"), ["longbench", "an a", "rows"])]
)
def test_recordings_as_text_become_token_ids_and_are_replayed(rows: Path | None, kind: list[str]) -> None:
    way = Asked("small", "docs", Path("an a"), rows, "its own", None, 1, "main", None)
    ((_, (made, replayed)),) = steps("recordings", way)
    ((_, (built, *runs, _)),) = steps("drafters", replace(way, store=Path("an a")))
    assert built[1] == "an a" and all(composed(run[1:]).engine.traces == "an a" for run in runs)
    assert made[: len(kind) + 1] == ["import_answers", *kind] and made[made.index("--tokenizer") + 1] == "its own"
    assert composed(replayed[1:]).engine.traces == made[made.index("--output") + 1]


def test_needs_go_first_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "PROJECT", tmp_path)  # where nothing is there yet
    made = [command for _, commands in steps("all", asked()) for command in commands]
    names = [f"{command[0]} {command[1]}" if command[1:] else command[0] for command in made]
    assert len(made) == len(set(map(tuple, made)))
    assert names.index("build_docs") < names.index("run experiment=table1_small")
    assert names.index("record experiment=docs") < names.index("run experiment=grid")


def test_what_is_there_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "PROJECT", tmp_path)
    before = [about for about, _ in steps("table1", asked("tiny"))]
    (tmp_path / "results/local/datastore").mkdir(parents=True)
    (tmp_path / "results/local/datastore/header.json").touch()
    after = [about for about, _ in steps("table1", asked("tiny"))]
    assert [about for about in before if about not in after] == ["REST's datastore of training answers (seconds)"]


def test_a_dry_run_prints_commands_and_arguments_reach_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    invoke(reproduce.main, ["table1", "datasets.docs_rag.limit=1", "--dry-run"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("   python -m scripts.run experiment=table1_small") and last.endswith("limit=1")


@pytest.mark.parametrize(
    ("model", "name", "path"),
    [
        ("qwen2.5_coder_0.5b", "qwen2.5-coder-0.5b", f"{QWEN}/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
        ("data/tiny/model", "model", str(PROJECT / "data/tiny/model")),
        ("owner/name", "name", "owner/name"),
        ("owner/name/some.gguf", "some", "owner/name/some.gguf"),
    ],
)  # fmt: skip
def test_table_1_of_any_model(model: str, name: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    ((_, ((script, *options),)),) = steps("table1", asked(model=model))
    run = composed(options)
    assert (script, run.model.name, run.model.path) == ("run", name, path)
    assert f"output=results/local/{name}/table1" in options
    assert {"hf_generate", "library"} < set(run.methods) and not {"rest", "ngrammys_mixed"} & set(run.methods)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["table9"], "table9: did you mean"),
        (["table2", "--profile", "paper"], "for table1 and table4, not table2"),
        (["drafters"], "drafters: give recorded answers"),
        (["engines"], "engines: give a copy of github SpecDecode-Bench"),
        (["recordings", "--traces", "data"], "recordings: give them and the tokenizer"),
        (["table2", "--traces", "nowhere.jsonl"], "no such file"),
        (["table1", "--profile", "paper", "--data", "spec_bench"], "DATA=spec_bench: not of the paper profile"),
        (["table1", "--profile", "paper", "--rows", "all"], "ROWS=all: not of the paper profile"),
        (["table1", "--profile", "paper", "--model", "qwen2.5_coder_0.5b"], "of the small profile, leave out PROFILE"),
        (["table1", "--profile", "paper", "--model", "vicuna"], "MODEL=vicuna: did you mean"),
        (["table2", "--model", "qwen2.5_coder_0.5b"], "of table1 with the main rows"),
        (["table1", "--profile", "tiny", "--data", "spec_bench"], "DATA=spec_bench: not of PROFILE=tiny"),
        (["table1", "--traces", "data"], "TRACES=data: nothing of table1 takes it"),
        (["table2", "--output", "folder"], "OUTPUT=folder: nothing of table2 takes it"),
        (["table3", "--sessions", "2"], "SESSIONS=2: nothing of table3 takes it"),
        (["table2", "--anyway"], "ANYWAY: of PROFILE=paper"),
        (["figure4", "datasets.docs_rag.limit=1"], "limit=1: no command of figure4 takes more"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: list[str], line: str) -> None:
    with pytest.raises(SystemExit, match=line):
        invoke(reproduce.main, [*arguments, "--dry-run"])


def test_what_is_taken_is_not_refused(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--output", "results/local/smollm2-135m/table1"], ["--sessions", "2"], ["--rows", "all"]
    for more in (*given, ["--data", "spec_bench"], ["--profile", "tiny"], ["datasets.docs_rag.limit=1"]):
        invoke(reproduce.main, ["table1", *more, "--dry-run"])
    invoke(reproduce.main, ["figure3", "--tokenizer", "smollm2_135m", "--dry-run"])
    invoke(reproduce.main, ["all", "--traces", "data", "--data", "spec_bench", "--dry-run"])
    assert "python -m scripts.case_study" in capsys.readouterr().out
