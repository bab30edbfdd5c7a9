"""Command lines: help that follows the configs, nearest names, errors in one line, interrupts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from ngram_trie.cli import hydra_app, overrides
from ngram_trie.methods import ConfigError, choices, settings_of
from ngram_trie.store.files import CONFIGS
from scripts import run


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("method.numdraft=8", "method.numdraft=8: method ngram_trie has no such setting; did you mean num_draft?"),
        ("datset=rag", "datset=rag: no such setting; did you mean dataset"),
        ("measure.repeat=2", "measure.repeat=2: measure has no such setting; did you mean repeats?"),
        ("hydra/launcher=jobllib", "hydra/launcher=jobllib: did you mean joblib?"),
        ("engine=replay", "engine.traces: give a file of recorded answers"),
        ("hydra.luncher=3", "hydra.luncher=3: no such setting; "),
        ("method=pld method.n=8", "method pld has no such setting; there is one in method=llma"),
        ("experiment=table1 methods.sp.max_gamma=4", "methods has no such setting; did you mean sps"),
        ("experiment=table1 method.n=9", "experiment table1 has its own methods"),
        ("method=[pld,blend]", "one method is taken, not a list; several: each as +method@methods.NAME=NAME"),
        ("model=[tiny]", "model=[tiny]: one model is taken, not a list; several: -m takes one by one"),
        ("experiment=categories dataset=rag", "dataset: experiment categories has its own datasets"),
        ("~methods.pld", "~methods.pld: methods has no such setting; it has none"),
        ("model.tokenizer.legacy=true", "+model.tokenizer.legacy=true adds one"),
        ("grid.n=3", "grid.n=3: grid is None and has no settings; give grid=VALUE"),
        ("dataset=", "dataset=: no such name. There are: attributed_qa"),
        ("cost=null", "cost=null: no such name. There are: gpu_like"),
        ("method@other=pld", "Could not override 'method@other'."),
        ("method=pld,ngram_trie method.n=8", "method pld has no such setting"),
        ("dataset.limit=${nothing}", "Interpolation key 'nothing' not found"),
        # the schemas
        ("+foo=1", "foo: no such setting; did you mean force?"),
        ("+plain={}", "plain: no such setting; there are: model"),
        ("~model.path", "model.path: must be given"),
        ("+dataset@datasets.a=rag +dataset@datasets.b=rag", "both are called rag; give datasets.b.name=NAME"),
        ("model.stop_ids=5", "model.stop_ids=5: must be a valid list"),
        ("measure=5", "measure=5: no such name. There are: default"),
        ("measure.repeats=two", "measure.repeats=two: must be a valid integer"),
        ("measure.repeats=0", "measure.repeats=0: must be greater than 0"),
        ("measure.repeats=true", "measure.repeats=True: must be a valid integer"),
        ("measure.truncation=[a]", "measure.truncation=['a']: must be 'fail', 'end' or 'middle'"),
        ("engine.name=lvie", "engine: Input tag 'lvie' found using 'name' does not match"),
        ("engine.verify=rows engine.backend=cuda_graph", "engine: backend=cuda_graph verifies trees"),
        ("engine=replay engine.traces=x +engine.foo=1", "engine.foo: no such setting; there are: name, traces"),
        ("output=5", "output=5: must be text"),
        ("noise={kinds:[paragraf]}", "noise.kinds.0=paragraf: must be 'paragraph' or 'passages'"),
        ("noise={kinds:[paragraph],shar:1}", "noise.shar: no such setting; did you mean share?"),
        ("grid=3", "grid=3: must be a valid dictionary"),
        ("grid={n:[3]} experiment=table1", "grid: it varies the one method"),
        ("methods=3", "methods=3: must be a valid dictionary"),
    ],
)
def test_a_wrong_override_is_one_line_with_the_nearest_names(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        overrides.composed(line.split())
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "line",
    [
        "method=pld,ngram_trie method.num_draft=8,16 dataset=rag",
        "method=glob(ngram*) -m".removesuffix(" -m"),
        "experiment=table1 ~methods.space ~datasets.rag methods.pld.num_draft=4",
        "+model.tokenizer.legacy=true",
        "hydra/launcher=joblib hydra.launcher.n_jobs=2",
        "dataset=spec_bench dataset.category=[qa,rag]",
        "method.n=range(3,6)",
    ],
)
def test_a_right_command_line_passes(line: str) -> None:
    overrides.composed(line.split())


def test_what_is_composed_is_what_was_asked_for() -> None:
    config = overrides.composed(["method=pld", "method.num_draft=8,16", "dataset.limit=3"])
    assert (config.method.name, config.method.num_draft, config.dataset.limit) == ("pld", 8, 3)


def test_groups_of_ones_own_stand_beside_the_projects(tmp_path: Path) -> None:
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text("# Mine.\nname: mine\n_target_: ngram_trie.drafters.NoDraft\nk: 3\n")
    assert overrides.composed(["method=mine", "method.k=4"], folder=tmp_path).method.k == 4
    with pytest.raises(ConfigError, match="did you mean mine"):
        overrides.composed(["method=mien"], folder=tmp_path)
    with pytest.raises(ConfigError, match="no such folder"):
        overrides.composed([], folder=tmp_path / "absent")


@pytest.mark.parametrize(("name", "primary"), [("run", "config"), ("retrieve", "retrieval")])
def test_help_names_every_choice(name: str, primary: str) -> None:
    text = hydra_app.help_text(f"python -m scripts.{name}", "Does things.\n\n  python -m scripts.x", primary)
    defaults = hydra_app.group_defaults(primary)
    for group, (default, _) in defaults.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"{group}=NAME: ")]
        assert line.endswith(f"(default: {default})")
        assert all(member in text for member in choices()[group])
    chosen = [
        key for entry in OmegaConf.load(CONFIGS / f"{primary}.yaml").defaults if entry != "_self_" for key in entry
    ]
    assert set(defaults) == {key.removeprefix("optional ") for key in chosen if not key.startswith("override")}
    assert max(map(len, text.splitlines())) <= 120 and "Does things." in text


def test_help_for_a_choice_has_its_settings() -> None:
    text = hydra_app.help_text("run", "", "config", ["method=blend", "method.escape=2.0"])
    assert "# A blend of all orders of the text so far" in text and "num_draft: 32" in text


def test_help_shows_what_every_experiment_sets() -> None:
    for name, file in choices()["experiment"].items():
        text = hydra_app.help_text("run", "", "config", [f"experiment={name}"])
        assert yaml.safe_load(text).items() >= yaml.safe_load(file.read_text(encoding="utf-8")).items()


def test_a_choice_that_begins_with_another_is_shown_and_composed_whole(tmp_path: Path) -> None:
    (tmp_path / "method").mkdir()
    file = tmp_path / "method" / "mine.yaml"
    file.write_text("# Mine.\ndefaults: [blend_warm, _self_]\nname: mine\nescape: 2.0\n")
    config = overrides.layered(["method=mine"], "config", tmp_path).method
    assert config == settings_of(file) and (config.escape, config.max_tokens, config.num_draft) == (2.0, 65536, 32)
    text = hydra_app.help_text("run", "", "config", ["method=mine"], tmp_path)
    assert yaml.safe_load(text) == config and "# most tokens of all answers together\nmax_tokens: 65536" in text


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("dataset=rag -m method.num_draft=3,4", {"multirun": True}),
        ("method=pld --cfg job", {"cfg": "job"}),
        ("method=pld --cfg", {"cfg": "job"}),
        ("--config-dir mine ~methods.pld", {"config_dir": Path("mine")}),
        ("method=pld", {}),
    ],
)
def test_flags_may_stand_anywhere(line: str, flags: dict[str, object]) -> None:
    options = hydra_app.hydra_options(line.split())
    assert {name: value for name, value in vars(options).items() if value and name != "overrides"} == flags
    assert options.overrides == [word for word in line.split() if "=" in word or word.startswith("~")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--multi-run"], "--multi-run: no such option; did you mean --multirun"),
        (["method.numdraft=8"], "did you mean num_draft"),
        (["-m", "method=pld,pdl"], "method=pdl: did you mean pld"),
    ],
)
def test_the_command_line_ends_with_the_line(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    with pytest.raises(SystemExit) as error:
        run.cli()
    assert str(error.value).startswith("error: ") and message in str(error.value)
