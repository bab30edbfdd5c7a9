"""What an answer needs is compiled before its clock runs; what a clock says of a step that compiles is not believed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from ngram_trie import compile_beside
from ngram_trie.budget import compiling
from ngram_trie.store import inlining
from ngram_trie.store.files import PROJECT, cache_folder
from ngram_trie.tree import _depths

#: Long answers to different texts by every drafter, each behind a warm-up on a short one.
LONG = """
import sys
sys.path[:0] = ["tests", "tests/adversarial"]
import numpy as np
from fuzz import SMALLER, drafters
from support.fake_target import FakeTarget, answer
from support.tiny import tiny_model
from ngram_trie.budget.compiling import num_compiled, warm_up
from ngram_trie.methods import make_drafter
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.prompt import Prompt
from ngram_trie.targets.choose import network_for
from ngram_trie.targets.model import TargetModel
from ngram_trie.tree import DraftTree

rng = np.random.default_rng(1)
rules = [lambda text: (text[-1] + 1) % 7, lambda text: int(np.random.default_rng(len(text)).integers(90))]
answer(FakeTarget(rules[0]), make_drafter("vanilla"), [1, 2], 9)
tested = 0
for name in drafters():
    fields = {"name": name, **SMALLER.get(name, {})}
    if make_drafter(fields).traits.reads != "tokens":
        continue
    for shape in ("tree", "chain"):
        try:
            warm, long = (make_drafter(fields, None, shape) for _ in range(2))
        except ValueError:  # it drafts no chains
            continue
        warm_up(warm, Prompt(np.arange(40) % 7, {warm.traits.context: (0, 40)}), FakeTarget(rules[0]))
        before = num_compiled()
        for rule in rules:
            for length in (300, 20):
                answer(FakeTarget(rule), long, rng.integers(90, size=length).tolist(), 600)
        if num_compiled() != before:
            print(name, shape)
        tested += 1
assert tested > 10
model = tiny_model("llama")
target = TargetModel(model, network=network_for(model, 160))
before = num_compiled()
for drafter in ("blend", "vanilla"):
    SpeculativeDecoder(target, make_drafter(drafter)).generate(Prompt(np.arange(40) % 7), Stop(80))
target.verify(DraftTree(np.array([1, 2, 3]), np.array([-1, 0, 0])))
target.commit(100, [0, 2])
if num_compiled() != before:
    print("cpu")
"""


@pytest.mark.slow
def test_nothing_is_compiled_in_an_answer_behind_the_warm_up() -> None:
    told = subprocess.run([sys.executable, "-c", LONG], cwd=PROJECT, capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (0, ""), told.stderr


def test_compiling_is_counted_and_said_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "_is_told", False)
    before, parents = compiling.num_compiled(), np.array([-1, 0, 1])
    numba.njit(lambda number: number + 1)(3)
    assert compiling.num_compiled() > before and capsys.readouterr().err == ""  # not the project's
    for _ in range(2):
        assert numba.njit(_depths.py_func)(parents).tolist() == [0, 1, 2]
    assert capsys.readouterr().err == f"compiling for this processor, once (kept in {cache_folder()})\n"
    _depths(parents)
    before = compiling.num_compiled()
    _depths(parents)
    assert compiling.num_compiled() == before


#: The library's first answer; prints which of the project's functions this process compiles, but for the network's.
FIRST = """
import sys
sys.path.insert(0, "tests")
from numba.core import event
from support.tiny import tiny_model
from ngram_trie import speculative_generate
with event.install_recorder("numba:compile") as seen:
    speculative_generate(tiny_model("llama"), [1, 2, 3, 4] * 20, max_new_tokens=90)
functions = {each.data["dispatcher"].py_func for _, each in seen.buffer}
drafting = "ngram_trie.blend", "ngram_trie.budget", "ngram_trie.store"
print(sorted(function.__qualname__ for function in functions if function.__module__.startswith(drafting)))
"""


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core: nothing is compiled beside anything")
def test_a_second_process_compiles_all_that_the_default_drafter_needs(tmp_path: Path) -> None:
    environment = {**os.environ, "NGRAM_TRIE_CACHE": str(tmp_path)}
    for _ in range(2):
        command = [sys.executable, "-c", FIRST]
        told = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
        assert told.stdout == "[]\n", told.stderr


def test_the_second_process_begins_where_nothing_is_kept_and_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_beside.compile_default()
    assert compile_beside.begin() is None
    # nothing can be written: what is compiled in this process is as good
    monkeypatch.setattr(inlining, "is_kept", lambda function: False)
    assert compile_beside.begin() is None
    monkeypatch.setattr(compile_beside, "is_kept", lambda function: False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    process = compile_beside.begin()
    assert process and process.wait() == 0
    for executable in (None, "uwsgi", "python-that-is-not-there"):
        monkeypatch.setattr(sys, "executable", executable)
        assert compile_beside.begin() is None
