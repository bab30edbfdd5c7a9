"""The blend over the model's distributions against a reference in plain Python, by hand, and as a drafter."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.fake_target import FakeTarget, answer, jumbled
from support.text import by_path
from support.tiny import tiny_model

from ngram_trie.blend import BlendLogitsDrafter, BlendLogitsWarmDrafter
from ngram_trie.blend.context_index import BlendIndex
from ngram_trie.blend.prediction import SOURCES
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafters import NoDraft
from ngram_trie.prompt import Prompt
from ngram_trie.targets.model import TargetModel
from ngram_trie.tree import DraftTree

#: A place: the tokens up to it, what followed (if anything did) and the distribution behind it (if there is one).
Place = tuple[list[int], int | None, dict[int, float]]


def shares(
    places: list[Place],
    text: list[int],
    context: list[int],
    escape: float,
    hard: float,
    soft: float,
    max_order: int = 8,
) -> dict[int, float]:
    """The formula of docs/blend.md, counted by brute force over all places."""
    kinds0 = len(set(text))
    prob = defaultdict(float, {t: text.count(t) / (len(text) + kinds0) for t in text})
    for order in range(1, min(max_order, len(context)) + 1):
        counts: dict[int, float] = defaultdict(float)
        kinds = set()
        for before, follower, likely in places:
            if before[-order:] != context[-order:] or len(before) < order:
                continue
            if follower is not None:
                counts[follower] += hard
                kinds.add(follower)
            for token, share in likely.items():
                counts[token] += soft * share
            kinds |= {max(likely, key=lambda token: likely[token])} if likely else set()
        if not kinds:
            break
        escaped = escape * len(kinds)
        total = sum(counts.values()) + escaped
        prob = defaultdict(float, {t: (counts[t] + escaped * prob[t]) / total for t in {*counts, *prob}})
    return prob


def told(index: BlendIndex, place: int, likely: dict[int, float]) -> None:
    ranked = sorted(likely.items(), key=lambda item: -item[1])
    index.attach(
        np.array([place]), np.array([[token for token, _ in ranked]]), np.array([[share for _, share in ranked]])
    )


def test_probabilities_by_hand() -> None:
    # After "2" came 3, where the model said 3 with 0.75 and 4 with 0.25. The end of the text is "2" again.
    index = BlendIndex([1, 2, 3, 2], escape=1.0, top_k=2, hard=0.5, soft=0.5, num_frequent=0)
    told(index, 1, {3: 0.75, 4: 0.25})
    tree = index.draft(2)
    # Counts: 3 has 0.5 + 0.375, 4 has 0.125; one kind, so the escape counts 1. Order 0: 3 once in 4 places of 3 kinds.
    probs = by_path(tree, tree.probs.tolist())  # type: ignore[union-attr]
    assert probs[3,] == pytest.approx(0.875 / 2 + 0.5 * 1 / 7)
    # Behind "2 4", drafted and rejected, the model said 1. So 1 follows 4, which the text does not have at all.
    index = BlendIndex([1, 2, 3, 2], escape=1.0, top_k=1, hard=0.5, soft=0.5, num_frequent=0)
    draft = DraftTree(np.array([2, 4]), np.array([-1, 0]))
    places = index.reject(draft, [0], np.array([index.last_place]))
    told(index, int(places[1]), {1: 1.0})
    index.extend([4])
    tree = index.draft(1)
    assert tree.tokens.tolist() == [4, 1]
    # The place has the whole text before it, so all five orders agree; each leaves 1 / 1.5 to the one below.
    assert tree.probs is not None and tree.probs[1] == pytest.approx(1 - (1 / 1.5) ** 5 * (1 - 1 / 9))


@pytest.mark.parametrize(("token", "credits"), [(3, (1 + 4 / 7, 1 + 3 / 7)), (4, (1, 2)), (9, (1, 1))])
@pytest.mark.parametrize("is_rejected", [False, True])
def test_what_a_token_says_of_the_two_sources_by_hand(
    token: int, credits: tuple[float, float], is_rejected: bool
) -> None:
    """Behind "2" came 3, and the model said 3 with 0.75 and 4 with 0.25, there or behind a "2" that was drafted behind
    the 1 and rejected: a 3 speaks for both, a 4 for the model.
    """
    index = BlendIndex([1, 2, 3, 2], escape=1.0, top_k=2, num_frequent=0, hard=1.0, soft=1.0)
    place = index.reject(DraftTree.chain(1, [2]), [0], np.array([0]))[1] if is_rejected else 1
    told(index, int(place), {3: 0.75, 4: 0.25})
    index.credit([token])
    hard, soft = np.array(credits) / sum(credits)
    tree = index.draft(2)
    probs = by_path(tree, tree.probs.tolist())  # type: ignore[union-attr]
    assert probs[3,] == pytest.approx((hard + 0.75 * soft) / 2 + 0.5 * 1 / 7)
    # Nothing was said of longer matches: a match of two tokens counts both alike, the 5 behind one as one token says.
    index.extend([5, 1, 2])
    tree = index.draft(1)
    assert tree.probs is not None and tree.tokens[1] == 3
    order_1 = (0.5 + 0.75 / 2 + 2 * 1 / 11) / (1 + hard + 2)  # order 0 has one 3 in seven places of four kinds
    assert tree.probs[1] == pytest.approx((0.5 + 0.75 / 2 + order_1) / 2)


def test_an_answer_that_copies_is_drafted_deep() -> None:
    """Where an answer copies, against what the model expected of the prompt, drafts become copies."""
    text = list(range(20, 60))
    depths = []
    for answer_ids in (text[:8], [(token * 7) % 40 + 100 for token in text[:8]]):
        index = BlendIndex([*text, 1, 2, text[0]], escape=0.7, top_k=1, num_frequent=0, hard=1.0, soft=1.0)
        for place, token in enumerate(text):
            told(index, place, {(token * 7) % 40 + 100: 1.0})
        index.credit(answer_ids[1:])
        index.extend([*answer_ids[1:], *text[20:23]])
        tree = index.draft(8)
        depths.append(int(tree.depths.max()))
    assert depths[0] > depths[1]


def test_where_two_tokens_agree_a_distribution_counts_behind_later_ones_of_one() -> None:
    """The earliest 2 follows a 1, as the end does, and is looked at behind two later ones; where only one token agrees,
    the latest counts alone.
    """
    text = [1, 2, 9, 5, 2, 9, 6, 2, 9, 1, 2]
    for max_soft, known in [(1, {3, 8}), (2, {3, 7, 8}), (0, set())]:
        index = BlendIndex(text, top_k=1, max_soft=max_soft, hard=0.5, soft=0.5, num_frequent=0)
        for place, token in [(1, 3), (4, 7), (7, 8)]:
            told(index, place, {token: 1.0})
        assert set(index.draft(9).tokens.tolist()) & {3, 7, 8} == known


TOKENS = st.integers(0, 3)
LIKELY = st.dictionaries(TOKENS, st.integers(1, 5), min_size=1, max_size=3)


@pytest.mark.slow
@given(
    st.lists(st.tuples(TOKENS, st.none() | LIKELY), min_size=2, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.lists(TOKENS, min_size=1, max_size=3), LIKELY), max_size=4),
    st.sampled_from([0.5, 2.0]),
    st.sampled_from([(0.3, 0.7), (1.0, 0.5)]),
    st.integers(1, 5),
)
def test_every_node_has_the_probability_that_brute_force_gives(
    steps: list[tuple[int, dict[int, int] | None]],
    rejected: list[tuple[int, list[int], dict[int, int]]],
    escape: float,
    weights: tuple[float, float],
    max_order: int,
) -> None:
    """A text with distributions behind some places, and chains of tokens that were drafted behind others."""
    text = [token for token, _ in steps]
    settings: dict[str, Any] = {"escape": escape, "hard": weights[0], "soft": weights[1], "max_order": max_order}
    index = BlendIndex(text, top_k=4, max_soft=99, max_rejected=99, **settings)
    places: list[Place] = []

    def normal(likely: dict[int, int]) -> dict[int, float]:
        # no two alike: which of equals comes first is the target's to say
        return {t: (count + t / 10) / sum(c + u / 10 for u, c in likely.items()) for t, count in likely.items()}

    for at, (_, likely) in enumerate(steps):
        said = normal(likely) if likely else {}
        places.append((text[: at + 1], text[at + 1] if at + 1 < len(text) else None, said))
        if said:
            told(index, at, said)
    for where, chain, likely in rejected:
        at = where % len(text)
        draft = DraftTree.chain(text[at], chain)
        found = index.reject(draft, [0], np.array([at]))
        told(index, int(found[-1]), normal(likely))
        places.append((text[: at + 1] + chain, None, normal(likely)))
    tree = index.draft(20)
    assert tree.probs is not None
    explained = index.explain(tree)
    nodes = by_path(tree, tree.probs.tolist())
    for path, prob in nodes.items():
        if path:
            context = text + list(path[:-1])
            hard, soft = np.array(weights) / sum(weights)
            expected = shares(places, text, context, escape, hard, soft, max_order)[path[-1]]
            assert prob == pytest.approx(nodes[path[:-1]] * expected)
    # What the sources give adds up, and none gives anything where it has nothing.
    ratio = tree.probs[1:] / tree.probs[tree.parents[1:]]
    np.testing.assert_allclose(explained[1:].sum(1), ratio, rtol=1e-6)
    given_by = dict(zip(SOURCES, explained.sum(0), strict=True))
    assert given_by["elsewhere"] == pytest.approx(0, abs=1e-9)
    assert rejected or given_by["rejected"] == 0
    assert any(likely for _, likely in steps) or given_by["model"] == 0


def ranked_target(vocabulary: int = 50) -> FakeTarget:
    rule = jumbled(vocabulary)
    return FakeTarget(
        rule, vocabulary, runners_up=lambda text: -((torch.arange(vocabulary) - rule(text)) % vocabulary).float()
    )


@pytest.mark.parametrize("prompt_step", [0, 1, 3])
def test_it_takes_what_the_model_says(prompt_step: int) -> None:
    """Of a text that never repeats, the model's distributions alone say what follows a rejected draft."""
    prompt = list(range(30, 40))
    target = FakeTarget(lambda text: (text[-1] + 1) % 50, 50)
    drafter = BlendLogitsDrafter(num_draft=4, top_k=2, prompt_step=prompt_step, num_frequent=0)
    result = answer(target, drafter, prompt, 12)
    # Behind the prompt's end the model said 40; behind 40, which is new, nothing is known.
    assert result.tree_sizes[0] == 0
    assert sum(result.accept_lengths) == 11


def test_the_head_is_computed_for_the_prompt_s_tokens_or_for_all() -> None:
    rule = ranked_target(10)
    asked: list[list[int] | None] = []
    told = rule.top_k_in_prompt
    rule.top_k_in_prompt = lambda places, k, among=None, least=0.0: (  # type: ignore[method-assign]
        asked.append(None if among is None else among.tolist()), told(places, k, among, least)
    )[1]  # fmt: skip
    for vocabulary in ("prompt", "all"):
        answer(rule, BlendLogitsDrafter(num_draft=4, vocabulary=vocabulary), [3, 5, 3, 7], 4)
    assert asked == [[3, 5, 7], None]
    with pytest.raises(ValueError, match="vocabulary"):
        BlendLogitsDrafter(vocabulary="some")  # type: ignore[arg-type]


def test_rejected_drafts_save_steps() -> None:
    """Of a rule that looks back three tokens, what the model said behind rejected drafts is true later on."""

    def steps(**values: int) -> int:
        return len(answer(ranked_target(20), BlendLogitsDrafter(num_draft=12, **values), [3, 5], 300).accept_lengths)

    assert steps() < min(steps(max_rejected=0), steps(max_rejected=0, max_soft=0))


def asked(question: str) -> Prompt:
    return Prompt(np.array([3, 5, 7]), {}, "qa", question)


def test_the_warm_one_remembers_other_answers() -> None:
    target = ranked_target()
    cold, warm = BlendLogitsDrafter(num_draft=8), BlendLogitsWarmDrafter(num_draft=8)

    def steps(drafter: BlendLogitsDrafter, question: str) -> int:
        return len(SpeculativeDecoder(target, drafter).generate(asked(question), Stop(30)).accept_lengths)

    first = steps(cold, "a")
    assert steps(warm, "a") == first == steps(cold, "b")
    assert steps(warm, "a") == first  # an answer to the question itself is no help
    assert steps(warm, "b") < first / 2
    small = BlendLogitsWarmDrafter(num_draft=8, max_places=5)
    steps(small, "a")
    assert steps(small, "b") == first  # too long to be kept


def test_what_is_remembered_is_what_was_learned() -> None:
    """A part of one index gives in another one what the first one held."""
    index = BlendIndex([9, 9, 1, 2, 3, 1], top_k=2, num_frequent=0)
    told(index, 2, {2: 0.6, 5: 0.4})
    places = index.reject(DraftTree(np.array([1, 8]), np.array([-1, 0])), [0], np.array([index.last_place]))
    told(index, int(places[1]), {6: 1.0})
    part = index.part(2)
    assert part.ids.tolist() == [1, 2, 3, 1, 8] and part.followers.tolist() == [2, 3, 1, -1, -1]
    other = BlendIndex(top_k=2, num_frequent=0, hard=0.5, soft=0.5)
    other.recall(part)
    other.extend([4, 1])
    found = by_path(tree := other.draft(6), tree.probs.tolist())  # type: ignore[union-attr]
    assert {2, 5} <= {path[0] for path in found if len(path) == 1}
    other.extend([8])
    assert 6 in other.draft(3).tokens.tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    """Which tokens are likely is found in the model's own precision; ties of it are no error."""
    target = TargetModel(tiny_model("llama").to(dtype), max_draft=16)
    plain, drafted = (
        SpeculativeDecoder(target, drafter).generate(Prompt(np.array([5, 6, 7, 5, 6])), Stop(12)).output_ids
        for drafter in (NoDraft(), BlendLogitsDrafter(num_draft=8))
    )
    assert plain[0] == drafted[0] and len(plain) == len(drafted)
