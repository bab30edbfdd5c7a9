from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.text import drafted as of_drafter
from support.text import paths

from ngram_trie.baselines.datastore import build_datastore
from ngram_trie.baselines.rest import REST
from ngram_trie.bench.live import part_hashes, split_missing

DOCUMENTS = st.lists(st.lists(st.integers(0, 2), max_size=12), min_size=1, max_size=4).filter(any)


def drafted(folder: Path, text: list[int], budget: int = 99, **values: Any) -> list[list[int]]:
    """The paths of a draft."""
    return [list(path) for path in paths(of_drafter(REST(datastore=str(folder), **values), text, budget=budget))]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    # A token beyond 16 bits, and documents whose ends must not run into the next one's start.
    build_datastore([[1, 2, 3, 4], [9, 1, 2, 3, 5, 100_000, 7], [], [2, 8], [6, 1, 2]], tmp_path / "store")
    return tmp_path / "store"


def test_a_hit_of_the_longest_span_that_ends_a_document_is_none(tmp_path: Path) -> None:
    """Behind 16 tokens hits are not in order; the largest node's probability is 2 / 3 where two go on."""
    span = list(range(16))
    build_datastore([[*span, 50], span, span, [*span, 50]], tmp_path)
    tree = of_drafter(REST(datastore=str(tmp_path)), span, budget=9)
    assert tree.tokens.tolist() == [15, 50] and tree.probs is not None and tree.probs[1] == pytest.approx(2 / 3)
    assert drafted(tmp_path, span, max_hits=1) == [[50]]


@pytest.mark.slow
def test_the_most_frequent_continuations_by_hand(store: Path) -> None:
    assert drafted(store, [0, 1, 2]) == [[3], [3, 4], [3, 5], [3, 5, 100_000], [3, 5, 100_000, 7]]
    assert drafted(store, [0, 1, 2], num_tokens=2) == [[3], [3, 4], [3, 5]]
    assert drafted(store, [0, 1, 2], num_draft=1) == drafted(store, [0, 1, 2], budget=1) == [[3]]
    assert drafted(store, [0, 1, 2], max_hits=1) == [[3], [3, 4]]  # the first "1 2" ends a document
    assert drafted(store, [5, 6, 1, 2], num_tokens=1) == [[3]]  # "6 1 2" ends one, so "1 2" is looked up


def test_the_datastore_is_a_part_that_the_run_asks_for_and_identifies(store: Path) -> None:
    missing = REST(datastore="nowhere")
    with pytest.raises(
        FileNotFoundError, match=r"datastore=nowhere: .* scripts.build_datastore SOURCE --output nowhere"
    ):
        missing.bind(SimpleNamespace(model=None))
    there, not_there = split_missing({"rest": missing, "other": REST(datastore=str(store))})
    assert list(there) == ["other"] and "`python -m scripts.build_datastore`" in not_there["rest"]
    before = part_hashes(there)["other"]
    build_datastore([[1, 2, 3]], store)
    assert part_hashes(there)["other"] != before
    build_datastore([[1, 2, 4]], store)  # as many tokens
    assert part_hashes(there)["other"] != before


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(DOCUMENTS, st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(1, 4), st.integers(1, 9))
def test_drafts_are_the_most_frequent_prefixes_of_brute_force(
    tmp_path: Path, documents: list[list[int]], text: list[int], num_tokens: int, num_draft: int
) -> None:
    build_datastore(documents, tmp_path)
    counts: Counter[tuple[int, ...]] = Counter()
    for length in range(min(16, len(text)), 1, -1):
        span = text[len(text) - length :]
        ends = [
            (document, start + length)
            for document in documents
            for start in range(len(document))
            if document[start : start + length] == span
        ]
        for document, end in ends:
            follow = document[end : end + num_tokens]
            counts.update(tuple(follow[:size]) for size in range(1, len(follow) + 1))
        if counts:
            break
    kept = [tuple(path) for path in drafted(tmp_path, text, num_tokens=num_tokens, num_draft=num_draft)]
    assert len(set(kept)) == len(kept) == min(num_draft, len(counts))
    assert sorted((counts[path] for path in kept), reverse=True) == sorted(counts.values(), reverse=True)[: len(kept)]
