"""The road to the paper's tables against a hub on loopback: what is looked at first, what is in the way, where settings
go. tests/scripts/test_rehearsal.py walks it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.hub_repositories import SHAREGPT, Layout
from support.hub_server import GOOD, OTHER

from ngram_trie.cli import plan, road
from ngram_trie.cli.commands import measure
from ngram_trie.cli.overrides import composed
from ngram_trie.cli.plan import Need
from ngram_trie.cli.road import Road
from ngram_trie.data.prompts import Question, build_prompt, model_tokenizer
from ngram_trie.methods import ConfigError, choices, settings_of
from ngram_trie.targets import hub as hubs
from ngram_trie.targets.load import load_model

#: Those with a published name; the others are this project's or a person's own.
FIELDS = {name: settings_of(file) for name, file in choices()["model"].items()}
MODELS = [name for name, model in FIELDS.items() if model.download_gb and not model.path.endswith(".gguf")]


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    made = Layout(tmp_path_factory.mktemp("hub"))
    with made.hub:
        yield made


@pytest.fixture
def hub(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Layout]:
    """The hub, asked with a token that has every licence; results go to a folder of the test's own."""
    layout.hub.connect(monkeypatch, tmp_path / "home", GOOD)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "arrow"))
    monkeypatch.setattr("ngram_trie.store.files.PROJECT", tmp_path)
    monkeypatch.setattr(road, "LOCAL", tmp_path / "results" / "local")
    monkeypatch.setattr(road, "TRIVIAQA", road.LOCAL / "triviaqa")
    monkeypatch.setattr(plan.shutil, "disk_usage", lambda _: type("Disk", (), {"free": 200e9}))
    answers = {key: repository.answer for key, repository in layout.hub.repositories.items()}
    layout.hub.requests.clear()
    yield layout
    layout.hub.down = False
    for key, answer in answers.items():
        layout.hub.repositories[key].answer = answer


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything can be had, in its real size."""
    monkeypatch.setattr(road, "hub_need", lambda need, *_, **__: need)
    monkeypatch.setattr(road, "url_need", lambda need, _: need)


def on_gpu(monkeypatch: pytest.MonkeyPatch, name: str, memory: float) -> None:
    monkeypatch.setattr(plan, "gpu", lambda: (name, memory))
    monkeypatch.setattr(plan, "is_on_gpu", lambda _: True)


def shown(made: Road, capsys: pytest.CaptureFixture[str]) -> str:
    """The plan as text, without line ends of a narrow table."""
    assert made.go(dry_run=True) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("table", [1, 4])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_s_plan_fits_together_and_fetches_nothing(
    table: int, model: str, hub: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Road(table, model)
    text = shown(made, capsys)
    assert "Sum to fetch" in text and "at 100 Mbit/s" in text and " hours" in text
    assert "REFUSED" not in text and "NO ANSWER" not in text and not hub.hub.downloads()
    commands = {step.command[0]: list(step.command) for step in made.steps() if step.command}
    assert {"scripts.run", "scripts.build_index", "scripts.retrieve"} <= commands.keys()
    for step in made.steps():
        if step.part:  # what one step makes is what another one reads
            config = composed(list(step.command[1:]))
            assert config.model.name == made.run.model.name and config.output == str(step.part.folder)
            stores = {method["datastore"] for method in config.plain["methods"].values() if method.get("datastore")}
            assert stores <= {commands["scripts.build_datastore"][-1]} if stores else True
            if "triviaqa" in config.datasets:
                assert config.datasets["triviaqa"].path == f"{road.TRIVIAQA}/contexts.jsonl"
                assert commands["scripts.retrieve"][-1] == f"output={road.TRIVIAQA}"
                assert f"questions.limit={config.datasets['triviaqa'].limit + 2}" in commands["scripts.retrieve"]
    assert ("scripts.build_datastore" in commands) == (table == 1)


def test_what_needs_least_comes_first_and_stores_are_measured_apart(hub: Layout) -> None:
    steps = Road(1, "vicuna_7b", sessions=2).steps()
    names = [step.part.folder.name if step.part else step.command[:1] for step in steps]
    assert names == [
        (), "first", ("scripts.build_datastore",), "store", ("scripts.build_index",), ("scripts.retrieve",),
        "triviaqa", "triviaqa-store",
    ]  # fmt: skip
    assert [step.part.session for step in steps if step.part] == [0, 2, 0, 2]
    first = composed(list(steps[1].command[1:]))
    assert {"vanilla", "sps", "medusa", "space", "hydra", "lookahead", "pld", "ngram_trie"} <= set(first.methods)
    assert set(composed(list(steps[3].command[1:])).methods) == {"vanilla", "rest", "sam_static"}
    assert first.measure.sessions == 2


@pytest.mark.parametrize(("token", "model"), [("", "llama2_7b_chat"), (OTHER, "mistral_7b_instruct")])
def test_a_licence_that_was_not_accepted_shows_at_once(
    token: str, model: str, hub: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    text = shown(Road(1, model), capsys)
    path = FIELDS[model].path
    assert f"In the way: {path}: gated: accept " in text and "hf auth login" in text
    with pytest.raises(ConfigError, match="gated: accept"):
        Road(1, model).go(dry_run=False)
    assert not hub.hub.downloads()


def test_a_wrong_token_and_a_hub_that_does_not_answer(
    hub: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "wrong")
    text = shown(Road(1, "vicuna_7b"), capsys)
    assert "REFUSED" in text and "401" in text and "NO ANSWER" not in text
    hub.hub.down = True
    text = shown(Road(1, "vicuna_7b"), capsys)
    assert "NO ANSWER" in text and "REFUSED" not in text and "503" in text


def test_a_method_that_is_not_there_is_left_out_and_one_that_has_no_answer_is_in_the_way(
    hub: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repositories = hub.hub.repositories
    medusa = repositories["model", "FasterDecoding/medusa-vicuna-7b-v1.3"]
    monkeypatch.setattr(medusa, "answer", "gated")
    monkeypatch.setenv("HF_TOKEN", OTHER)
    made = Road(1, "vicuna_7b")
    text = shown(made, capsys)
    assert made.left_out.keys() == {"medusa"} and "gated" in made.left_out["medusa"]
    assert "In the way: FasterDecoding" not in text and "'~methods.medusa'" in text
    monkeypatch.setattr(medusa, "answer", "unavailable")
    made = Road(1, "vicuna_7b")  # it may answer later: the plan has it
    assert "In the way: FasterDecoding/medusa-vicuna-7b-v1.3: " in shown(made, capsys) and not made.left_out
    made = Road(1, "vicuna_7b", anyway=True)
    assert "In the way: FasterDecoding/medusa-vicuna-7b-v1.3: " in shown(made, capsys)
    assert made.left_out.keys() == {"medusa"}
    with pytest.raises(ConfigError, match=r"medusa.*503.*ANYWAY=1"):
        Road(1, "vicuna_7b").go(dry_run=False)
    monkeypatch.setattr(medusa, "answer", None)
    monkeypatch.setattr(repositories["dataset", "miracl/hagrid"], "answer", "unavailable")
    made = Road(1, "vicuna_7b", anyway=True)
    assert "In the way: miracl/hagrid" in shown(made, capsys)
    assert "hagrid" not in composed(list(made.steps()[1].command[1:])).datasets


def test_a_datastore_or_an_index_that_cannot_be_made_leaves_out_its_own_alone(
    hub: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repositories = hub.hub.repositories
    for kind, name in (("dataset", SHAREGPT), ("model", "BAAI/bge-m3")):
        monkeypatch.setattr(repositories[kind, name], "answer", "unavailable")
    made = Road(1, "vicuna_7b", anyway=True)
    assert shown(made, capsys).count("In the way: ") == 3  # and there is no GPU
    assert made.left_out.keys() == {"rest", "sam_static", "triviaqa"}
    assert [step.part.folder.name for step in made.steps() if step.part] == ["first"] and len(made.steps()) == 2


@pytest.mark.parametrize(("memory", "left_out"), [(25.3, {"space"}), (20.0, {"space", "hydra"}), (48.0, set())])
def test_what_does_not_fit_the_gpu_is_left_out_with_the_reason(
    memory: float, left_out: set[str], hub: Layout, sizes: None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    on_gpu(monkeypatch, "NVIDIA GeForce RTX 4090", memory)
    made = Road(1, "vicuna_7b")
    text = shown(made, capsys)
    assert made.left_out.keys() == left_out and "In the way" not in text
    if memory == 25.3:
        assert "its weights take 13.5 GB; with them the run needs 36 GB of GPU memory, and there are 25" in text
        assert "RTX 4090, 25 GB, driver" in text and "this selection takes 22.2 GB" in text
        assert "to fetch 28.4 GB" in text and "of use afterwards" in text
    first = composed(list(made.steps()[1].command[1:]))
    assert not left_out & set(first.methods)


def test_a_model_that_does_not_fit_and_no_gpu_are_in_the_way(
    hub: Layout, sizes: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"^no GPU that torch sees.*ANYWAY=1 goes on all the same") as raised:
        Road(1, "vicuna_7b").go(dry_run=False)
    assert "\n" not in str(raised.value)
    on_gpu(monkeypatch, "NVIDIA A10", 24.0)
    assert "In the way: vicuna-13b-v1.3 needs 30 GB of GPU memory" in shown(Road(1, "vicuna_13b"), capsys)


def test_a_gpu_that_torch_does_not_see_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "gpu", lambda: ("", 0.0))
    monkeypatch.setattr(plan, "driver", lambda: "550.1")
    assert "driver 550.1, but torch sees none; torch is" in plan.gpu_line() and "TORCH_INDEX=" in plan.gpu_line()


def test_a_full_disk_and_a_folder_that_is_not_ours(
    hub: Layout, sizes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan.shutil, "disk_usage", lambda _: type("Disk", (), {"free": 60e9}))
    monkeypatch.setattr(plan.os, "access", lambda *_: False)
    text = shown(Road(1, "vicuna_7b", output=tmp_path / "out"), capsys)
    assert "GB are needed on the disk of" in text and "60 GB are free: make room" in text
    assert "cannot be written to" in text


def commands(made: Road) -> dict[str, tuple[str, ...]]:
    return {step.command[0]: step.command for step in made.steps() if step.command}


def test_settings_go_where_they_belong(hub: Layout, tmp_path: Path) -> None:
    passages = tmp_path / "passages.tsv"
    passages.touch()
    early = [f"corpus.path={passages}", "encoder.batch_size=8", "flat=false", "questions.limit=9"]
    late = [f"model.path={tmp_path}", "measure.repeats=3", "~methods.space"]
    made = Road(1, "vicuna_7b", [*early, *late], output=tmp_path / "out", sessions=2)
    found = commands(made)
    for name in ("scripts.build_index", "scripts.retrieve"):
        assert set(early) <= set(found[name]) and not set(late) & set(found[name])
    assert set(late) <= set(found["scripts.run"]) and not set(early) & set(found["scripts.run"])
    assert found["scripts.build_datastore"][-4:-2] == ("--copy", str(tmp_path))
    assert "measure.sessions=2" in found["scripts.run"] and made.folder == tmp_path / "out"
    assert all(step.part.folder.is_relative_to(tmp_path / "out") for step in made.steps() if step.part)
    needed = [need.source for need in made.needs()]
    assert not any("lmsys" in source or "psgs_w100" in source or "space" in source for source in needed)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("batch_size=8", "batch_size=8: give encoder.batch_size or reranker.batch_size"),
        ("output=elsewhere", "output=elsewhere: give OUTPUT=FOLDER"),
        ("encoder.batches=8", "encoder.batches=8: encoder bge_m3 has no such setting"),
        ("mesure.repeats=3", "mesure"),
        ("~methods.nothing", "nothing"),
    ],
)
def test_a_setting_that_nothing_takes_is_refused(setting: str, line: str, hub: Layout) -> None:
    with pytest.raises(ConfigError, match=line):
        Road(1, "vicuna_7b", [setting]).go(dry_run=True)


def test_a_data_set_with_a_file_of_its_own_needs_no_index(hub: Layout, tmp_path: Path) -> None:
    made = Road(1, "llama3_8b_instruct", [f"datasets.triviaqa.path={tmp_path}/mine.jsonl"])
    assert not {"scripts.build_index", "scripts.retrieve"} & commands(made).keys()
    assert "triviaqa" in composed(list(made.steps()[1].command[1:])).datasets
    without = Road(1, "llama3_8b_instruct", ["~datasets.triviaqa", "~methods.rest", "~methods.sam_static"])
    assert [*commands(without)] == ["scripts.run"] and len(without.steps()) == 2


def test_passages_that_were_found_with_other_settings_are_not_taken_for_these(hub: Layout) -> None:
    road.TRIVIAQA.mkdir(parents=True)
    (road.TRIVIAQA / "recall.csv").touch()
    Road(1, "vicuna_7b")._check_retrieval()  # found by hand: they are taken as they are
    with pytest.raises(ConfigError, match=r"was made with other settings \(none\)"):
        Road(1, "vicuna_7b", ["flat=false"]).go(dry_run=True)
    (road.TRIVIAQA / "settings.txt").write_text("flat=false\nquestions.limit=82")
    assert all(step.is_done for step in Road(1, "vicuna_7b", ["flat=false"]).steps()[4:6])
    Road(1, "vicuna_7b", ["flat=false"])._check_retrieval()
    with pytest.raises(ConfigError, match="flat=false"):
        Road(1, "vicuna_7b")._check_retrieval()


def test_a_step_that_fails_leaves_out_what_needs_it(
    hub: Layout, sizes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def call(*command: str) -> int:
        ran.append(Path(command[-1]).name if command[0] == "scripts.run" else command[0])
        return int(command[0] == "scripts.build_datastore")

    made = Road(1, "vicuna_7b", output=tmp_path / "out")
    monkeypatch.setattr(road, "call", call)
    monkeypatch.setattr(road, "fetch", lambda *_: tmp_path)
    monkeypatch.setattr(road.parts.Part, "is_begun", property(lambda self: True))
    joined: list[dict[str, str]] = []
    monkeypatch.setattr(made, "_join", lambda runs, whole: joined.append(dict(made.left_out)))
    road.TRIVIAQA.mkdir(parents=True)
    assert made._carry_out(made.steps()) == 1
    assert ran == ["first", "scripts.build_datastore", "scripts.build_index", "scripts.retrieve", "triviaqa"]
    assert joined[0] == {} and joined[-1].keys() == {"rest", "sam_static"}
    assert "a datastore of ShareGPT could not be made" in joined[-1]["rest"]


def test_a_method_s_weights_that_break_off_are_its_own_affair(hub: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Road(1, "vicuna_7b")

    def fetch(path: str, revision: str | None) -> Path:
        if "medusa" in path:
            raise hubs.Unreachable("cut")
        return Path(path)

    monkeypatch.setattr(road, "fetch", fetch)
    made._fetch()
    assert made.left_out == {"medusa": "cut"}


def test_sizes_are_the_hub_s_own(hub: Layout) -> None:
    need = Need("the model", "meta-llama/Llama-2-7b-chat-hf", 13.5)
    found = plan.hub_need(need, None)
    folder = hub.root / "model" / "meta-llama" / "Llama-2-7b-chat-hf"
    known = [file for file in folder.iterdir() if file.suffix != ".bin"]  # one format of the two
    assert found == replace(need, gigabytes=sum(file.stat().st_size for file in known) / 1e9)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_is_read_as_it_is_published(model: str, hub: Layout) -> None:
    settings = composed([f"model={model}", "model.device=cpu", "model.dtype=float32"]).model
    tokenizer = model_tokenizer(settings)
    question = Question("toy", "q", "", "Paris lies on the river Seine.", "\nWhere is the Seine?", "")
    ids = build_prompt(question, tokenizer).ids  # the text comes through the chat template whole
    network = load_model(settings.path, "float32", "cpu", settings.revision)
    assert network.config.vocab_size > max(ids) and "the river Seine" in tokenizer.decode(ids)
    # Phi-3's configuration has code of its own, Vicuna's weights are in PyTorch's format alone
    assert not any("configuration_phi3" in path for path in hub.hub.downloads())
    time.sleep(0.2)  # a service that converts weights would be asked by a thread
    assert not any("/commits/" in line or "/discussions" in line for line in hub.hub.requests)


SPEC_BENCH_ALONE = ["experiment=table1_vicuna_7b", "model=vicuna_7b", "~datasets.triviaqa", "~datasets.hagrid"]


def own_run(hub: Layout, tmp_path: Path, *settings: str) -> None:
    """A run by hand."""
    own = [text for text in hub.settings if text.startswith("datasets.")]
    measure(composed([*SPEC_BENCH_ALONE, *own, "model.device=cpu", f"output={tmp_path / 'run'}", *settings]))


def test_a_run_s_own_plan_counts_every_method_and_fetches_no_weights(
    hub: Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_run(hub, tmp_path, "dry_run=true")
    text = capsys.readouterr().out
    assert "sps 0.2 GB, medusa 1.5 GB, space 13.5 GB, hydra 3.0 GB" in text
    assert "download: lmsys/vicuna-7b-v1.3, about 13.5 GB; double7/vicuna-68m, about 0.2 GB; " in text
    assert not any(path.endswith((".bin", ".pt", ".safetensors")) for path in hub.hub.downloads())


def test_a_run_stops_where_it_cannot_know_whether_a_method_can_be_had(
    hub: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    medusa = hub.hub.repositories["model", "FasterDecoding/medusa-vicuna-7b-v1.3"]
    monkeypatch.setattr(medusa, "answer", "unavailable")
    with pytest.raises(ConfigError, match=r"^method medusa: .*503.*or go without it: ~methods\.medusa$"):
        own_run(hub, tmp_path)
    assert not (tmp_path / "run").exists()
