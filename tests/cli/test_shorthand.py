"""`run MODEL DATASET --methods ...` as the overrides that it stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngram_trie.cli import hydra_app, shorthand
from ngram_trie.cli.overrides import composed
from ngram_trie.methods import ConfigError
from ngram_trie.store.files import PROJECT


def expanded(line: str) -> dict[str, str]:
    options = hydra_app.hydra_options(line.split(), is_run=True)
    return shorthand.written_out(options.overrides, shorthand.values(options))


def test_words_and_options_compose_into_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "my model's"
    folder.mkdir()
    (tmp_path / "asked.jsonl").write_text('{"prompt": "why?"}\n')
    made = shorthand.written_out(
        [str(folder), str(tmp_path / "asked.jsonl"), "methods.pld.num_draft=3"],
        {"--methods": "trie,pld,blend-warm", "--limit": "4", "--device": "cpu", "--samples": True},
    )
    config = composed(made)
    assert (config.model.name, config.model.path) == ("my model's", str(folder))
    assert (config.dataset.name, config.dataset.limit) == ("asked", 4)
    assert list(config.methods) == ["ngram_trie", "pld", "blend_warm"]
    assert config.methods["pld"].num_draft == 3
    assert (config.budget.rule, config.budget.num_nodes, config.samples) == ("equal", shorthand.CPU_NODES, True)
    assert (config.measure.repeats, config.measure.share_prefill) == (1, True)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("smollm2 rag --methods trie --device cpu", ["model=smollm2_135m", "dataset=rag", "method=ngram_trie"]),
        ("OWNER/NAME rag --device cpu", ["model=local", "model.path=OWNER/NAME", "+method@methods.blend=blend"]),
        (
            "tiny rag,open_qa --limit 2 --budget published",
            ["+dataset@datasets.rag=rag", "datasets.open_qa.limit=2", "budget=published"],
        ),
        ("tiny rag --budget auto", ["budget=auto"]),
        ("tiny rag --num-nodes 5", ["budget=equal", "budget.num_nodes=5"]),
        ("tiny rag measure.repeats=3 --device cpu", ["measure.repeats=3"]),
        ("tiny rag --repeats 2 --max-new-tokens 9", ["measure.repeats=2", "measure.max_new_tokens=9"]),
        ("--methods pld,blend dataset=rag", ["+method@methods.pld=pld", "dataset=rag"]),
        ("model=OWNER/NAME dataset=rag", ["model=local", "model.path=OWNER/NAME"]),
    ],
)
def test_a_line_holds(line: str, parts: list[str]) -> None:
    made = expanded(line)
    assert set(parts) <= set(made)
    keys = [part.partition("=")[0] for part in made]
    assert len(keys) == len(set(keys)), "an override is there twice"
    composed(made)


def test_a_model_path_alone_is_called_by_its_own_name() -> None:
    assert composed(expanded("model.path=some/folder dataset=rag")).model.name == "folder"
    assert composed(expanded("model=tiny model.path=some/folder")).model.name == "tiny"
    # an experiment's own model: a copy of that
    assert composed(expanded("experiment=logits_drafters model.path=some/folder")).model.name == "smollm2-135m"
    assert composed(expanded("experiment=table1 model.path=some/folder")).model.name == "folder"


def test_other_lines_stay_as_they_are() -> None:
    line = "experiment=table1 ~methods.pld datasets.rag.limit=3"
    assert expanded(line) == {part: part for part in line.split()}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("smolm2 rag", "MODEL smolm2: did you mean smollm2_135m"),
        ("no/where.gguf rag", "MODEL no/where.gguf: no such file or folder"),
        ("a/b/c rag", "MODEL a/b/c: no such file or folder"),
        ("tiny rga", "DATASET rga: did you mean rag"),
        ("tiny none.jsonl", "DATASET none.jsonl: no such file"),
        ("tiny rag --methods trei", "--methods: trei: did you mean trie"),
        ("tiny rag --methods ,", "--methods: give names with commas"),
        ("tiny", "tiny: give MODEL and DATASET"),
        ("tiny rag more", "more: one word too many"),
        ("tiny rag dataset=open_qa", "dataset: MODEL and DATASET are given as words"),
        ("tiny rag --budget auto --num-nodes 3", "--num-nodes: only for --budget equal"),
        ("experiment=table1 --methods pld", "--methods: an experiment has its own"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_nearest_names(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        expanded(line)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [("tiny rag --limits 3", "--limits: no such option; did you mean --limit"), ("a b --limit", "--limit: give a")],
)
def test_a_wrong_option_is_one_line(line: str, message: str) -> None:
    with pytest.raises(SystemExit, match=f"^error: {message}"):
        expanded(line)


def test_every_option_stands_in_the_help() -> None:
    text = hydra_app.help_text("ngram-trie run", "", "config")
    assert all(f"  {name} " in text for name in shorthand.OPTIONS | shorthand.FLAGS)
    assert "MODEL DATASET" in text and str(PROJECT) not in hydra_app.option_text()
