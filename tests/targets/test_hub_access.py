"""What is fetched of a hub's repository, what is known to be here, and what a hub that does not answer means."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support.hub_server import GOOD, OTHER, HubServer, Repository

from ngram_trie.cli.commands import measure
from ngram_trie.cli.overrides import composed
from ngram_trie.data.sources import fetch_url
from ngram_trie.targets import hub as hubs
from ngram_trie.targets.gguf import gguf_file
from ngram_trie.targets.hub import Unreachable, cached, drop_stale, fetch, reach, wanted


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub with one model, whose weights are there in both formats."""
    folder = tmp_path / "model"
    (folder / "original").mkdir(parents=True)
    tensors = {"x": torch.arange(50_000.0)}
    save_file(tensors, folder / "model.safetensors")
    torch.save(tensors, folder / "pytorch_model.bin")
    torch.save(tensors, folder / "original" / "consolidated.pt")
    (folder / "config.json").write_text("{}")
    with HubServer({("model", "owner/name"): Repository({"main": folder})}) as server:
        server.connect(monkeypatch, tmp_path / "home")
        yield server


def test_one_format_is_fetched_once(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cached("owner/name") is None
    folder = fetch("owner/name")
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert not any(path.endswith((".bin", ".pt")) for path in hub.downloads())
    hub.requests.clear()
    monkeypatch.setattr(hub, "down", True)
    assert fetch("owner/name") == folder == cached("owner/name") and not hub.requests


def test_a_gguf_file_is_fetched_alone_and_once(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = hub.repositories["model", "owner/name"].revisions["main"]
    (folder / "some.gguf").write_bytes(b"GGUF" + bytes(100))
    asked = composed(["model=local", "model.path=owner/name/some.gguf", "dry_run=true"])
    measure(asked)
    assert "is first downloaded and converted" in capsys.readouterr().out and not hub.requests
    file = gguf_file("owner/name/some.gguf")
    measure(asked)
    assert "is first converted" in capsys.readouterr().out
    assert file and file.read_bytes() == (folder / "some.gguf").read_bytes()
    assert {path.rsplit("/", 1)[1] for path in hub.downloads()} == {"some.gguf"}
    with pytest.raises(FileNotFoundError, match=r"^other\.gguf of 'owner/name' cannot be loaded: .*; there is no such"):
        gguf_file("owner/name/other.gguf")
    monkeypatch.setattr(hub, "down", True)
    assert gguf_file("owner/name/some.gguf") == file


def test_what_is_not_pinned_stays_what_it_was(hub: HubServer, tmp_path: Path) -> None:
    folder, newer = fetch("owner/name"), tmp_path / "newer"
    newer.mkdir()
    save_file({"x": torch.zeros(3)}, newer / "model.safetensors")
    hub.repositories["model", "owner/name"].revisions["main"] = newer  # main moves while a run is interrupted
    assert fetch("owner/name") == folder


def test_a_tokenizer_alone_is_no_model(hub: HubServer, tmp_path: Path) -> None:
    from huggingface_hub import hf_hub_download

    hf_hub_download("owner/name", "config.json")
    assert cached("owner/name") is None
    shards = tmp_path / "shards"
    shards.mkdir()
    places = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (shards / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (shards / places["a"]).touch()
    assert not hubs.weights_are_whole(shards)
    (shards / places["b"]).touch()
    assert hubs.weights_are_whole(shards)


@pytest.mark.parametrize(
    ("answer", "token", "kind", "says"),
    [
        ("gated", "", FileNotFoundError, "gated repo"),
        ("gated", OTHER, FileNotFoundError, "gated repo"),
        (None, "wrong", FileNotFoundError, "401"),
        ("unavailable", "", Unreachable, "503"),
    ],
)
def test_a_refusal_is_no_silence(
    answer: str | None, token: str, kind: type[Exception], says: str, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["model", "owner/name"].answer = answer
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(FileNotFoundError, match=says) as raised:
        fetch("owner/name")
    assert type(raised.value) is kind and "\n" not in str(raised.value)
    if answer == "gated":
        monkeypatch.setenv("HF_TOKEN", GOOD)
        assert fetch("owner/name").is_dir()


def test_what_is_not_there_is_no_silence_and_no_network_is(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        fetch("owner/other")
    assert not isinstance(raised.value, Unreachable)
    assert reach(hub.url)[1] == ""
    hub.down = True
    assert reach(hub.url) == (503, f"{hub.url} answers 503: try again later")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert reach("http://127.0.0.1:9")[0] == 0 and "cannot be reached" in reach("http://127.0.0.1:9")[1]
    with pytest.raises(Unreachable):
        fetch("owner/name")


def test_a_connection_that_is_cut_goes_on(hub: HubServer, tmp_path: Path) -> None:
    hub.cuts = {"model.safetensors": 2}
    assert (fetch("owner/name") / "model.safetensors").stat().st_size > 200_000
    file = tmp_path / "passages"
    file.write_bytes(os.urandom(300_000))
    hub.files, hub.cuts = {"host.org/passages": file}, {"passages": 2}
    import hashlib

    digest = f"md5:{hashlib.md5(file.read_bytes()).hexdigest()}"
    url = "https://host.org/passages"
    assert fetch_url(url, digest, "or a copy").read_bytes() == file.read_bytes()
    # what a killed process has left is gone on with, unless it is of another file
    kept = fetch_url(url, digest, "or a copy")
    part = kept.with_name(f"{kept.name}.part")
    kept.unlink()
    part.write_bytes(file.read_bytes()[:100_000])
    hub.requests.clear()
    assert fetch_url(url, digest, "or a copy").read_bytes() == file.read_bytes() and not part.exists()
    kept.unlink()
    part.write_bytes(b"of another file")
    with pytest.raises(FileNotFoundError, match="has not the checksum"):
        fetch_url(url, digest, "or a copy")
    assert fetch_url(url, digest, "or a copy").exists()
    hub.down = True
    with pytest.raises(Unreachable, match="503"):
        fetch_url("https://host.org/other", digest, "or a copy")


def test_files_of_a_process_that_was_killed_are_deleted_once_they_are_old(tmp_path: Path) -> None:
    old, new = tmp_path / "tmp1", tmp_path / "tmp2"
    old.touch()
    new.touch()
    os.utime(old, (0, time.time() - 2 * hubs.STALE))
    drop_stale(tmp_path, "tmp*")
    assert not old.exists() and new.exists()


def test_one_format_of_the_weights_is_wanted() -> None:
    beside = ["config.json", "tokenizer.model", "special_tokens_map.json"]
    both = [*beside, "a.safetensors", "a.bin", "training_args.bin", "original/a.pt", "code.py"]
    assert wanted(both) == [*beside, "a.safetensors"]
    assert wanted([*beside, "heads.pt", "training_args.bin"]) == [*beside, "heads.pt"]
