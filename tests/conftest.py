"""The surroundings of every test, and the fixtures that several modules share."""

from __future__ import annotations

import logging
import os

# No test goes to the hub: what one machine has cached or can reach must not decide whether it passes.
os.environ["HF_HUB_OFFLINE"] = "1"
# Tests run in as many processes as there are cores: each has one to itself, and tiny models gain nothing from more.
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

from collections.abc import Iterator

import hypothesis
import pytest
from support.tiny import tiny_target

from ngram_trie.targets.model import TargetModel

# One example sequence for everybody: a near-tie of two logits must not turn CI red by chance.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, max_examples=40)
hypothesis.settings.load_profile("ci")


class Deprecations(logging.Handler):
    """What transformers' log says is about to go: most of its renamings are told there, once a process."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "deprecated" in (message := record.getMessage()):
            self.found.append(message)


deprecations = Deprecations()
logging.getLogger("transformers").addHandler(deprecations)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    deprecations.found.clear()
    yield
    if deprecations.found:
        pytest.fail(f"transformers will drop something that is used: {deprecations.found[0]}", pytrace=False)


@pytest.fixture(params=["llama", "qwen2"])
def target(request: pytest.FixtureRequest) -> TargetModel:
    return tiny_target(request.param)
