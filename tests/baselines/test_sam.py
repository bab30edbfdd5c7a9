from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.text import chain

from ngram_trie.baselines.datastore import build_datastore
from ngram_trie.baselines.sam import SAMDecoding, SuffixAutomaton

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def drafted(text: list[int], output: list[int] | None = None, budget: int = 99, **settings: Any) -> list[int]:
    return chain(SAMDecoding(**settings), text, output, budget)


def brute_force_match(text: list[int], followers: int = 1) -> tuple[int, int]:
    """The longest suffix whose first occurrence has enough tokens after it, and that occurrence's end."""
    for length in range(len(text) - 1, 0, -1):
        suffix = text[len(text) - length :]
        end = next(end for end in range(length, len(text) + 1) if text[end - length : end] == suffix)
        if end < len(text) and len(text) - end >= followers:
            return length, end
    return 0, 0


def test_follows_the_longest_match_from_its_earliest_occurrence() -> None:
    assert drafted([1, 2, 3, 9, 2, 4, 1, 2]) == [3, 9, 2, 4, 1, 2]  # "1 2", not the later "2"
    assert drafted([1, 2, 3, 1, 2, 4, 1, 2], num_draft=1) == [3]  # "1 2" twice: the first
    assert drafted([5, 2, 3, 1, 2, 4, 1, 2], num_draft=1) == [4]  # the longer match, though later
    assert drafted([1, 2, 3]) == []
    assert drafted([1]) == []


def test_lengths() -> None:
    text = [*range(50), 10, 11]
    assert drafted(text) == list(range(12, 20))  # four for each of the two matched tokens
    assert drafted(text, alpha=None) == [*range(12, 50), 10]
    assert drafted([*range(60), 10], alpha=None) == list(range(11, 50))  # with the pending one 40 tokens
    assert drafted(text, num_draft=3) == drafted(text, budget=3) == [12, 13, 14]
    assert drafted(text, alpha=1.5) == [12, 13, 14]
    assert drafted(text, alpha=0.4) == []
    assert drafted(text, min_match=2, num_draft=1) == [12]
    assert drafted(text, min_match=3) == []


def test_require_full_takes_a_shorter_match_that_goes_on() -> None:
    text = [2, 7, 8, 9, 1, 2, 5, 1, 2]
    assert drafted(text, num_draft=4) == [5, 1, 2]
    assert drafted(text, num_draft=4, require_full=True) == [7, 8, 9, 1]
    # As long a match as before: only where the copy begins is another matter.
    assert drafted(text, num_draft=4, require_full=True, min_match=2) == [7, 8, 9, 1]
    assert drafted(text, num_draft=4, require_full=True, min_match=3) == []
    # Four tokens follow no suffix: the last token's first occurrence, and what there is.
    assert drafted([1, 2, 5, 1, 2], num_draft=4, require_full=True) == [5, 1, 2]
    assert drafted([2, 5, 1, 2, 9, 1, 2], num_draft=9, require_full=True) == [5, 1, 2, 9, 1, 2]


@pytest.fixture
def store(tmp_path: Path) -> str:
    build_datastore([[1, 2, 3, 4, 5, 6, 7], [2, 3], [8, 2, 3, 9, 5, 100_000]], tmp_path)
    return str(tmp_path)


def test_other_texts_are_followed_where_they_match_longer(store: str) -> None:
    assert drafted([60, 2, 3], datastore=store, static_bias=5) == []  # not longer than nothing by more than 5
    assert drafted([60, 2, 3], datastore=store, static_bias=0) == [4, 5, 6, 7]
    assert drafted([60, 2, 3], datastore=store, static_bias=1) == [4, 5, 6, 7]
    assert drafted([60, 2, 3], datastore=store, static_bias=2) == []
    assert drafted([60, 8, 2, 3], datastore=store, static_bias=2) == [9, 5, 100_000]  # the longer match, though later
    assert drafted([1, 2, 3, 4, 5, 6], datastore=store, static_bias=5) == [7]
    assert drafted([60, 2, 3], [9, 5], datastore=store, static_bias=0, num_draft=1) == [100_000]
    assert drafted([60, 2, 3], datastore=store, static_bias=0, alpha=1.5) == [4, 5, 6]


def test_a_datastore_is_a_part_and_makes_the_state_preloaded(store: str) -> None:
    drafter = SAMDecoding(datastore=store)
    assert drafter.traits.state == "preloaded" and list(drafter.parts()) == [Path(store) / "header.json"]
    assert SAMDecoding().traits.state == "cold" and not SAMDecoding().parts()
    build_datastore([[1, 2, 3, 4, 5, 6, 8]], Path(store))  # another one at the same place
    assert drafted([1, 2, 3, 4, 5, 6], datastore=store) == [8]
    with pytest.raises(FileNotFoundError, match="datastore=nowhere: no datastore there"):
        drafted([1], datastore="nowhere")


def brute_force_static(documents: list[list[int]], text: list[int]) -> tuple[int, list[int]]:
    """The longest suffix that a document goes on after, and all that follows its first such occurrence."""
    for length in range(len(text), 0, -1):
        for document in documents:
            for end in range(length, len(document)):
                if document[end - length : end] == text[len(text) - length :]:
                    return length, document[end:]
    return 0, []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS, TEXTS, st.integers(0, 3), st.integers(1, 12))
def test_the_static_match_is_what_brute_force_finds(
    tmp_path: Path, documents: list[list[int]], prompt: list[int], output: list[int], static_bias: int, most: int
) -> None:
    build_datastore(documents, tmp_path)
    text = prompt + output
    length, follow = brute_force_static(documents, text)
    own, end = brute_force_match(text)
    expected = follow[:39] if length - static_bias > own else text[end : end + 39] if own else []
    options: dict[str, Any] = {"datastore": str(tmp_path), "static_bias": static_bias, "alpha": None}
    assert drafted(prompt, output, **options) == expected
    assert drafted(prompt, output, num_draft=most, **options) == drafted(prompt, output, most, **options)
    assert drafted(prompt, output, most, **options) == expected[:most]


@given(TEXTS, st.integers(0, 60), st.integers(1, 4))
def test_the_match_is_what_brute_force_finds(text: list[int], cut: int, followers: int) -> None:
    automaton = SuffixAutomaton(text[:cut])
    for end, token in enumerate(text[cut:], cut + 1):
        automaton.extend([token])
        assert automaton.match(followers) == brute_force_match(text[:end], followers)
