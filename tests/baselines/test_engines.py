"""What engines ship: drafts small enough to check by hand, and vLLM's own record of what it had accepted."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.text import TEXTS, chain, drafted, paths

from ngram_trie.baselines.llamacpp import NgramCache, NgramMap
from ngram_trie.baselines.prompt_lookup import PromptLookup
from ngram_trie.baselines.sglang_ngram import SGLangNgram
from ngram_trie.baselines.trtllm_ngram import NgramPool
from ngram_trie.bench.traces import read_traces
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import PROJECT
from scripts.studies.engines import agreement

#: A copy of github SpecDecode-Bench/simulator, which has no licence and is in no clone.
RECORDED = os.environ.get("SPEC_DECODE_BENCH", "")
RESULTS = PROJECT / "results" / "drafters" / "llama-3.1-8b-instruct"


def test_vllm_matches_between_two_lengths() -> None:
    text = [1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3]
    drafter = PromptLookup(min_ngram=2, max_ngram=3, num_draft=3)
    assert chain(drafter, text) == [4, 9, 2]  # 1 2 3
    assert chain(drafter, [*text[1:-3], 2, 3]) == [4, 9, 2]  # 2 3, its earliest place
    assert chain(drafter, [*text, 1, 7, 3]) == []  # a match of one token is too short
    assert chain(drafter, [7, 7, 7]) == [7]  # the end may overlap its match
    with pytest.raises(ValueError, match="max_ngram=3: must be an integer of at least 4"):
        PromptLookup(min_ngram=4)


@pytest.mark.slow
@pytest.mark.skipif(not RECORDED, reason="needs SPEC_DECODE_BENCH, a copy of SpecDecode-Bench/simulator")
def test_vllm_ngram_is_what_vllm_recorded() -> None:
    """At every position of 1,401 answers but one, as results/ has it."""
    whole = agreement(read_traces(Path(RECORDED))).set_index("dataset").loc["all"]
    assert (whole.answers, whole.positions, whole.within_the_answer) == (1401, 428105, 428104)
    committed = pd.read_csv(RESULTS / "vllm_ngram.csv").set_index("dataset").loc["all"]
    assert committed[["positions", "equal"]].tolist() == whole[["positions", "equal"]].tolist()


@settings(deadline=None)
@given(TEXTS, st.lists(st.integers(0, 3), max_size=12), st.integers(1, 3), st.integers(1, 6))
def test_a_pool_of_its_own_is_prompt_lookup(prompt: list[int], output: list[int], longest: int, size: int) -> None:
    sizes = {"max_ngram": longest, "num_draft": size}
    assert chain(NgramPool(**sizes), prompt, output) == chain(PromptLookup(**sizes), prompt, output)


def test_a_shared_pool_keeps_the_oldest_of_the_longest() -> None:
    drafter = NgramPool(max_ngram=2, num_draft=3, keep_between_prompts=True)
    assert chain(drafter, [1, 2, 5]) == []
    assert chain(drafter, [7, 1, 2]) == [5]  # all that followed 1 2 so far
    assert chain(drafter, [8, 1, 2, 6, 6, 6, 1, 2]) == [6, 6, 6]  # longer, so it takes its place
    assert chain(drafter, [8, 1, 2, 9, 9, 9, 1, 2]) == [6, 6, 6]  # as long, and later


def test_sglang_drafts_the_latest_first_and_fewer_behind_longer_matches() -> None:
    drafter = SGLangNgram(num_draft=4, depth=3, min_breadth=1, max_breadth=3)
    # The prompt's tokens are not in the trie, but for the last ones: windows 9 1 5, 1 5 1, 5 1 6, 1 6 1.
    tree = drafted(drafter, [1, 7, 8, 9], [1, 5, 1, 6, 1])
    # 6 1 leads nowhere. Behind 1, whose breadth is 2, there came 6, and before that 5; below, the breadth is 1.
    assert paths(tree) == [(6,), (5,), (6, 1), (5, 1)]
    assert paths(drafted(drafter, [1, 7, 8, 9], [1, 5, 1, 6, 1], budget=2)) == [(6,), (5,)]
    # 5 1 is matched, whose breadth is 1: its 6 alone, and then what followed 1.
    assert paths(drafted(drafter, [9], [1, 5, 1, 6, 5, 1])) == [(6,), (5,), (6, 5), (5, 1)]
    assert paths(drafted(drafter, [1, 2, 1, 2], [1])) == []


def test_sglang_keeps_its_trie_between_prompts() -> None:
    drafter = SGLangNgram(keep_between_prompts=True)
    drafted(drafter, [9], [1, 5, 6, 7])
    assert paths(drafted(drafter, [8], [1])) == [(5,), (5, 6), (5, 6, 7)]
    drafter.remind(Prompt(np.array([9])), [2, 3, 4])
    assert paths(drafted(drafter, [8], [2])) == [(3,), (3, 4)]


def map_text(*values: list[int]) -> list[int]:
    """The key 1 2 before each value of two tokens; other tokens between them and enough behind."""
    text = [30]
    for number, value in enumerate(values):
        text += [1, 2, *value, 40 + number, 50 + number]
    return [*text, 60, 61, 62, 1]


def test_map_k4v_copies_what_dominates() -> None:
    drafter = NgramMap(ngram=2, num_draft=2)
    assert chain(drafter, map_text([5, 6], [5, 6], [7, 8]), [2]) == [7, 8]  # from the latest place, by 5 6's count
    assert chain(drafter, map_text([5, 6], [7, 8]), [2]) == []  # once against once
    assert chain(drafter, map_text([5, 6]), [2]) == [5, 6]
    assert chain(NgramMap(ngram=2, num_draft=2, min_hits=2), map_text([5, 6]), [2]) == []
    assert chain(drafter, [1, 2, 5, 6, 1], [2]) == []  # too short a text


def test_map_k4v_drafts_as_much_as_was_accepted() -> None:
    drafter = NgramMap(ngram=2, num_draft=2)
    assert chain(drafter, map_text([5, 6]), [2]) == [5, 6]
    drafter.observe([5, 9])  # one of two
    drafter.observe([1])
    drafter.observe([2])
    assert drafter.propose(9).tokens.tolist() == [2, 5]
    drafter.observe([3])  # none
    drafter.observe([1])
    drafter.observe([2])
    assert not drafter.propose(9).num_draft


def test_ngram_cache_takes_the_commonest_that_is_sure_enough() -> None:
    drafter = NgramCache(num_draft=3)
    assert chain(drafter, [1, 2, 3, 4, 1, 2, 3], [4]) == [1, 2, 3]  # behind four tokens once is enough
    # Behind 5 1 twice is enough; of what followed 5 1 6 the half is.
    assert chain(drafter, [5, 1, 6, 8, 5, 1, 6, 9, 5], [1]) == [6, 8, 5]
    assert chain(drafter, [1, 6, 7, 1, 8, 9], [1]) == []  # half of two is not two thirds
    assert chain(drafter, [7, 6, 8, 6], [9, 9, 6]) == []


def test_ngram_cache_counts_within_a_step() -> None:
    drafter = NgramCache()
    drafter.start(Prompt(np.array([9])))
    for step in ([1], [2], [3], [1]):
        drafter.observe(step)
        assert not drafter.propose(9).num_draft  # no n-gram lies within one token
    drafter.observe([2, 3, 4, 1, 2, 3, 4])
    assert drafter.propose(9).tokens.tolist()[:4] == [4, 1, 2, 3]
