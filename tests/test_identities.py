"""What decides a result is in its identity: of each builder every setting is changed, and the change is seen: another
name, another header or another run. A setting that a builder gets later fails here until it is in one of the lists.
"""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from support.tiny import tiny_model
from support.tiny_gguf import write_gguf

from ngram_trie.baselines.rest import REST
from ngram_trie.bench.config import resolve
from ngram_trie.bench.live import part_hashes
from ngram_trie.cli.app import invoke
from ngram_trie.cli.overrides import composed, layered
from ngram_trie.drafter import Drafter
from ngram_trie.methods import build, choices
from ngram_trie.store.files import content_hash, fingerprint
from ngram_trie.targets import gguf, model_ngrams
from scripts import build_datastore, build_ngram_tables

Leaves = dict[str, Any]


def leaves(value: Any, path: str = "") -> Leaves:
    """Every value of a configuration, by its path."""
    if not isinstance(value, dict) or not value:
        return {path: value}
    below = (leaves(part, f"{path}.{name}".strip(".")) for name, part in value.items())
    return {key: leaf for part in below for key, leaf in part.items()}


def changed(config: Any, path: str, value: Any) -> Any:
    """The configuration with another value of the same kind, or of any where it was null."""
    other = config.copy()
    kinds = {bool: lambda: not value, int: lambda: value + 1, float: lambda: value + 0.5, str: lambda: value + "x"}
    new = kinds[type(value)]() if type(value) in kinds else [*(value or []), 7] if isinstance(value, list) else "x"
    OmegaConf.set_struct(other, False)
    OmegaConf.update(other, path, new, force_add=True)
    return other


@pytest.mark.parametrize(
    ("line", "left_out"),
    [
        ("model=tiny dataset=rag method=pld", {"cost"}),
        # a replay's answers are known by what they are
        ("engine=replay engine.traces=answers.jsonl method=blend budget=auto", {"model", "dataset", "measure"}),
    ],
)
def test_every_setting_of_a_run_is_in_its_identity(line: str, left_out: set[str]) -> None:
    run = composed(line.split())
    resolved, config = resolve(run), OmegaConf.create(run.plain)

    def other(path: str, value: Any) -> str:
        plain = OmegaConf.to_container(changed(config, path, value))
        return content_hash(resolve(run.model_copy(update={"plain": plain})))

    kept = leaves(resolved).keys() - {"engine.name"}  # there is no other of these settings
    assert len(kept) > 10
    assert content_hash(resolved) not in {other(path, OmegaConf.select(config, path)) for path in kept}
    of_place = {"output", "shard", "force", "samples", "dry_run"}
    assert config.keys() - resolved.keys() - {"datasets", "methods"} == left_out | of_place | {"shape"}
    assert other("shape", "tre") != content_hash(resolved)


def test_every_setting_of_an_index_and_of_a_retrieval_is_in_theirs(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    pytest.importorskip("datasets")
    from ngram_trie.data.retrieval import index
    from scripts import retrieve

    config = layered(["corpus=docs", "encoder=minilm", "reranker=late_interaction", "questions.path=a"], "retrieval")
    parts = [SimpleNamespace(identity=name, library="", fingerprint=lambda: "all of it") for name in "cer"]

    def identities(config: Any) -> tuple[Path, str]:
        return index.file_of(tmp_path, config), retrieve.manifest_of(config, [], *parts).run  # type: ignore[arg-type]

    file, run = identities(config)
    every = leaves(OmegaConf.to_container(config))
    found = {path: identities(changed(config, path, value)) for path, value in every.items()}
    assert {path for path, (other, _) in found.items() if other != file} == {"index", "train_size", "seed"}
    assert {path for path, (_, other) in found.items() if other == run} == {"output", "force", "folder"}


@pytest.mark.parametrize("change", ["a passage that no sample has", "the order"])
def test_every_passage_of_a_corpus_is_in_its_identity(change: str, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    from ngram_trie.data.retrieval.corpus import Corpus

    rows = [{"id": str(number), "title": "t", "text": f"Text {number}."} for number in range(3000)]
    other = [*rows[:1501], {**rows[1501], "text": "Another."}, *rows[1502:]] if "passage" in change else rows[::-1]
    for name, lines in (("a", rows), ("b", other), ("c", rows)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, second, third = (Corpus(str(tmp_path / f"{name}.jsonl")).fingerprint() for name in "abc")
    assert first == third != second


def test_every_setting_of_a_datastore_is_in_its_header_and_so_in_that_of_a_run(tmp_path: Path) -> None:
    rows = [{"text": "A mill stands here.", "other": "A bridge."}, {"text": "A river.", "other": "A road."}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[::-1]))
    tiny = ["--tokenizer", "tiny"]
    calls = {
        "source": [str(tmp_path / "a.jsonl"), *tiny], "another source": [str(tmp_path / "b.jsonl"), *tiny],
        "field": [str(tmp_path / "a.jsonl"), *tiny, "--field", "other"],
        "tokens": [str(tmp_path / "a.jsonl"), *tiny, "--tokens", "3"],
        "world": ["--tokens", "500"], "seed": ["--tokens", "500", "--seed", "1"],
    }  # fmt: skip
    # those that are left decide which texts and which tokenizer these are
    assert set(inspect.signature(build_datastore.main).parameters) == {
        "source", "field", "tokens", "seed", "tokenizer", "copy", "dataset", "file", "revision", "split", "output",
    }  # fmt: skip
    runs = set()
    for arguments in calls.values():  # into one folder: what was there is replaced, and no run goes on with it
        invoke(build_datastore.main, [*arguments, "--output", str(tmp_path / "store")])
        runs.add(part_hashes({"rest": REST(datastore=str(tmp_path / "store"))})["rest"])
    assert len(runs) == len(calls)


def test_every_setting_of_ngram_tables_is_in_their_header(tmp_path: Path) -> None:
    model = tiny_model("llama")
    settings: dict[str, Any] = {"identity": "m", "k": 3, "w": 3, "bos": 1}
    others = [{"identity": "n"}, {"k": 4}, {"w": 2}, {"bos": None}, {"bos": 2}]
    headers, unfinished = set(), set()
    for number, other in enumerate([{}, *others]):
        kept = tmp_path / f"kept{number}"
        model_ngrams.build_tables(model, **settings | other, kept=kept).write(tmp_path / "tables")
        headers.add(fingerprint(str(tmp_path / "tables")))
        unfinished |= {folder.name for folder in kept.iterdir()}
    assert len(headers) == len(unfinished) == len(others) + 1
    assert set(inspect.signature(model_ngrams.build_tables).parameters) == {"model", *settings, "rows", "kept"}
    known = {"model", "output", "k", "w", "rows", "bos", "device"}  # the model's other settings are the model's
    assert set(inspect.signature(build_ngram_tables.main).parameters) == known


def test_what_a_conversion_depends_on_is_in_its_folders_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama", vocab_size=34)
    file = write_gguf(tmp_path / "tiny.gguf", model, "llama")
    found = [gguf.conversion(file)]
    with torch.no_grad():
        model.model.norm.weight[3] += 1
    for write in (
        lambda: write_gguf(file, model, "llama"),
        lambda: monkeypatch.setattr(gguf, "VERSION", gguf.VERSION + 1),
        lambda: monkeypatch.setattr(gguf.transformers, "__version__", "0.0"),
    ):
        write()
        found.append(gguf.conversion(file))
    assert len(set(found)) == 4


def test_a_large_files_identity_changes_with_any_layer(tmp_path: Path) -> None:
    """Weights merged into layers in the middle leave size, header and both ends as they are."""
    file, found = tmp_path / "model.safetensors", set()
    file.touch()
    os.truncate(file, (1 << 30) + 5)  # takes no room
    for place in (None, 0, 3 << 28, (1 << 30) + 4):
        if place is not None:
            with file.open("rb+") as content:
                content.seek(place)
                content.write(bytes([1]) * min(1 << 24, (1 << 30) + 5 - place))
        found.add(fingerprint(str(file)))
    assert len(found) == 4


def test_every_part_of_a_method_that_lies_in_a_file_is_in_a_runs_identity() -> None:
    """Every drafter's parts are named by `parts`, from which `part_hashes` takes what they hold."""
    for name in choices()["method"]:
        drafter = build(composed([f"method={name}", "model=tiny"]).plain["method"], f"method {name}")
        if isinstance(drafter, Drafter):
            known = {part for where in drafter.parts() for part in (where, *where.parents)}
            assert all(value in known for value in vars(drafter).values() if isinstance(value, Path)), name
