from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.text import drafted as of_drafter
from support.text import paths

from ngram_trie.baselines.suffix_decoding import COUNT, CountedAutomaton, SuffixDecoding
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import Trace
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def drafted(text: list[int], budget: int = 99, **settings: Any) -> DraftTree:
    return of_drafter(SuffixDecoding(**settings), text, budget=budget)


def occurrences(text: list[int], path: tuple[int, ...]) -> int:
    return sum(text[at : at + len(path)] == list(path) for at in range(len(text) - len(path) + 1))


def first_start(text: list[int], path: tuple[int, ...]) -> int:
    return next(at for at in range(len(text)) if tuple(text[at : at + len(path)]) == path)


def brute_force_tree(
    text: list[int], matched: int, num_draft: int, max_depth: int, totals: str, ties: str
) -> list[tuple[float, tuple[int, ...]]]:
    """(probability, path) of the likeliest continuations of the last `matched` tokens, the likeliest first."""
    suffix = tuple(text[len(text) - matched :])
    order = 1 if ties == "shallow" else -1
    frontier: list[tuple[float, tuple[int, ...]]] = [(1.0, ())]
    nodes: list[tuple[float, tuple[int, ...]]] = []
    while frontier and len(nodes) <= num_draft:
        frontier.sort(key=lambda node: (-node[0], order * len(node[1]), first_start(text, suffix + node[1])))
        prob, path = frontier.pop(0)
        nodes.append((prob, path))
        if matched + len(path) == max_depth:
            continue
        counts = {token: occurrences(text, (*suffix, *path, token)) for token in set(text)}
        total = sum(counts.values()) if totals == "followers" else occurrences(text, suffix + path)
        frontier += [(prob * (count / total), (*path, token)) for token, count in counts.items() if count]
    return nodes[1:]


def test_the_likeliest_continuations_by_hand() -> None:
    # "1" was followed by 2 twice and by 3 once; "1 2" by 4 and by 5.
    text = [1, 2, 4, 1, 2, 5, 1, 3, 6, 1]
    # (3,) and all below (2,) have a third: the shallower or the deeper first, and 4, which came before 5.
    assert paths(drafted(text, num_draft=4, alpha=None)) == [(2,), (3,), (2, 4), (2, 5)]
    assert paths(drafted(text, num_draft=4, alpha=None, ties="deep")) == [(2,), (2, 4), (2, 4, 1), (2, 4, 1, 2)]
    assert paths(drafted(text, num_draft=1)) == [(2,)]
    assert set(paths(drafted(text, num_draft=30, alpha=None, max_depth=2))) == {(2,), (3,)}


def test_min_prob_leaves_out_what_is_unlikely() -> None:
    text = [1, 2, 4, 1, 2, 5, 1, 3, 6, 1]
    assert (3,) in paths(drafted(text, num_draft=50, alpha=None))
    assert (3,) not in paths(drafted(text, num_draft=50, alpha=None, min_prob=0.4))


def test_a_question_is_never_drafted_from_an_answer_to_itself() -> None:
    def steps(drafter: SuffixDecoding, question: str, output: list[int], noise: str = "") -> list[int]:
        prompt = Prompt(np.array([1, 2]), {}, "qa", question, noise_kind=noise)
        return replay(drafter, Trace("m", prompt, output)).accept_lengths

    first, second = list(range(10, 40)), list(range(50, 80))
    warm = SuffixDecoding(remember_outputs=True)
    alone = steps(warm, "a", first)
    assert len(alone) == 29  # a token each
    assert steps(warm, "a", first) == alone  # at once again, as measure.repeats asks
    assert steps(warm, "b", second) == alone
    assert steps(warm, "a", first, "paragraph") == alone  # and later, with noise
    assert steps(warm, "a", first) == alone
    assert len(steps(warm, "c", first)) < 10 > len(steps(warm, "d", second))  # other questions go by them


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.integers(0, 40), st.integers(2, 5))
def test_counts_are_what_brute_force_counts(text: list[int], cut: int, max_depth: int) -> None:
    automaton = CountedAutomaton(text[:cut], max_depth=max_depth)
    for token in text[cut:]:
        automaton.extend([token])
    expected = Counter(
        tuple(text[start:end])
        for start in range(len(text))
        for end in range(start + 1, min(start + max_depth, len(text)) + 1)
    )

    def count(path: Sequence[int]) -> int:
        state, length = automaton.follow(path, 0, 0)
        return int(automaton._automaton.states[state, COUNT]) if length == len(path) else 0

    assert {path: count(path) for path in expected} == expected
    assert count([9]) == 0


@settings(max_examples=40, deadline=None)
@given(
    TEXTS,
    st.integers(1, 9),
    st.sampled_from([None, 1.5]),
    st.integers(3, 9),
    st.sampled_from(["followers", "occurrences"]),
    st.sampled_from(["shallow", "deep"]),
)
def test_the_tree_is_the_best_of_all_matches(
    text: list[int], num_draft: int, alpha: float | None, max_depth: int, totals: Any, ties: Any
) -> None:
    best: list[tuple[float, tuple[int, ...]]] = []
    for matched in range(1, min(len(text), max_depth)):
        if occurrences(text, tuple(text[len(text) - matched :])) < 2:
            break
        limit = num_draft if alpha is None else min(num_draft, int(alpha * matched))
        nodes = brute_force_tree(text, matched, limit, max_depth, totals, ties)
        if sum(prob for prob, _ in nodes) >= sum(prob for prob, _ in best) - 1e-9:
            best = nodes
    tree = drafted(text, num_draft=num_draft, alpha=alpha, max_depth=max_depth, totals=totals, ties=ties)
    assert paths(tree) == [path for _, path in best]
