"""The paper profile, end to end on local stand-ins: the plan, the steps, the run, and what stops it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from support.hub_server import HubServer, Repository

from ngram_trie.cli import plan
from ngram_trie.cli.app import invoke
from ngram_trie.files import CONFIGS, PROJECT
from scripts import build_datastore, reproduce_paper

PARTS = PROJECT / "data" / "embedded"
PASSAGE = (
    "Hobbs Gardens was given in 1912 to the people of Garhaven. Hobbs Gardens has a fountain that was cut by hand."
)


def status(*arguments: str) -> object:
    """The exit status, or the line of an error."""
    try:
        invoke(reproduce_paper.main, arguments)
    except SystemExit as ended:
        return ended.args[0] if ended.args else 0
    return 0


def lines(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Settings that put the embedded model and small files of the published layouts in the place of the hub's."""
    monkeypatch.setattr(reproduce_paper, "RESULTS", tmp_path)
    text = tmp_path / "text.txt"
    text.write_text((PASSAGE + "\n\n") * 3)
    datastore = tmp_path / "datastore_vicuna-7b-v1.3"
    invoke(build_datastore.main, [str(text), "--tokenizer", str(PARTS / "model"), "--output", str(datastore)])
    spec = [
        {"question_id": number, "category": category, "turns": [turn.format(PASSAGE)]}
        for category, turn in (("summarization", "Summarize: {0}"), ("rag", "{0}\nWhen was it given?"))
        for number in range(241, 244)
    ]
    spec_bench = lines(tmp_path / "question.jsonl", spec)
    trivia = {"question": "When was it given?", "answers": ["1912"], "passages": [{"title": "", "text": PASSAGE}] * 5}
    contexts = lines(tmp_path / "contexts.jsonl", [trivia | {"id": f"t{number}"} for number in range(2)])
    quote = {"idx": 1, "docid": "1#1", "text": PASSAGE}
    answer = {"answer": "In 1912 [1].", "informative": 1, "attributable": 1, "sentences": []}
    attributed = {"query": "When was it given?", "quotes": [quote], "answers": [answer]}
    hagrid = lines(tmp_path / "hagrid.jsonl", [attributed | {"query_id": number} for number in range(2)])
    return [
        f"model.path={PARTS / 'model'}",
        *("model.revision=null", "model.dtype=float32", "model.device=cpu"),
        *("model.chat_template=null", "model.tokenizer={}"),
        *(f"datasets.spec_bench_{task}.path={spec_bench}" for task in ("summarization", "rag")),
        *(f"datasets.spec_bench_{task}.checksum=null" for task in ("summarization", "rag")),
        *(f"datasets.spec_bench_{task}.limit=1" for task in ("summarization", "rag")),
        f"datasets.triviaqa.path={contexts}",
        f"datasets.hagrid.path={hagrid}",
        *(f"datasets.{name}.warmup=1" for name in reproduce_paper.DATASETS),
        f"methods.rest.datastore={datastore}",
        *(f"methods.sps.draft_model={PARTS / 'draft_model'}", "methods.sps.revision=null"),
        *(f"methods.medusa.heads={PARTS / 'medusa'}", "methods.medusa.tree=likely"),
        *(f"methods.hydra.heads={PARTS / 'hydra'}", "methods.hydra.tree=likely"),
        *(f"methods.space.model={PARTS / 'space'}", "methods.space.mask_id=3072"),
        "measure.max_new_tokens=8",
        f"output={tmp_path / 'table1'}",
    ]


@pytest.mark.slow
def test_it_ends_in_the_files_of_the_embedded_run_with_three_readings(
    tmp_path: Path, stand_ins: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert status("--models", "vicuna_7b", *stand_ins) == 0
    printed = capfd.readouterr().out
    assert "REST's datastore of ShareGPT for vicuna_7b (without: ~methods.rest): done" in printed
    assert "GB, to download" not in printed  # everything lies in folders
    folder = tmp_path / "table1"
    names = {path.name for path in folder.iterdir()}
    assert names >= {"records.jsonl", "manifest.json", "traces.jsonl", "table.csv", "table.md", "phases.csv"}
    table = pd.read_csv(folder / "table.csv")
    paper = {"vanilla", "sps", "medusa", "space", "hydra", "lookahead", "rest", "ngram_trie"}
    assert set(table.method) >= paper and not table.lossless.str.contains("DIFFERENT").any()
    readings = pd.read_csv(folder / "readings.csv")
    one = readings[(readings.method == "ngram_trie") & (readings.dataset == "spec_bench_rag")].set_index("reading")
    assert set(one.index) == {"paper", "released", "corrected"}
    assert (one.speedup["paper"], one.accept_length["paper"]) == (3.48, 5.19)
    assert set(one.source) == {"published", "measured"}


def test_the_plan_names_every_download_and_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reproduce_paper, "RESULTS", tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a plan runs nothing"))
    assert status("--models", "vicuna_7b", "--models", "llama2_7b_chat", "--plan") == 0
    printed = capsys.readouterr().out
    for name in ("BGE-M3", "lmsys/vicuna-7b-v1.3", "ankner/hydra-vicuna-7b-v1.3", "meta-llama/Llama-2-7b-chat-hf"):
        assert name in printed
    assert "JackFram/llama-68m" in printed and "In all:" in printed and not list(tmp_path.iterdir())
    assert "gated: accept the Llama 2 Community License at https://huggingface.co/meta-llama" in printed
    steps = [line.partition(": ")[0] for line in printed.splitlines() if line[0].isdigit()]
    assert steps[0].endswith("weights for vicuna_7b") and steps[1].endswith("weights for llama2_7b_chat")
    assert status("--table=4", "--plan", "--datasets=spec_bench_rag") == 0
    printed = capsys.readouterr().out
    assert "Qwen/Qwen2-7B-Instruct" in printed and "~datasets.hagrid" in printed and "Wikipedia" not in printed


@pytest.mark.parametrize(("gigabytes", "fits"), [(24, False), (140, True)])
def test_space_stays_out_where_its_model_does_not_fit(
    gigabytes: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce_paper, "gpu_gb", lambda: gigabytes)
    steps = reproduce_paper.plan(1, ["vicuna_7b"], ["hagrid"], ["~methods.hydra"])
    names = {part.name for part in steps[0].downloads}
    assert ("~methods.space" not in steps[-1].command) == fits == ("AntMan/vicuna-v1.3-7b-space" in names)
    assert "ankner/hydra-vicuna-7b-v1.3" not in names and ("without SPACE" in steps[-1].about) != fits
    # leaving it out oneself is no conflict
    own = reproduce_paper.plan(1, ["vicuna_7b"], ["hagrid"], ["~methods.space"])
    assert own[-1].command.count("~methods.space") == 1


def test_what_lies_there_already_needs_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce_paper, "RESULTS", tmp_path)

    def room() -> float:
        index = reproduce_paper.retrieval_steps(tmp_path / "paper" / "triviaqa")[0]
        return sum(part.gigabytes for part in index.downloads if not part.repository) + sum(gb for _, gb in index.disk)

    assert room() > 80
    vectors = tmp_path / "retrieval" / "psgs_w100-bge_m3" / "vectors"
    vectors.mkdir(parents=True)
    (vectors / "header.json").write_text("{}")
    with (vectors / "shard-00000.npy").open("wb") as file:
        file.truncate(40 * 10**9)  # sparse
    assert room() == pytest.approx(10, abs=0.1)


@pytest.mark.slow
def test_weights_are_fetched_in_one_kind_and_told_apart_from_their_absence(tmp_path: Path) -> None:
    both = tmp_path / "both"
    (both / "original").mkdir(parents=True)
    for name in ("model.safetensors", "pytorch_model.bin", "config.json", "original/consolidated.pth"):
        (both / name).write_text(name)
    heads = tmp_path / "heads"
    heads.mkdir()
    (heads / "medusa_lm_head.pt").write_text("weights")
    commit = "a" * 40
    repositories = {
        ("model", "someone/both"): Repository({commit: both}),
        ("model", "someone/heads"): Repository({"main": heads}),
        ("model", "someone/gated"): Repository({"main": both}, "gated"),
    }
    with HubServer(repositories) as hub:
        environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "home")}
        environment.pop("HF_TOKEN", None)

        def fetch(*names: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "scripts.reproduce_paper", *(f"--fetch={name}" for name in names)]
            return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=120)

        done = fetch(f"someone/both@{commit}", "someone/heads", "someone/gated")
        files = {path.name for path in (tmp_path / "home" / "hub").glob("models--*/snapshots/*/*")}
        assert files == {"model.safetensors", "config.json", "medusa_lm_head.pt"}
        assert done.returncode == 2 and done.stderr.strip().splitlines()[-1] == (
            "error: someone/gated cannot be fetched: it is gated and no token was given: accept the licence at "
            "https://huggingface.co/someone/gated, then `hf auth login` or set HF_TOKEN"
        )


def test_what_cannot_work_is_said_before_anything_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("nothing must run"))
    monkeypatch.setattr(reproduce_paper.torch.cuda, "is_available", lambda: False)
    for line, message in (
        ("--models vicuna_7", "--models: vicuna_7: did you mean vicuna_7b"),
        ("--datasets trivia_qa", "--datasets: trivia_qa: did you mean triviaqa?"),
        ("--table 3", "--table: 3: no such name. There are: 1, 4"),
        ("datasets.hagrid.pth=x", "datasets.hagrid.pth=x: datasets.hagrid has no such setting; did you mean path"),
        ("--models vicuna_7b", "torch sees no GPU here"),
    ):
        assert str(status(*line.split())).startswith(f"error: {message}")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, 10**9))
    message = str(status("--models", "vicuna_7b", "model.device=cpu"))
    assert "1 GB are free" in message and "HF_HOME" in message and "\n" not in message


def test_what_a_failing_step_ends(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made"
    fails, makes = ["-c", "raise SystemExit(3)"], ["-c", f"open({str(made)!r}, 'w')"]

    def carried_out(**about: bool) -> int:
        made.unlink(missing_ok=True)
        return plan.carry_out([plan.Step("first", fails, **about), plan.Step("second", makes)])

    assert carried_out() == 3 and not made.exists()
    assert "error: first: failed; mend the cause and give the same command again" in capfd.readouterr().err
    assert carried_out(last=True) == 3 and made.exists()  # another model's turn


@pytest.mark.slow
def test_every_command_of_the_plan_is_one_that_its_script_takes() -> None:
    for table, models in reproduce_paper.MODELS.items():
        for step in reproduce_paper.plan(table, models, reproduce_paper.DATASETS):
            script, arguments = step.command[1], list(step.command[2:])
            if script in ("scripts.build_index", "scripts.retrieve"):
                with initialize_config_dir(str(CONFIGS), version_base="1.3"):
                    config = compose("retrieval", arguments)
                assert str(config.folder).endswith("psgs_w100-bge_m3")
            elif script == "scripts.run":
                config = reproduce_paper.composed(arguments)
                assert list(config.datasets) == list(reproduce_paper.DATASETS)
                assert config.model.name in config.output
                assert config.datasets.triviaqa.path.endswith("paper/triviaqa/contexts.jsonl")
            elif script == "scripts.build_datastore":
                named = arguments[arguments.index("--tokenizer") + 1]
                assert (CONFIGS / "model" / f"{named}.yaml").exists()
            else:
                assert script == "scripts.reproduce_paper" and arguments[0] == "--fetch"
