"""What a manifest says of where numbers come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngram_trie.bench.provenance import make_manifest


def test_the_commit_of_a_copy_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("commit" in name for name in make_manifest({}, "model", "prompts").environment)
    monkeypatch.setenv("NGRAM_TRIE_COMMIT", "abc")
    assert make_manifest({}, "model", "prompts").environment["commit, as given"] == "abc"


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="the system does not say")
def test_a_manifest_names_the_processors_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "znver9")
    assert " (znver9), " in make_manifest({}, "model", "prompts").device
