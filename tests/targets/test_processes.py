"""Threads and forks: right answers or one line, never a process that is ended."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ngram_trie.store.files import PROJECT

COMMON = """
import os, sys, threading, warnings
sys.path.insert(0, "tests")
import torch
from support.tiny import tiny_model
from ngram_trie import Speculator
from ngram_trie.targets.cpu import PackedNetwork
torch.set_num_threads(2)
PROMPT, OPTIONS = [5, 6, 7, 8, 9, 5, 6, 7], {"max_new_tokens": 40, "do_sample": False, "eos_token_id": None}
model = tiny_model("llama")
ids = torch.tensor([PROMPT])
expected = model.generate(ids, attention_mask=torch.ones_like(ids), **OPTIONS)[0, len(PROMPT):].tolist()
kept = Speculator(model, "pld")
assert kept(PROMPT, **OPTIONS)[0] == expected and isinstance(kept._decoder.target.network, PackedNetwork)
"""
FORKED = """
child = os.fork()
if not child:
    torch.set_num_threads(1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        answers = [kept(PROMPT, **OPTIONS)[0], Speculator(tiny_model("llama"), "pld")(PROMPT, **OPTIONS)[0]]
    is_said = sum("a fork of one that has answered" in str(each.message) for each in said) == 2
    os._exit(0 if answers == [expected] * 2 and is_said else 3)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert kept(PROMPT, **OPTIONS)[0] == expected
"""
THREADS = """
wrong = []
def answer(model):
    speculator = Speculator(model, "pld")
    wrong.extend(each for each in (speculator(PROMPT, **OPTIONS)[0] for _ in range(20)) if each != expected)
threads = [threading.Thread(target=answer, args=(tiny_model("llama"),)) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong, wrong
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "variables"),
    [
        pytest.param(FORKED, {}, marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")),
        (THREADS, {}),
        (THREADS, {"NUMBA_THREADING_LAYER": "workqueue"}),
    ],
    ids=["fork", "threads", "threads of a slim image"],
)
def test_a_process_is_not_ended(program: str, variables: dict[str, str]) -> None:
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", **variables}
    command, options = [sys.executable, "-c", COMMON + program], {"capture_output": True, "text": True}
    ran = subprocess.run(command, cwd=PROJECT, env=environment, timeout=300, **options)
    assert ran.returncode == 0, ran.stderr[-2000:]
