from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.text import chain

from ngram_trie.baselines.llma import LLMA

words = st.lists(st.integers(0, 3), min_size=1, max_size=30)


def drafted(text: list[int], output: list[int], budget: int = 99, **settings: Any) -> list[int]:
    return chain(LLMA(**settings), text, output, budget)


def test_copies_after_the_first_of_the_longest_matches() -> None:
    text = [7, 1, 2, 3, 4, 9, 1, 2, 5, 6, 9, 1, 2, 8, 0]
    assert drafted(text, [2], k=4) == [3, 4, 9]
    assert drafted(text, [9, 1, 2], k=4) == [5, 6, 9]  # "9 1 2" is longer than the earlier "1 2"
    assert drafted(text, [9, 1, 2], k=4, which="last") == [8, 0]
    assert drafted(text, [9, 1, 2], k=4, max_n=2) == [3, 4, 9]
    assert drafted(text, [9, 1, 2], k=4, max_n=1, which="last") == [8, 0]
    assert drafted(text, [33]) == []


def test_the_trigger_is_output_and_the_source_is_reference() -> None:
    assert drafted([1, 2, 3, 1], []) == []  # the prompt's own end triggers nothing
    assert drafted([1, 2], [7, 8, 7]) == []  # the output is not copied from
    # Nor does a match reach back from the output into the prompt: only "1" matches, not "9 1".
    assert drafted([5, 1, 6, 9, 1, 7, 9], [1], k=2) == [6]


@given(
    reference=words,
    output=words,
    n=st.integers(1, 4),
    more=st.integers(0, 3),
    k=st.integers(2, 8),
    which=st.sampled_from(["first", "last"]),
    budget=st.integers(1, 9),
)
def test_equals_a_search_by_definition(reference, output, n, more, k, which, budget) -> None:
    expected: list[int] = []
    for length in range(n, n + more + 1):  # the longest that matches comes last
        trigger = output[-length:]
        places = [
            at + length for at in range(len(reference) - length) if reference[at : at + length] == trigger
        ]  # len(reference) - length: something follows
        if len(output) >= length and places:
            start = places[0] if which == "first" else places[-1]
            expected = reference[start : start + min(k - 1, budget)]
    assert drafted(reference, output, budget, n=n, max_n=n + more, k=k, which=which) == expected
