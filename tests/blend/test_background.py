"""What the blend falls back to: tables and stores by hand and by brute force, and the drafters over them."""

from __future__ import annotations

import pickle
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.text import TEXTS, by_path, next_token

from ngram_trie.baselines.cacheback import Cacheback
from ngram_trie.bench.live import part_hashes, split_missing
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import Trace
from ngram_trie.blend.background import AnswerStore, Background, expect, most_successors, over
from ngram_trie.blend.bigram import of_answers, of_model
from ngram_trie.blend.context_index import BlendIndex
from ngram_trie.blend.ppm import room_for
from ngram_trie.blend.variants import BlendBigramDrafter, BlendDrafter, BlendWarmDrafter
from ngram_trie.memory import FOLDS, read_answers
from ngram_trie.prompt import Prompt
from ngram_trie.store.ngram_tables import NgramTables

ANSWERS = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=12), max_size=6)


def store_of(answers: list[list[int]], max_tokens: int = 4096, max_occurrences: int = 500) -> AnswerStore:
    store = AnswerStore(max_tokens, max_occurrences)
    for answer in answers:
        store.add(answer)
    return store


def shares_elsewhere(answers: list[list[int]], context: list[int], escape: int) -> tuple[dict[int, Fraction], Fraction]:
    """What follows `context` in the answers, by the formula of `ngram_trie.blend.ppm`, and what is left."""
    prob: dict[int, Fraction] = {}
    left = Fraction(1)
    for order in range(1, min(8, len(context)) + 1):
        suffix = context[-order:]
        counts = Counter(
            answer[end]
            for answer in answers
            for end in range(order, len(answer))
            if answer[end - order : end] == suffix
        )
        if not counts:
            break
        total, escaped = counts.total(), Fraction(escape * len(counts))
        prob = {t: (counts[t] + escaped * prob.get(t, 0)) / (total + escaped) for t in {*counts, *prob}}
        left *= escaped / (total + escaped)
    return prob, left


def blended(text: list[int], path: list[int], answers: list[list[int]], escape: int) -> dict[int, Fraction]:
    """The whole formula of `ngram_trie.blend.context_index`, over answers."""
    context = text + path
    kinds, places = len(set(text)), len(text)
    elsewhere = Counter(token for answer in answers for token in answer)
    zero = {t: Fraction(c, places + kinds) for t, c in Counter(text).items()}
    for token, count in elsewhere.items():
        zero[token] = zero.get(token, Fraction(0)) + Fraction(kinds * count, (places + kinds) * elsewhere.total())
    more, left = shares_elsewhere(answers, context, escape)
    below = {t: more.get(t, Fraction(0)) + left * zero.get(t, Fraction(0)) for t in {*zero, *more}}
    # `next_token` falls back to the text's own order 0; take that out and put what is below in its place.
    whole = next_token(text, path, escape)
    own = {token: Fraction(count, places + kinds) for token, count in Counter(text).items()}
    rest = left_of_text(text, context, escape)
    tokens = {*whole, *below}
    return {t: whole.get(t, Fraction(0)) + rest * (below.get(t, Fraction(0)) - own.get(t, Fraction(0))) for t in tokens}


def left_of_text(text: list[int], context: list[int], escape: int) -> Fraction:
    """The share that the orders of `text` leave to what is below."""
    left = Fraction(1)
    for order in range(1, min(8, len(context)) + 1):
        suffix = context[-order:]
        ends = [end for end in range(order, len(text)) if text[end - order : end] == suffix]
        counts = Counter(text[end] for end in ends)
        if not counts:
            break
        left *= Fraction(escape * len(counts), len(ends) + escape * len(counts))
    return left


# ---- tables ----------------------------------------------------------------------------------------------------------


def bigram() -> NgramTables:
    return NgramTables(
        "",
        True,
        np.array([[0, 1], [1, 0]], np.int32),
        np.array([[1, 0], [0, 1]], np.int32),
        np.empty((2, 2, 0), np.int32),
        np.array([[0.5, 0.25], [0.75, 0.125]], np.float32),
    )


def test_a_model_says_its_probabilities() -> None:
    table = of_model(bigram(), k=1, escape=1.0)
    assert table.successors.tolist() == [[1], [0]] and table.shares.tolist() == [[0.25], [0.375]]


def row(table: Background, token: int) -> dict[int, float]:
    """What the table says after a token; nothing if it has no row for it."""
    if token >= len(table.rows) or table.rows[token] < 0:
        return {}
    place = table.rows[token]
    pairs = zip(table.successors[place].tolist(), table.shares[place].tolist(), strict=True)
    return {after: share for after, share in pairs if after >= 0}


def test_rows_by_hand() -> None:
    # 2 is followed by 3 three times and by 4 once, and by 5 once, which is not among the two likeliest.
    table = of_answers([[1, 2, 3], [1, 2, 3], [6, 2, 3], [6, 2, 4], [2, 5], [7]], k=2, escape=1.0)
    assert row(table, 2) == pytest.approx({3: 3 / 8, 4: 1 / 8})
    assert row(table, 1) == pytest.approx({2: 2 / 3}) and row(table, 3) == row(table, 99) == {}
    assert table.counts.tolist() == [0, 2, 5, 3, 1, 1, 2, 1] and table.total == 15


@given(ANSWERS, st.integers(1, 4), st.sampled_from([0.5, 1.0, 3.5]))
def test_every_row_is_what_brute_force_says(answers: list[list[int]], k: int, escape: float) -> None:
    table = of_answers(answers, k=k, escape=escape)
    for token in range(6):
        counts = Counter(answer[end] for answer in answers for end in range(1, len(answer)) if answer[end - 1] == token)
        likeliest = sorted(counts, key=lambda other: (-counts[other], other))[:k]
        whole = counts.total() + escape * len(counts)
        assert row(table, token) == pytest.approx({other: counts[other] / whole for other in likeliest}, rel=1e-6)


#: Only compiled functions call it.
expected = numba.njit(lambda *given: expect(*given))


@given(ANSWERS, ANSWERS, st.lists(st.integers(0, 6), min_size=1, max_size=4))
def test_a_store_falls_back_to_a_table(answers: list[list[int]], texts: list[list[int]], context: list[int]) -> None:
    store, table = store_of(answers).background(), of_answers(texts, k=3, escape=2.0)
    both = over(store, table)

    def after(background: Background) -> tuple[dict[int, float], float]:
        room = room_for(most_successors(background) + 1, 8)
        found, left = expected(background, np.array(context[::-1], np.int64), 2.0, room)
        return dict(zip(room.tokens[:found].tolist(), room.shares[:found].tolist(), strict=True)), left

    (first, left), (second, below), (found, rest) = map(after, (store, table, both))
    assert rest == pytest.approx(left * below)
    assert found == pytest.approx({t: first.get(t, 0) + left * second.get(t, 0) for t in {*first, *second}})
    counts = Counter(token for text in [*answers, *texts] for token in text)
    assert {t: n for t, n in enumerate(both.counts.tolist()) if n} == counts and both.total == counts.total()


def test_a_draft_over_a_table_by_hand() -> None:
    table = of_answers([[7, 3, 9], [7, 3, 9], [4, 3, 8]], k=5, escape=1.0)
    # Nothing follows 3 in the text. Elsewhere 9 came twice and 8 once: 2/5, 1/5; 2/5 are left to order 0, of which the
    # text has no 9 and no 8.
    tree = BlendIndex([7, 3], background=table).draft(30)
    assert tree.probs is not None
    found = {path[0]: prob for path, prob in by_path(tree, tree.probs.tolist()).items() if len(path) == 1}
    assert found[9] == pytest.approx(2 / 5 + 2 / 5 * 2 / 4 * 2 / 9, abs=1e-6)
    assert found[8] == pytest.approx(1 / 5 + 2 / 5 * 2 / 4 * 1 / 9, abs=1e-6)


# ---- stores ----------------------------------------------------------------------------------------------------------


@given(TEXTS, ANSWERS, st.sampled_from([1, 4]), st.integers(1, 30))
def test_every_node_over_a_store_has_the_probability_that_brute_force_gives(
    text: list[int], answers: list[list[int]], escape: int, num_draft: int
) -> None:
    background = store_of(answers).background()
    index = BlendIndex(text, escape=float(escape), max_occurrences=500, background=background)
    tree = index.draft(num_draft)
    probs = tree.probs
    assert probs is not None
    nodes = by_path(tree, probs.tolist())
    assert probs.tolist() == sorted(probs, reverse=True)
    for path, prob in nodes.items():
        shares = blended(text, list(path), answers, escape)
        assert sum(shares.values()) <= 1
        for token, share in shares.items():
            if (*path, token) in nodes:
                assert nodes[*path, token] == pytest.approx(prob * float(share))
            else:  # nothing likelier than the last node was left out
                assert len(nodes) <= num_draft or prob * float(share) <= probs[-1] * (1 + 1e-9)


def order(store: AnswerStore) -> list[tuple[str, str]]:
    """The data set and question of each answer, oldest first."""
    return [key for key, _ in store._memory.answers]


@given(ANSWERS, st.integers(8, 40))
def test_a_store_is_that_of_the_latest_answers(answers: list[list[int]], max_tokens: int) -> None:
    store = AnswerStore(max_tokens)
    for answer in answers:
        store.add(answer)
        assert store._size <= max_tokens
    kept = [kept.tolist() for kept in store._memory.answers.values()]
    most = max_tokens * 3 // 4 - 1
    assert kept == [answer[-most:] for answer in answers[len(answers) - len(kept) :]]
    if answers:
        assert kept  # the latest is always there
    background = store.background()
    counts = Counter(token for answer in kept for token in answer)
    assert {t: c for t, c in enumerate(background.counts.tolist()) if c} == counts
    # Built at once it is the same store.
    other = store_of(kept, max_tokens).background()
    for name in ("text", "counts", "common"):
        assert getattr(background, name).tolist() == getattr(other, name).tolist()
    size = len(background.text)
    assert background.before_pair[:size].tolist() == other.before_pair[:size].tolist()


def test_a_question_does_not_see_its_own_answers() -> None:
    store = AnswerStore()
    store.add([1, 2, 3], "qa", "a", 0)
    store.add([1, 7, 7, 7], "qa", "b", 0)
    store.add([1, 8], "qa", "b", 1)
    store.add([1, 4], "other", "b", 0)
    store.add([1, 2, 3], "qa", "a", 0)  # is there already
    assert order(store) == [("qa", "a"), ("qa", "b"), ("qa", "b"), ("other", "b")]

    def drafted(background: Background) -> set[int]:
        tree = BlendIndex([1], background=background).draft(200)
        return set(tree.tokens[1:].tolist())

    assert drafted(store.background()) == {1, 2, 3, 4, 7, 8}
    assert drafted(store.background("qa", "b")) == {1, 2, 3, 4}
    assert drafted(store.background("qa", "new")) == {1, 2, 3, 4, 7, 8}


def test_a_store_is_written_and_read(tmp_path: Path) -> None:
    store = AnswerStore()
    store.add([1, 2, 3], "qa", "a")
    store.add([4, 5])
    store.add([6])
    store.save(tmp_path / "new" / "answers.jsonl")
    again = AnswerStore.load(tmp_path / "new" / "answers.jsonl")
    assert order(again) == order(store) and again.background().text.tolist() == store.background().text.tolist()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["answers.jsonl"]
    with pytest.raises(FileNotFoundError, match="no such file of answers"):
        read_answers(tmp_path / "absent")
    gaps = '{"output_token_ids": [1], "question_id": null, "text": "a\u2028b"}\n\n'
    (tmp_path / "gaps").write_text(gaps, encoding="utf-8")
    assert read_answers(tmp_path / "gaps") == [{"dataset": "", "question_id": "", "turn": 0, "output_token_ids": [1]}]
    (tmp_path / "bad").write_text('{"output_token_ids": [1]}\n{"output_token_ids": [-1]}\n')
    with pytest.raises(ValueError, match="bad:2: no answer"):
        read_answers(tmp_path / "bad")
    with pytest.raises(ValueError, match="max_tokens=3"):
        AnswerStore(3)


# ---- drafters --------------------------------------------------------------------------------------------------------


def trace(question: str, output: list[int]) -> Trace:
    return Trace("toy", Prompt(np.array([1, 2, 3]), {}, "qa", question), output)


def record(path: Path, traces: list[Trace]) -> str:
    path.write_text("".join(one.to_json() + "\n" for one in traces))
    return str(path)


def test_a_recorded_question_is_drafted_from_the_other_parts(tmp_path: Path) -> None:
    traces = [trace(str(number), [100 + number, 50, 200 + number]) for number in range(FOLDS + 1)]
    drafter = BlendBigramDrafter(answers=record(tmp_path / "traces.jsonl", traces), num_draft=200)
    for asked, hidden in (("0", {0, 10}), ("3", {3}), ("unknown", set())):
        drafter.start(Prompt(np.array([50]), {}, "qa", asked))
        tokens = set(drafter.propose(200).tokens.tolist())
        # what was recorded for its own part, the first and the eleventh question, is not known
        assert {number for number in range(FOLDS + 1) if 100 + number not in tokens} == hidden
    with pytest.raises(ValueError, match="of qa, not of questions: whether one answers question 3 cannot be known"):
        drafter.start(Prompt(np.array([50]), {}, "questions", "3"))
    drafter.start(Prompt(np.array([50]), {}, "qa", "3", noise_kind="paragraph"))
    assert 103 not in drafter.propose(200).tokens
    drafter.start(Prompt(np.array([50])))  # no question: all are others'
    assert 103 in drafter.propose(200).tokens
    assert len(pickle.dumps(drafter)) < 9000  # another process reads the file itself
    assert split_missing({"m": drafter})[1] == {} and len(part_hashes({"m": drafter})["m"]) == 16
    gone = BlendBigramDrafter(answers=str(tmp_path / "gone.jsonl"))
    assert "gone.jsonl" in split_missing({"m": gone})[1]["m"]


@pytest.mark.parametrize("kind", [BlendWarmDrafter, BlendBigramDrafter, Cacheback])
def test_a_recording_with_noise_is_known_for_the_same_questions(kind: Any, tmp_path: Path) -> None:
    answer = list(range(20, 60))
    noisy = [Trace("m", Prompt(np.array([5, 6]), {}, "qa", "1", noise_kind="page"), answer)]
    asked = Trace("m", Prompt(np.array([5, 6]), {}, "qa", "1"), answer)
    drafter = kind(answers=record(tmp_path / "traces.jsonl", noisy))
    assert len(replay(drafter, asked).accept_lengths) == len(answer) - 1  # none is drafted from the answer itself
    with pytest.raises(ValueError, match="of qa, not of sums: whether one answers question 1 cannot be known"):
        drafter.start(Prompt(np.array([50]), {}, "sums", "1"))


def test_earlier_answers_over_a_bigram(tmp_path: Path) -> None:
    bigram().write(tmp_path)
    prompt, options = Prompt(np.array([1, 1])), {"tables": str(tmp_path), "k": 1}
    drafter, alone = BlendWarmDrafter(**options), BlendWarmDrafter()
    for each in (drafter, alone, BlendDrafter(**options)):
        each.start(prompt)
    assert drafter.traits.state == "preloaded" and alone.traits.state == "warm" and drafter.traits.remembers
    assert 0 in drafter.propose(9).tokens and 0 not in alone.propose(9).tokens


def test_answers_are_remembered_when_the_next_prompt_starts(tmp_path: Path) -> None:
    drafter = BlendWarmDrafter(num_draft=8)
    first, second = trace("a", [3, 4, 5, 6, 7]), trace("b", [3, 4, 5, 6, 7])
    assert replay(drafter, first).accept_lengths == replay(BlendDrafter(num_draft=8), first).accept_lengths
    assert (
        len(replay(drafter, second).accept_lengths) == 2 < len(replay(BlendDrafter(num_draft=8), second).accept_lengths)
    )
    drafter.remember()
    assert order(drafter.store) == [("qa", "a"), ("qa", "b")]
    drafter.store.save(tmp_path / "answers.jsonl")
    loaded = BlendWarmDrafter(num_draft=8, answers=str(tmp_path / "answers.jsonl"))
    assert len(replay(loaded, trace("c", [3, 4, 5, 6, 7])).accept_lengths) == 1
    # an answer to the question itself is no help
    alone = record(tmp_path / "alone.jsonl", [first])
    assert replay(BlendWarmDrafter(answers=alone), first).accept_lengths == replay(BlendDrafter(), first).accept_lengths
