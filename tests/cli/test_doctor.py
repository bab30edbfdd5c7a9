"""What the doctor finds, says and advises; on machines that are made up."""

from __future__ import annotations

import http.server
import importlib.metadata
import importlib.util
import json
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from urllib.request import getproxies

import huggingface_hub
import pytest

from ngram_trie.cli import doctor as library
from ngram_trie.cli.doctor import Finding
from scripts import doctor, reproduce_paper

#: The real one; the tests go to no network.
REACH = library.unreachable


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "unreachable", lambda *_: "no route")


def test_findings_are_aligned_and_advice_is_given_once() -> None:
    findings = [
        Finding("Models", "small", "ok", "there"),
        Finding("Models", "a_longer_name", "gap", "7.6 GB to fetch " + "and more words " * 6, "fetch it"),
        Finding("Models", "third", "gap", "to fetch", "fetch it"),
        Finding("Disk", "results", "bad", "0 GB free", "make room"),
    ]
    text = library.render(findings)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert {lines[1].index("there"), lines[2].index("7.6")} == {21}
    assert text.count("fetch it") == 1 and "  -> a_longer_name, third: fetch it" in lines
    assert "  BAD results  0 GB free" in lines and "  -> make room" in lines


def test_this_machine_can_run_the_embedded_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main([]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert text.rstrip().endswith("The embedded profile can run here: make reproduce-table1.")
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
    assert doctor.main(["--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    (core,) = [finding for finding in said["findings"] if finding["name"] == "core"]
    assert said["embedded"] is False and core["state"] == "bad"
    assert "numba missing" in core["says"] and "numpy 1.0, needs >=2" in core["says"] and core["remedy"] == "make setup"


def test_an_older_python_is_the_only_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tomllib, which Python has since 3.11."""
    monkeypatch.setitem(sys.modules, "tomllib", None)
    spec = importlib.util.spec_from_file_location("old_doctor", library.__file__)
    assert spec and spec.loader
    old = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "old_doctor", old)
    spec.loader.exec_module(old)
    monkeypatch.setattr(old, "sys", SimpleNamespace(version_info=(3, 10, 14)))
    (finding,) = old.packages()
    assert (finding.name, finding.state) == ("Python", "bad") and "make PYTHON=python3.11 setup" in finding.remedy


def test_another_version_than_the_pinned_one_is_said_and_allowed() -> None:
    version = importlib.metadata.version("numpy")
    assert library.check_requirement("numpy>=2", {"numpy": version}) == ("ok", "numpy", version)
    assert library.check_requirement("numpy>=2", {"numpy": "99"}) == ("ok", "numpy", f"{version} (the set-up pins 99)")
    assert library.check_requirement("nowhere-at-all>=2", {})[0] == "bad"


def test_the_token_is_never_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_secret")
    doctor.main([])
    doctor.main(["--json"])
    text = capsys.readouterr().out
    assert "hf_secret" not in text and "token  there" in text


def test_a_hub_that_is_forbidden_unreachable_or_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in library.hub()[0].says
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    assert (library.hub()[0].state, "no route" in library.hub()[0].says) == ("gap", True)
    monkeypatch.setattr(library, "unreachable", lambda *_: "")
    assert library.hub()[0].state == "ok"


def test_whether_something_answers() -> None:
    if getproxies():
        pytest.skip("a proxy stands before local addresses")
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)  # answers 501
    threading.Thread(target=server.handle_request, daemon=True).start()
    assert REACH(f"http://127.0.0.1:{server.server_port}", 5) == ""
    server.server_close()
    assert "refused" in REACH(f"http://127.0.0.1:{server.server_port}", 5)


def test_models_by_what_is_cached_and_what_the_gpu_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "gpu_gb", lambda: 24.0)
    cached = "Qwen/Qwen2-7B-Instruct"
    monkeypatch.setattr(reproduce_paper.Download, "cached", property(lambda self: self.repository == cached))
    found = {finding.name: finding for finding in doctor.models()}
    assert found["embedded"].state == "ok" and "ships" in found["embedded"].says
    assert found["qwen2_7b_instruct"] == Finding(
        "Models (model=NAME)", "qwen2_7b_instruct", "ok", "cached; GPU of 19 GB", ""
    )
    assert found["vicuna_7b"].says == "13.5 GB to fetch; GPU of 18 GB" and found["vicuna_7b"].remedy
    assert found["llama2_7b_chat"].says.startswith("gated; 13.5 GB")
    assert found["vicuna_13b"].says == "26.0 GB to fetch; GPU of 30 GB, 24 GB here"


def test_too_little_disk_is_bad_only_where_results_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(library.shutil.disk_usage(tmp_path))
    monkeypatch.setattr(library.shutil, "disk_usage", lambda _: usage(10**12, 10**12, 10**8))
    (found,) = library.disks({"results": tmp_path / "not" / "there", "cache": tmp_path}, 0.5, 120)
    assert (found.name, found.state, found.says) == ("results, cache", "bad", "0 GB free")
    monkeypatch.setattr(library.shutil, "disk_usage", lambda _: usage(10**12, 10**11, 9 * 10**11))
    assert library.disks({"results": tmp_path}, 0.5, 120)[0].state == "ok"


def test_a_bundled_set_that_is_gone_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PROJECT", tmp_path)
    bundled = doctor.datasets()[0]
    assert bundled.state == "bad" and "rag" in bundled.says and "git checkout" in bundled.remedy


def test_parts_say_how_to_build_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tmp_path / "header.json"
    built.write_text("{}")
    monkeypatch.setattr(doctor, "PARTS", (("a", built, "rest", "make a"), ("b", tmp_path / "none", "pld", "make b")))
    assert [(f.state, f.remedy) for f in doctor.parts()] == [("ok", ""), ("gap", "make b")]
