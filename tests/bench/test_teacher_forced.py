"""Real forwards with recorded tokens, random weights, and which backend a configuration comes to."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from support.teacher_forced import MANIFEST, TINY, traces
from support.tiny import tiny_target
from transformers import AutoConfig, AutoModelForCausalLM

from ngram_trie.baselines.sps import SpS
from ngram_trie.bench import models, prepare
from ngram_trie.bench.config import changed
from ngram_trie.bench.measure import measure
from ngram_trie.bench.records import RecordKey, RecordWriter, read_records
from ngram_trie.bench.replay import replay
from ngram_trie.bench.teacher_forced import TeacherForced, TeacherForcedTarget
from ngram_trie.bench.traces import Trace, read_traces
from ngram_trie.blend.variants import BlendDrafter
from ngram_trie.budget.adaptive import AdaptiveDrafter
from ngram_trie.cli.overrides import composed
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafter import Drafter, Traits
from ngram_trie.drafters import NgramTrieDrafter, NoDraft
from ngram_trie.methods import ConfigError, build
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import CONFIGS, PROJECT
from ngram_trie.targets import choose, costs, cpu
from ngram_trie.targets.load import load_model, random_model
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.plan import Plan, plan_of
from scripts import run

ARCHITECTURES = sorted(path.name for path in (PROJECT / "data" / "architectures").iterdir())


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(TINY))
    (tmp_path / "traces.jsonl").write_text("".join(trace.to_json() + "\n" for trace in traces()))
    return tmp_path / "tiny", tmp_path / "traces.jsonl"


@pytest.mark.parametrize("backend", ["stock", "cuda_graph", "cpu"])
def test_a_forced_run_takes_the_recorded_tokens_and_the_models_seconds(
    files: tuple[Path, Path], tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    architecture, path = files
    config = composed([
        "engine=teacher_forced", f"engine.traces={path}", f"engine.backend={backend}", "model.weights=random",
        f"model.architecture={architecture}", "model.name=tiny", "model.device=cpu", "engine.num_threads=1",
        "measure.repeats=2", "engine.max_draft=16", "method.num_draft=8", f"output={tmp_path / 'run'}",
    ])  # fmt: skip
    folder = run.measure(config)
    records = list(read_records(folder / "records.jsonl"))
    assert len(records) == 3 * 2 * 2
    for record in records:
        trace = traces()[int(record.question_id)]
        if record.question_id == "2":
            assert record.failure and record.failure.kind == "prompt_too_long"
            continue
        assert record.output_ids == trace.output_ids and record.lossless is None
        assert record.seconds and record.seconds.verify > 0 and record.seconds.prefill > 0
        drafter = NoDraft() if record.method == "vanilla" else NgramTrieDrafter(n=13, prefix_len=3, num_draft=8)
        assert record.accept_lengths == replay(drafter, trace, 16).accept_lengths
        assert (max(record.accept_lengths) > 1) == (record.method != "vanilla")
    name = "tiny (random weights), tokens forced from traces.jsonl"
    assert {record.model for record in records} == {name}
    shown = capsys.readouterr().out
    assert f"{name}, corrected protocol" in " ".join(shown.split()) and "ngram_trie not compared" in shown
    frame = pd.read_csv(folder / "table.csv")
    corrected = frame[(frame.protocol == "corrected") & (frame.dataset == "rag")]
    assert corrected.speedup.notna().all()
    before = (folder / "records.jsonl").read_bytes()
    run.measure(config)  # finished
    assert (folder / "records.jsonl").read_bytes() == before


def engine(methods: dict[str, Drafter], made: list[Trace], target: TargetModel) -> TeacherForced:
    return TeacherForced(MANIFEST, "m", methods, {trace.key: trace for trace in made}, ["rag"], 1, lambda: target)


def test_sessions_of_a_configuration_read_the_weights_again(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    drawn = prepare.random_model
    monkeypatch.setattr(prepare, "random_model", lambda *args, **options: asked.append("x") or drawn(*args, **options))
    prepare.cached_model.cache_clear()
    overrides = [
        "engine=teacher_forced", f"engine.traces={files[1]}", "model.weights=random", f"model.architecture={files[0]}",
        "model.name=tiny", "model.device=cpu", "measure.repeats=1", "measure.sessions=2", "engine.max_draft=16",
        "method=suffix", "method.remember_outputs=true", "method.num_draft=8",
    ]  # fmt: skip
    folder = run.measure(composed([*overrides, f"output={tmp_path / 'run'}"]))
    assert asked == ["x", "x"]
    records = list(read_records(folder / "records.jsonl"))
    assert [r.session for r in records] == [0] * 6 + [1] * 6
    steps = {r.key: r.accept_lengths for r in records}
    for key, lengths in steps.items():  # what is remembered is of the session alone
        assert lengths == steps[key._replace(session=0)]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {"session 0", "session 1"} <= set(manifest["environment"])
    for wrong in ("measure.sessions=0", "measure.session_pause_s=-1"):
        with pytest.raises(ConfigError, match=wrong.partition("=")[0]):
            composed([*overrides, wrong])


class Remembers(NoDraft):
    """Tells which prompts it was started on."""

    def __init__(self, warm: bool) -> None:
        super().__init__()
        self.started: list[str] = []
        self.answers: list[int] = []
        self.traits = Traits(state="warm" if warm else "cold")

    def start(self, prompt: Prompt) -> None:
        self.started.append(prompt.question_id)
        super().start(prompt)

    def observe(self, new_ids: Sequence[int]) -> None:
        self.answers += new_ids
        super().observe(new_ids)


def test_a_drafter_that_remembers_knows_no_answer_beforehand_and_all_after_an_interruption(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    target = TargetModel(random_model(str(files[0]), device="cpu"), max_draft=16)
    first, second, too_long = traces()
    empty = dataclasses.replace(first, prompt=dataclasses.replace(first.prompt, question_id="none"), output_ids=[])
    ordered = [too_long, empty, first, second]  # the first two cannot be answered
    told = []
    for most in (6, None):
        drafters = {"vanilla": Remembers(warm=False), "warm": Remembers(warm=True)}
        with RecordWriter(tmp_path / "records.jsonl", "run") as writer:
            run = engine(drafters, ordered, target)
            whole = run.answers
            run.answers = lambda keys, known, whole=whole, most=most: itertools.islice(whole(keys, known), most)
            measure(run, writer)
        kept = run.drafter(RecordKey("warm", *first.key))
        told.append([drafter.started for drafter in [*drafters.values(), kept]])
    # the first of each is the warm-up's
    assert told == [[["0", "0"], ["0"], ["0"]], [["0", "1"], ["0"], ["0", "1"]]]
    assert kept.answers == [*first.output_ids, *second.output_ids]


def test_a_drafter_that_reads_tokens_indexes_between_the_halves_of_a_prefill(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    for owner, name in ((TargetModel, "begin_prefill"), (TargetModel, "end_prefill"), (NoDraft, "start")):
        own = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, own=own, name=name: said.append(name) or own(*given))
    target, prompt = TargetModel(tiny_target("llama").model), Prompt(np.array([5, 6, 7]))
    plain, reads_logits, runs_a_model = NoDraft(), NoDraft(), NoDraft()
    reads_logits.traits, runs_a_model.traits = Traits(reads="logits"), Traits(uses_device=True)
    drafters = (plain, reads_logits, runs_a_model)
    first, *others = (SpeculativeDecoder(target, each).generate(prompt, Stop(5)).output_ids for each in drafters)
    assert said == ["begin_prefill", "start", "end_prefill", *2 * ["begin_prefill", "end_prefill", "start"]]
    assert all(answer == first for answer in others)
    assert SpS.traits.uses_device


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_has_the_size_of_its_published_weights(name: str) -> None:
    config = AutoConfig.from_pretrained(PROJECT / "data" / "architectures" / name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    size = sum(2 * weight.numel() for weight in model.parameters()) / 1e9
    # nothing is downloaded of SmolLM2, which comes as a package, and of Qwen3-0.6B, of which only steps are timed
    known = {"smollm2_135m": 0.269, "qwen3_0_6b": 1.192}.get(name)
    file = CONFIGS / "model" / f"{name}.yaml"
    assert size == pytest.approx(known or yaml.safe_load(file.read_text())["download_gb"], abs=0.005 if known else 0.06)
    assert isinstance(plan_of(config), Plan)


def test_random_weights_are_always_the_same(files: tuple[Path, Path]) -> None:
    first, second = (random_model(str(files[0]), "float32", "cpu", max_position_embeddings=n) for n in (300, 500))
    assert torch.equal(first.lm_head.weight, second.lm_head.weight) and second.config.max_position_embeddings == 500


def test_the_backend_that_a_machine_comes_to(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed(["model.weights=random", f"model.architecture={files[0]}", "model.device=cpu"])
    assert config.live.backend == "auto"
    assert models.resolve_backend(config.model, config.live) == "cpu"
    monkeypatch.setattr(cpu, "fits", lambda weight_bytes: False)
    assert models.resolve_backend(config.model, config.live) == "stock"
    on_gpu = changed(config, model={"device": "cuda"})
    assert models.resolve_backend(on_gpu.model, config.live) == "cuda_graph"
    (files[0] / "config.json").write_text(json.dumps(TINY | {"hidden_act": "gelu"}))
    assert models.resolve_backend(on_gpu.model, config.live) == "stock"
    graphs = changed(on_gpu, engine={"backend": "cuda_graph"})
    assert models.resolve_backend(graphs.model, graphs.live) == "cuda_graph"
    with pytest.raises(ValueError, match="hidden_act=gelu"):
        choose.network_for(random_model(str(files[0]), device="cpu"), 100, "cuda_graph")
    with pytest.raises(ConfigError, match="verifies trees"):
        changed(graphs, engine={"verify": "rows"})
    assert models.resolve_backend(on_gpu.model, changed(on_gpu, engine={"verify": "rows"}).live) == "stock"


@functools.cache
def tiny() -> list[TargetModel]:
    """The model that ships with the project, on every backend."""
    model = load_model(str(PROJECT / "data" / "tiny" / "model"), device="cpu")
    limit = model.config.max_position_embeddings
    networks = (choose.network_for(model, limit, name) for name in ("stock", "cuda_graph", "cpu"))
    return [TargetModel(model, network=network) for network in networks]


DRAFTERS = ["ngram_trie", "blend", "suffix", "sam", "token_recycling", "lookahead", "jacobi", "sps", "medusa", "hydra"]


@pytest.mark.slow
@pytest.mark.parametrize("method", DRAFTERS)
def test_real_drafters_answer_alike_over_every_backend(method: str) -> None:
    """On the tiny model; also those that read hidden states and logits."""
    prompt = read_traces(PROJECT / "results" / "table1" / "tiny" / "traces.jsonl")[0].prompt
    results = []
    for target in tiny():
        drafter = build(composed([f"method={method}", "model.device=cpu"]).plain["method"], f"method {method}")
        results.append(SpeculativeDecoder(target, drafter).generate(prompt, Stop(24)))
    first, *others = results
    for other in others:
        assert first.output_ids == other.output_ids and first.accept_lengths == other.accept_lengths
    assert max(first.accept_lengths) > 1


def test_an_adaptive_length_asks_the_network_what_steps_cost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NGRAM_TRIE_CACHE", str(tmp_path))
    monkeypatch.setattr(costs, "QUIET", np.inf)  # kept also where other work disturbs the clock
    prompt, answer = Prompt(np.arange(1, 20)), [*range(5, 15), *range(5, 15)]
    trace, target = Trace("tiny", prompt, answer, 40, "eos"), tiny_target("llama")
    result = replay(AdaptiveDrafter(BlendDrafter()), trace, target=TeacherForcedTarget(target, trace))
    assert result.output_ids == answer and list((tmp_path / "steps").iterdir())
