"""Every config composes and builds; wrong names and values get one clear line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ngram_trie import methods
from ngram_trie.bench import config as configuration
from ngram_trie.bench.prepare import prepare
from ngram_trie.cli.overrides import composed, layered
from ngram_trie.decoding import Decoder
from ngram_trie.drafter import Drafter

GROUPS = {f.name: sorted(p.stem for p in f.glob("*.yaml")) for f in configuration.CONFIGS.iterdir() if f.is_dir()}
CHOICES = [f"{group}={name}" for group, names in GROUPS.items() for name in names]
#: What has to be given with a choice.
NEEDED = {
    "model=local": "model.path=FILE",
    **dict.fromkeys(["engine=replay", "engine=teacher_forced", "experiment=ablation_blend"], "engine.traces=FILE"),
}


#: Groups of configs/retrieval.yaml; the others are those of configs/config.yaml.
RETRIEVAL = ("corpus", "encoder", "reranker")


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_composes_and_resolves(choice: str) -> None:
    if choice.startswith(RETRIEVAL):
        OmegaConf.to_container(layered([choice], "retrieval"), resolve=True)
        return
    plain = composed([choice, NEEDED.get(choice, "force=false")]).plain
    for group in ("method", "dataset"):
        for name, part in configuration.named(plain, group).items():
            assert part["name"] == name


def test_a_data_set_is_known_by_its_name_and_not_by_its_key() -> None:
    plain = composed(["+dataset@datasets.mine=file", "datasets.mine.path=some/prompts.jsonl"]).plain
    assert list(configuration.named(plain, "dataset")) == ["prompts"]


def test_prompts_that_would_be_cut_to_nothing_are_refused() -> None:
    with pytest.raises(methods.ConfigError, match=r"measure.max_new_tokens=99999: .* leaves no token for a prompt"):
        prepare(composed(["measure.max_new_tokens=99999", "measure.truncation=end"]))


@pytest.mark.parametrize("name", GROUPS["method"])
def test_every_method_builds_and_names_itself(name: str) -> None:
    fields = composed([f"method={name}"]).plain["method"]
    assert fields["name"] == name
    assert isinstance(methods.build(fields, name), Drafter | Decoder)


@pytest.mark.parametrize("name", GROUPS["dataset"])
def test_every_dataset_builds(name: str) -> None:
    fields = composed([f"dataset={name}"]).plain["dataset"]
    # A published set is not built here, where no test fetches anything: its own tests do, from files of its layout.
    if fields.keys() & {"hub", "url", "path"}:
        with pytest.raises(methods.ConfigError, match=f"dataset {name}: .*no such file"):
            methods.build(fields | {"path": "nowhere.jsonl"}, f"dataset {name}")
    else:
        assert methods.build(fields, f"dataset {name}").questions


def test_experiments_open_with_their_launch_command() -> None:
    for path in (configuration.CONFIGS / "experiment").glob("*.yaml"):
        assert re.search(rf"python -m scripts\.run experiment=\S*\b{path.stem}\b", path.read_text())


def test_configs_name_no_machine() -> None:
    for path in Path(configuration.CONFIGS).rglob("*.yaml"):
        assert "/home" not in path.read_text() and "/work" not in path.read_text()


def test_a_run_never_says_where_a_machine_has_its_files(tmp_path: Path) -> None:
    answers = f"method.answers={tmp_path}/answers.jsonl"
    resolved = configuration.resolve(composed(["method=blend_bigram", answers, "engine=replay", "engine.traces=FILE"]))
    assert resolved["method"]["answers"] == "answers.jsonl" and str(tmp_path) not in json.dumps(resolved)
