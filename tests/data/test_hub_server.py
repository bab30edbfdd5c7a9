"""The loaders meet a hub: models and data sets by id and revision, again without it, and all a first user can meet.

What is loaded comes from a stand-in (tests/support/hub_server.py) into caches of its own; the real hub is not asked.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from support.hub_server import PROJECT, Client, HubServer, Repository
from support.tiny_bge import ROWS, save_tiny_bge
from transformers import AutoModelForCausalLM, LlamaConfig

from ngram_trie.targets.load import load_model, load_tokenizer

pytest.importorskip("datasets")
pytest.importorskip("pooch")

GSM8K = [{"question": f"What is {i} + {i}?", "answer": f"#### {2 * i}"} for i in range(5)]
#: As TriviaQA's validation split: a question of Wikipedia's pages again with those of the web.
TRIVIAQA = [
    {
        "question": f"Who was {i}?",
        "question_id": f"tc_{i}",
        "question_source": "http://www.triviacountry.com/",
        "entity_pages": {"title": [], "wiki_context": []},
        "answer": {"value": f"Name {i}", "aliases": [f"Name {i}", f"N. {i}"], "normalized_aliases": [f"n {i}"]},
    }
    for i in (0, 1, 0)
]
PASSAGES = gzip.compress(
    "\n".join(["id\ttext\ttitle", *(f"{row['id']}\t{row['text']}\t{row['title']}" for row in ROWS[:3])]).encode()
    + b"\n",
    mtime=0,
)


def pinned(file: str, part: str | None = None) -> str:
    """The revision that the configuration asks for."""
    config = yaml.safe_load((PROJECT / "configs" / f"{file}.yaml").read_text())
    return (config[part] if part else config)["revision"]


def save_model(folder: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=61, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    for file in (PROJECT / "data" / "tiny" / "model").glob("tokenizer*.json"):
        shutil.copy(file, folder)
    return folder


def tables(folder: Path, split: str, **subsets: list[dict]) -> Path:
    """A data set of parquet files, a folder a subset."""
    configs = []
    for subset, rows in subsets.items():
        (folder / subset).mkdir(parents=True)
        pd.DataFrame(rows).to_parquet(folder / subset / f"{split}-00000-of-00001.parquet")
        configs.append({"config_name": subset, "data_files": [{"split": split, "path": f"{subset}/{split}-*"}]})
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': configs})}---\n")
    return folder


def published(folder: Path) -> dict[tuple[str, str], Repository]:
    """What the stand-in has: models and data sets, some in two versions or in another state."""
    model = save_model(folder / "model", 1)
    damaged = Path(shutil.copytree(model, folder / "damaged"))
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:3000])
    bge = save_tiny_bge(folder / "bge") / "m3"
    (bge / "onnx").mkdir()
    (bge / "onnx" / "model.onnx").write_bytes(b"the weights again")
    heads = folder / "heads"
    heads.mkdir()
    torch.save({"0.0.linear.weight": torch.ones(2, 2)}, heads / "medusa_lm_head.pt")
    (heads / "config.json").write_text('{"medusa_num_heads": 1}')
    asked = tables(folder / "trivia_qa", "validation", rc=TRIVIAQA[:2], **{"rc.nocontext": TRIVIAQA})
    return {
        ("model", "BAAI/bge-m3"): Repository({pinned("encoder/bge_m3"): bge}),
        ("model", "some/heads"): Repository({"main": heads}),
        ("model", "some/model"): Repository({"main": model, "v2": save_model(folder / "second", 2)}),
        ("model", "some/gated"): Repository({"main": model}, "gated"),
        ("model", "some/unavailable"): Repository({"main": model}, "unavailable"),
        ("model", "some/damaged"): Repository({"main": damaged}),
        ("model", "some/other"): Repository({"main": model}),
        ("dataset", "mandarjoshi/trivia_qa"): Repository({pinned("retrieval", "questions"): asked}),
        ("dataset", "openai/gsm8k"): Repository(
            {
                "main": tables(folder / "newer", "test", main=GSM8K[:4]),
                pinned("dataset/gsm8k"): tables(folder / "gsm8k", "test", main=GSM8K, socratic=GSM8K[:3]),
            }
        ),
    }


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    with HubServer(published(tmp_path_factory.mktemp("published")), {"/psgs.tsv.gz": PASSAGES}) as server:
        yield server


@pytest.fixture(scope="module")
def clients(hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Client]]:
    """Two processes that share their caches: one to fetch, one that starts with nothing in memory."""
    home = tmp_path_factory.mktemp("home")
    started = [Client(hub.url, home), Client(hub.url, home)]
    yield started
    for client in started:
        client.close()


def passages(hub: HubServer, content: bytes = PASSAGES) -> dict[str, str]:
    return {"url": f"{hub.url}/psgs.tsv.gz", "md5": hashlib.md5(content).hexdigest()}


@pytest.mark.slow
def test_what_was_loaded_once_loads_without_the_hub(hub: HubServer, clients: list[Client]) -> None:
    wanted = [
        ("model", ("some/model",), {}),
        ("model", ("some/model", "v2"), {}),
        ("tokenizer", ("some/model",), {}),
        ("dataset", ("gsm8k",), {}),
        ("dataset", ("gsm8k",), {"revision": None}),
        ("questions", (), {}),
        ("encoder", (), {}),
        ("weights", ("some/heads",), {}),
        ("corpus", (), passages(hub)),
    ]
    first = [clients[0].ask(what, *args, **kwargs).get("loaded") for what, args, kwargs in wanted]
    assert first[0] != first[1]  # another revision has other weights
    assert first[2]
    assert first[3] == [f"What is {i} + {i}?" for i in range(3)]  # five in the pinned revision, two of them to warm up
    assert first[4] == [f"What is {i} + {i}?" for i in range(2)]  # four in its newest
    assert first[5] == [[f"tc_{i}", f"Who was {i}?", [f"Name {i}", f"N. {i}", f"n {i}"]] for i in range(2)]
    assert len(first[6][0]) == 32 and first[7] == {"0.0.linear.weight": 4.0}
    assert first[8] == [f"{row['title']}\n{row['text']}" for row in ROWS[:3]]
    # no other subset, and no weights in other formats
    assert not [line for line in hub.requests if line.startswith("GET") and ("/rc/" in line or "onnx" in line)]
    asked = len(hub.requests)
    for what, args, kwargs in (wanted[3], wanted[5], wanted[8]):
        clients[0].ask(what, *args, **kwargs)
    assert len(hub.requests) == asked  # what is pinned and in the cache needs no look at the hub
    hub.__exit__()
    try:
        again = [clients[1].ask(what, *args, **kwargs).get("loaded") for what, args, kwargs in wanted]
        never = [
            clients[1].ask("model", "some/other")["error"],
            clients[1].ask("tokenizer", "some/other")["error"],
            clients[1].ask("dataset", "gsm8k", hub="some/other")["error"],
            clients[1].ask("questions", split="train")["error"],
            clients[1].ask("encoder", path="some/never", revision=None)["error"],
            clients[1].ask("weights", "some/never")["error"],
            clients[1].ask("corpus", **passages(hub, b"another"))["error"],
        ]
    finally:
        hub.__enter__()
    assert again == first
    for error in never:
        assert "cannot be loaded: " in error and "; or give a" in error and "\n" not in error


@pytest.mark.slow
def test_what_the_hub_does_not_give_is_one_line(hub: HubServer, clients: list[Client]) -> None:
    for name, token, reason in (
        ("some/gated", "", "Access to model some/gated is restricted"),
        ("some/modle", "", "Repository Not Found"),
        ("some/unavailable", "", "Hub"),
    ):
        error = clients[0].ask("model", name, token=token)["error"]
        assert f"model '{name}' cannot be loaded: " in error and reason in error and "\n" not in error
        assert error.endswith("; or give a folder with its files: model.path=FOLDER")
    assert "loaded" in clients[0].ask("model", "some/gated", token="good")
    error = clients[0].ask("model", "some/damaged")["error"]
    assert "fetch them again, after deleting models--some--damaged in " in error and "\n" not in error
    assert "known hash" in clients[0].ask("corpus", **passages(hub, b"another"))["error"]


def test_a_folder_that_holds_no_model(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FileNotFoundError, match=r"^model '.*empty' cannot be loaded: there is no config\.json in the"):
        load_model(str(empty))
    with pytest.raises(FileNotFoundError, match=r"^the tokenizer of model '.*empty' cannot be loaded: there is no tok"):
        load_tokenizer(str(empty))
    folder = save_model(tmp_path / "model", 1)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    damaged = r"cannot be loaded: its weights are cut short, damaged, or not only tensors \(.*\): fetch them again$"
    with pytest.raises(FileNotFoundError, match=damaged):
        load_model(str(folder))
    weights.unlink()
    with pytest.raises(FileNotFoundError, match=r"no file named .*safetensors"):
        load_model(str(folder))
    # PyTorch's own format, which older repositories have
    torch.save({"lm_head.weight": torch.zeros(61, 16)}, folder / "pytorch_model.bin")
    content = (folder / "pytorch_model.bin").read_bytes()
    for length in (0, 3, 100, len(content) // 2, len(content) - 30):
        (folder / "pytorch_model.bin").write_bytes(content[:length])
        with pytest.raises(FileNotFoundError, match=damaged):
            load_model(str(folder))
