"""vLLM's contract for `custom_class`, played back without vLLM: rows that grow, move, end, pause and come back."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ngram_trie.budget import compiling
from ngram_trie.budget.compiling import num_compiled
from ngram_trie.integrations import vllm
from ngram_trie.integrations.vllm import Proposer

MAX_LENGTH = 256
TEXT = [*range(10, 40), *range(10, 40)]


def config(num_draft: int = 4, max_rows: int = 4, **settings: Any) -> SimpleNamespace:
    """What a proposer reads of vLLM's."""
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=num_draft),
        model_config=SimpleNamespace(max_model_len=MAX_LENGTH),
        scheduler_config=SimpleNamespace(max_num_seqs=max_rows),
        additional_config={"ngram_trie": {"adapt": False} | settings},
    )


class Server:
    """Rows as vLLM keeps them. Requests go on as `continuation` says; drafts are verified against it."""

    def __init__(self, proposer: Proposer, max_rows: int = 4) -> None:
        self.proposer = proposer
        self.tokens = np.zeros((max_rows, MAX_LENGTH), np.int32)
        self.lengths = np.zeros(max_rows, np.int32)
        self.rows: list[list[int]] = []

    def step(self, rows: list[list[int]], new: list[list[int]]) -> list[list[int]]:
        """Rows hold these tokens, and emitted the new ones."""
        self.tokens[:] = 7  # what an earlier request left behind
        for row, (text, emitted) in enumerate(zip(rows, new, strict=True)):
            whole = [*text, *emitted]
            self.tokens[row, : len(whole)] = whole
            self.lengths[row] = len(whole)
        return self.proposer.propose(new, self.lengths[: len(rows)], self.tokens[: len(rows)])


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the prompts that were indexed from their beginning."""
    started: list[int] = []
    drafter = vllm.BlendDrafter
    start = drafter.start

    def count(self: Any, prompt: Any) -> None:
        started.append(len(prompt.ids))
        start(self, prompt)

    monkeypatch.setattr(drafter, "start", count)
    return started


def test_a_row_that_grows_is_extended(counted: list[int]) -> None:
    server = Server(Proposer(config()))
    text = [*TEXT, 10, 11]
    for token in range(12, 30):
        assert server.step([text], [[token]])[0][:1] == [token + 1]
        text = [*text, token]
    assert counted == [len(TEXT) + 2]


def test_rows_that_move_are_recognised(counted: list[int]) -> None:
    server = Server(Proposer(config()))
    a, b, c = [*TEXT, 10], [*TEXT[::-1], 39], [*range(100, 130), *range(100, 104)]
    server.step([a, b, c], [[11], [38], [104]])
    assert server.step([[*c, 104], [*a, 11], [*b, 38]], [[105], [12], [37]]) == [
        [106, 107, 108, 109], [13, 14, 15, 16], [36, 35, 34, 33],
    ]  # fmt: skip
    assert len(counted) == 3


def test_a_preempted_request_is_resumed(counted: list[int]) -> None:
    server = Server(Proposer(config()))
    a, b = [*TEXT, 10], [*range(100, 130), *range(100, 104)]
    server.step([a, b], [[11], [104]])
    server.step([[*b, 104]], [[105]])
    server.step([[*b, 104, 105], [*a]], [[106], []])  # read again, in another row
    drafts = server.step([[*b, 104, 105, 106], [*a, 11]], [[107], [12]])
    assert drafts[1] == [13, 14, 15, 16] and len(counted) == 2


def test_a_new_request_in_a_row_is_a_new_text(counted: list[int]) -> None:
    server = Server(Proposer(config()))
    server.step([[*TEXT, 10]], [[11]])
    assert server.step([[*range(200, 210)]], [[210]])[0][:1] != [12]
    assert counted == [len(TEXT) + 1, 10]


def test_the_next_turn_of_a_chat_extends_its_text(counted: list[int]) -> None:
    server = Server(Proposer(config()))
    server.step([[*TEXT, 10]], [[11]])
    turn = [*TEXT, 10, 11, *range(50, 70), 50, 51]
    assert server.step([turn], [[52]]) == [[53, 54, 55, 56]]
    assert counted == [len(TEXT) + 1]


def test_a_method_that_indexes_prompts_alone_reads_the_next_turn_as_one() -> None:
    server = Server(Proposer(config(), name="ngram_trie"))
    server.step([[*TEXT, 10]], [[11]])
    turn = [*TEXT, 10, 11, *range(50, 70), 50, 51]
    assert server.step([turn], [[52]]) == [[53, 54, 55, 56]]


def test_twins_part() -> None:
    server = Server(Proposer(config()))
    text = [*TEXT, 10]
    assert server.step([text, text], [[11], [11]]) == [[12, 13, 14, 15]] * 2
    drafts = server.step([[*text, 11], [*text, 11]], [[12], [20]])
    assert drafts == [[13, 14, 15, 16], [21, 22, 23, 24]]


def test_a_prompt_still_being_read_gets_no_draft() -> None:
    server = Server(Proposer(config()))
    assert server.step([[*TEXT], [*TEXT, 10]], [[], [11]]) == [[], [12, 13, 14, 15]]


@pytest.mark.parametrize("name", ["blend", "pld", "suffix", "ngram_trie_output"])
def test_drafts_keep_to_the_limits(name: str) -> None:
    server = Server(Proposer(config(num_draft=5), name=name))
    for length in (40, MAX_LENGTH - 6, MAX_LENGTH - 4, MAX_LENGTH - 2, MAX_LENGTH - 1):
        text = (TEXT * 9)[: length - 1]
        (draft,) = server.step([text], [[(TEXT * 9)[length - 1]]])
        assert len(draft) <= min(5, MAX_LENGTH - length - 1)
        assert draft == (TEXT * 9)[length : length + len(draft)]


@pytest.mark.slow
def test_two_thousand_requests_are_not_all_remembered() -> None:
    proposer = Proposer(config(max_finished=8, max_rows=2))
    server = Server(proposer, 2)
    rng = np.random.default_rng(0)
    for _ in range(2000):
        text = rng.integers(0, 1000, 20).tolist()
        server.step([text], [[1]])
        server.step([[*text, 1]], [[2]])
    assert len(proposer.requests._requests) <= 2 + 8 + 1
    assert sum(len(each.text) for each in proposer.requests._requests.values()) <= 11 * 22


def test_nothing_is_drafted_from_other_requests_unless_told() -> None:
    for settings, known in (({}, False), ({"store_tokens": 4096}, True)):
        server = Server(Proposer(config(**settings)))
        answer = list(range(500, 540))
        text = [1, 2, 3]
        for token in answer:
            server.step([text], [[token]])
            text = [*text, token]
        for number in range(20):  # others, until the answer counts as finished
            server.step([[600 + number]], [[700 + number]])
        drafts = server.step([[4, 5, 500, 501]], [[502]])
        assert (drafts[0][:3] == [503, 504, 505]) is known


def test_an_answer_that_is_too_old_is_forgotten() -> None:
    proposer = Proposer(config(store_tokens=4096, store_seconds=0.001))
    server = Server(proposer)
    server.step([[1, 2, 3]], [[500]])
    for number in range(20):
        server.step([[600 + number]], [[700 + number]])
    assert proposer.answers is not None
    now = proposer.answers._clock()
    proposer.answers._clock = lambda: now + 10
    proposer.answers.background()
    assert proposer.answers._size == 0


def test_another_turn_goes_on_with_what_is_kept_then() -> None:
    proposer = Proposer(config(store_tokens=4096, store_seconds=60))
    server = Server(proposer)
    assert proposer.answers is not None
    proposer.answers.add(np.arange(500, 540))
    chat = [1, 2, 3]
    server.step([chat], [[4]])
    now = proposer.answers._clock()
    proposer.answers._clock = lambda: now + 3600
    turn = [*chat, 4, *range(30), 500]  # more than a step
    assert server.step([turn], [[501]])[0][:1] != [502]


def simulate(accept: float, seconds_per_token: float, steps: int = 400) -> list[int]:
    """Drafted tokens of the last steps, on a machine where a plain step takes 1 second."""
    now = [0.0]
    proposer = Proposer(config(adapt=True), clock=lambda: now[0])
    server = Server(proposer)
    rng = np.random.default_rng(0)
    text, draft, sizes = [*TEXT, 10], [], []
    for _ in range(steps):
        taken = 0
        while taken < len(draft) and rng.random() < accept:
            taken += 1
        # the copy goes on, or breaks off to another place of it
        new = [*draft[:taken], 10 + int(rng.integers(30))] if taken < len(draft) or not draft else [*draft, draft[-1]]
        if len(text) + len(new) > MAX_LENGTH - 10:
            text, new = [*TEXT, 10], [11]
        (draft,) = server.step([text], [new])
        text = [*text, *new]
        sizes.append(len(draft))
        now[0] += 1.0 + seconds_per_token * len(draft)
    return sizes[-100:]


def test_drafting_that_loses_switches_itself_off() -> None:
    assert np.mean(simulate(accept=0.05, seconds_per_token=0.8)) < 0.25


def test_drafting_that_pays_stays_on() -> None:
    assert np.mean(simulate(accept=0.95, seconds_per_token=0.01)) > 2


def test_what_it_compiles_is_compiled_before_it_serves(counted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_warm", set())  # other tests compiled the same
    proposer = Proposer(config(adapt=True))
    proposer.load_model()
    assert counted  # a drafter has read a text before any request came
    before, server = num_compiled(), Server(proposer)
    for length in range(len(TEXT), 2 * len(TEXT)):
        server.step([(TEXT * 2)[:length]], [[(TEXT * 2)[length]]])
    assert num_compiled() == before


def test_a_step_that_waited_for_a_compiler_is_not_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    now, compiled = [0.0], [0]
    monkeypatch.setattr(vllm, "num_compiled", lambda: compiled[0])
    proposer = Proposer(config(adapt=True), clock=lambda: now[0])
    server = Server(proposer)
    for step, seconds in enumerate((20.0, 1.0, 1.0)):
        server.step([(TEXT * 2)[: 40 + step]], [[(TEXT * 2)[40 + step]]])
        compiled[0] += seconds > 1
        now[0] += seconds
    server.step([(TEXT * 2)[:43]], [[(TEXT * 2)[43]]])
    assert proposer.paying.times(1).rate == 1.0


def test_vllms_configuration_names_a_method() -> None:
    module = importlib.import_module("ngram_trie.integrations.vllm")
    assert isinstance(module.suffix(config()), Proposer)
    with pytest.raises(AttributeError, match="did you mean blend"):
        _ = module.blendd


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("blend_logits", {}, "method blend_logits reads top-k tokens, and vLLM hands over tokens alone: give blend"),
        ("blend_warm", {}, "method blend_warm remembers earlier answers, and vLLM does not say whose they are: give"),
        ("pld", {"store_tokens": 100}, "store_tokens=100: blend alone drafts from other answers"),
        ("blend", {"store_tokens": 2}, "store_tokens=2: must be an integer of at least 4"),
        ("blend", {"store_seconds": 9}, "store_seconds: how long answers are kept, of which store_tokens=0"),
        ("blend", {"store_tokens": 99, "store_seconds": 0}, "store_seconds=0: must be a number above 0"),
        ("blend", {"store_tokens": 99, "method": {"escpe": 3}}, "escpe: did you mean escape?"),
        ("blend", {"method": "pld"}, "method='pld': must be fields of the method"),
        ("blend", {"method": {"name": "pld"}}, "method={'name': 'pld'}: must be fields of the method, without name"),
        ("blend", {"methd": {}}, "additional_config.ngram_trie: methd: did you mean method?"),
        ("blend", {"token_price": 0}, "token_price=0: must be a number above 0"),
    ],
)
def test_what_does_not_fit_is_said_in_a_line(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        Proposer(config(**settings), name=name)
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_another_vllm_is_said_in_a_line() -> None:
    with pytest.raises(ValueError, match=r"^vLLM's configuration is not the one of 0\.32.*model_config.*$"):
        Proposer(SimpleNamespace(speculative_config=SimpleNamespace(num_speculative_tokens=2)))
