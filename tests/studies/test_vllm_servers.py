"""The study of vLLM's servers, against a stand-in: what it counts, and what it says if no server starts."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.openai_server import OpenAIServer

from ngram_trie.bench.server import Server
from scripts.studies import vllm_servers
from scripts.studies.vllm_servers import chi_square, draw, serving, strain


def test_servers_that_draw_alike_and_servers_that_do_not() -> None:
    by_hand = chi_square([Counter(a=30, b=20)], [Counter(a=20, b=30)])  # 4 cells, each 5 off 25
    assert (by_hand["statistic"], by_hand["dof"]) == (pytest.approx(4.0), 1)
    rng = np.random.default_rng(0)
    first, alike = ([Counter(rng.choice(list("abcd"), 300, p=[0.6, 0.2, 0.1, 0.1])) for _ in range(4)] for _ in "12")
    other = [Counter(rng.choice(list("abcd"), 300, p=[0.7, 0.15, 0.1, 0.05])) for _ in range(4)]
    assert chi_square(first, alike)["p"] > 0.05 and chi_square(first, other)["p"] < 1e-4
    # each drawn once: one kind, which says nothing
    assert np.isnan(chi_square([Counter("abc")], [Counter("def")])["p"])


def test_sampled_answers_have_a_seed_each() -> None:
    with OpenAIServer(metrics=True, answer=lambda body: [f"{body['seed'] % 2}"]) as stand_in:
        texts, accepted = draw(Server("blend", stand_in.url), [[1, 2], [3]], 10, seed=100)
    assert texts == [Counter({"0": 5, "1": 5})] * 2 and accepted == 60
    assert sorted(body["seed"] for body in stand_in.requests) == list(range(100, 120))
    assert {body["temperature"] for body in stand_in.requests} == {0.7}


def test_cancelled_requests_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_servers, "PATIENCE", 0.4)

    def slowly(body: object) -> list[str]:
        time.sleep(0.5)
        return [str(body["prompt"])]  # type: ignore[index]

    told: dict[int, str] = {}
    prompts = [[number] for number in range(20)]
    with OpenAIServer(metrics=True, answer=slowly) as stand_in:
        first = strain(Server("none", stand_in.url), psutil.Process(), prompts, 2, told)
        told[1] = "other"
        second = strain(Server("blend", stand_in.url), psutil.Process(), prompts, 2, told)
    assert [first[name] for name in ("cancelled", "answers", "same", "left")] == [4, 16, 16, 3]
    assert [second[name] for name in ("compared", "same", "failures")] == [16, 15, 0]
    assert float(str(second["mib_20"])) > 10


def test_a_server_that_does_not_start_is_said_in_a_line(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such model; exit 1\n")
    python.chmod(0o755)
    log = tmp_path / "log"
    said = r"^vLLM's server blend did not start: .*log says why$"
    with pytest.raises(ValueError, match=said), serving(python, "model", "blend", 9, log):
        pass
    assert log.read_text() == "no such model\n"
