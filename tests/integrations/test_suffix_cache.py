"""Our object with the interface of Arctic Inference's cache, beside the original and under vLLM's own code."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from ngram_trie.integrations.arctic import in_place_of_arctic
from ngram_trie.integrations.suffix_cache import SuffixDecodingCache

TEXT = [*range(10, 40), *range(10, 15)]


def started(**options: int) -> SuffixDecodingCache:
    cache = SuffixDecodingCache(64, **options)
    cache.start_request("a", np.array(TEXT[:-1], np.int32))
    cache.add_active_response("a", TEXT[-1:])
    return cache


def test_it_drafts_a_chain_and_a_tree() -> None:
    cache = started()
    chain = cache.speculate("a", np.array(TEXT, np.int32), 4)
    assert chain.token_ids == [15, 16, 17, 18] and chain.parents == [-1, 0, 1, 2] and chain.match_len == 5
    assert chain.score == pytest.approx(sum(chain.probs)) and all(np.diff(chain.probs) <= 0)
    tree = cache.speculate("a", TEXT, 8, 4.0, 0.0, 0.0, True)
    assert len(tree.token_ids) == 8 and all(parent < node for node, parent in enumerate(tree.parents))


def test_a_draft_keeps_to_the_limits() -> None:
    cache = started()
    assert len(cache.speculate("a", TEXT, 64, max_spec_factor=0.6).token_ids) <= 3
    assert len(cache.speculate("a", TEXT, 64, max_spec_factor=0.0, max_spec_offset=2.0).token_ids) <= 2
    assert cache.speculate("a", TEXT, 0).token_ids == []
    assert cache.speculate("a", TEXT, 64, min_token_prob=0.999999).token_ids == []


def test_finished_answers_are_drafted_from_until_they_are_evicted() -> None:
    cache = SuffixDecodingCache(64, 2)
    for name, first in (("a", 100), ("b", 200), ("c", 300)):
        cache.start_request(name, [1, 2])
        cache.add_active_response(name, list(range(first, first + 20)))
        cache.stop_request(name)
    assert list(cache.cached_requests) == ["b", "c"]  # two are kept
    for evicted, expected in ((None, 303), ("c", None)):
        if evicted:
            cache.evict_cached_response(evicted)
        cache.start_request("d", [9, 300, 301, 302])
        draft = cache.speculate("d", [9, 300, 301, 302], 4)
        assert (draft.token_ids[0] if draft.token_ids else None) == expected
        cache.stop_request("d")


def test_without_a_cache_nothing_is_kept() -> None:
    cache = started(max_cached_requests=0)
    cache.stop_request("a")
    assert not cache.cached_requests and not cache.active_requests


def test_two_thousand_requests_are_not_all_remembered() -> None:
    cache = SuffixDecodingCache(64, -1, max_tokens=4096)
    rng = np.random.default_rng(0)
    for number in range(2000):
        cache.start_request(number, rng.integers(0, 500, 20).astype(np.int32))
        cache.add_active_response(number, rng.integers(0, 500, 20).tolist())
        cache.stop_request(number)
    assert not cache.active_requests and len(cache.cached_requests) <= 4096 // 20


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda cache: cache.start_request("a", [1]), "request 'a': was started already; stop it first"),
        (lambda cache: cache.stop_request("b"), "request 'b': was not started"),
        (lambda cache: cache.add_active_response("b", [1]), "request 'b': was not started"),
        (lambda cache: cache.speculate("b", [1]), "request 'b': was not started"),
        (lambda cache: cache.evict_cached_response("b"), "request 'b': no answer of it is kept"),
        (lambda cache: cache.speculate("a", [1]), "request 'a': the context must be the end of its text"),
        (lambda cache: SuffixDecodingCache(0), "max_tree_depth=0: must be an integer of at least 1"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(call: object, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        call(started())  # type: ignore[operator]
    assert str(raised.value).startswith(message)


def test_it_has_all_of_the_originals_interface() -> None:
    original = pytest.importorskip("arctic_inference.suffix_decoding", reason="make suffix-package installs it")
    for name in dir(original.SuffixDecodingCache):
        assert name.startswith("_") or hasattr(SuffixDecodingCache, name), name


def test_vllms_own_proposer_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real code of vLLM, where vLLM is installed (make setup-vllm)."""
    pytest.importorskip("vllm", reason="vLLM is not importable here; make setup-vllm")
    for name in ("arctic_inference", "arctic_inference.suffix_decoding"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    in_place_of_arctic()
    module = importlib.import_module("vllm.v1.spec_decode.suffix_decoding")
    proposer = module.SuffixDecodingProposer(
        SimpleNamespace(
            speculative_config=SimpleNamespace(
                num_speculative_tokens=4,
                suffix_decoding_max_tree_depth=24,
                suffix_decoding_max_spec_factor=1.0,
                suffix_decoding_min_token_prob=0.1,
                suffix_decoding_max_cached_requests=8,
            ),
            model_config=SimpleNamespace(max_model_len=64),
        )
    )
    tokens = np.zeros((2, 64), np.int32)
    tokens[0, : len(TEXT)] = TEXT
    batch = SimpleNamespace(
        req_ids=["a"], req_id_to_index={"a": 0}, num_tokens_no_spec=np.array([len(TEXT)]), token_ids_cpu=tokens,
        num_prompt_tokens=np.array([len(TEXT) - 1]),
    )  # fmt: skip
    assert proposer.propose(4, batch, [[14]]) == [[15, 16, 17, 18]]
    batch.req_id_to_index = {}
    batch.req_ids = []
    assert proposer.propose(4, batch, []) == [] and not proposer.suffix_cache.active_requests
