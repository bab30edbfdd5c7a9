"""LogitSpec: a step by hand, every step of answers against brute force, and which logits the guesses come from."""

from __future__ import annotations

from typing import Any

import pytest
from support.fake_target import answer, begun, circling
from support.text import by_path

from ngram_trie.baselines.logitspec import LogitSpec
from ngram_trie.tree import DraftTree


def first_draft(prompt: list[int], vocabulary: int, budget: int = 9999, **settings: Any) -> DraftTree:
    """The draft behind the first token of the answer, which is the token after the prompt's last one."""
    target, drafter = circling(lambda text: (text[-1] + 1) % vocabulary, vocabulary), LogitSpec(**settings)
    begun(drafter, target, [*prompt, (prompt[-1] + 1) % vocabulary])
    return drafter.propose(budget)


def test_the_first_step_by_hand() -> None:
    prompt = [5, 6, 7, 8, 1, 5, 6, 9, 2, 5]  # then 6, and 7, 8, 9, ... are guesses of what follows
    tree = first_draft(prompt, 50, num_draft=9, num_copy=3)
    # "5 6" has stood twice, the last time with 9 2 5 behind it; "5 6 7" once, with 8 1 5; 8 never behind 6: with 1 5 6.
    assert tree.tokens.tolist() == [6, 9, 2, 5, 7, 8, 1, 5, 8, 1]
    assert tree.parents.tolist() == [-1, 0, 1, 2, 0, 4, 5, 6, 0, 8]
    copied, guessed = [2 / 3, 2 / 4, 2 / 5], [1 / 3, 1 / 3 * 3 / 4, 1 / 3 * 3 / 5, 1 / 3 * 3 / 6]
    assert tree.probs is not None and tree.probs.tolist() == pytest.approx([1, *copied, *guessed, 1 / 4, 1 / 4 / 2])
    # 20 tokens have followed neither: the place that more have followed, and then 8 that stands in the copy.
    longer = first_draft(prompt, 50, num_draft=8, max_ngram=2)
    assert longer.tokens.tolist() == [6, 7, 8, 1, 5, 6, 9, 2, 5] and longer.depths.tolist() == list(range(9))
    assert first_draft([3], 50, num_draft=3).tokens.tolist() == [4, 5, 6, 7]  # nothing to copy
    assert first_draft([3], 50, top_k=2).tokens.tolist() == [4, 5]
    asked, made = first_draft(prompt, 50, 8), first_draft(prompt, 50, **LogitSpec.sized(8))
    assert (
        asked.tokens.tolist() == made.tokens.tolist() == [6, 9, 2, 5, 7, 8, 1, 5, 8]
    )  # a copy of 3, guesses behind it


def drafted(text: list[int], guesses: list[int], most: int, max_ngram: int, num_copy: int) -> list[tuple[int, ...]]:
    """The draft's paths by brute force, of the text with the pending token."""
    verified = text[:-1]

    def copy(suffix: list[int]) -> list[int]:
        for n in range(min(max_ngram, len(suffix)), 0, -1):
            places = [at + n for at in range(len(verified) - n) if verified[at : at + n] == suffix[-n:]]
            if places:
                full = [place for place in places if place + num_copy <= len(verified)]
                start = full[-1] if full else places[0]
                return verified[start : start + num_copy]
        return []

    paths: list[tuple[int, ...]] = []
    branches = [copy(text)]
    for rank, guess in enumerate(guesses):
        if guess != text[-1]:
            branches.append([guess, *copy([*text, guess])][: 4 if rank <= 8 else 3 if rank <= 32 else 1])
    for branch in branches:
        paths += [path for end in range(len(branch)) if (path := tuple(branch[: end + 1])) not in paths]
    return paths[:most]


@pytest.mark.parametrize(
    ("vocabulary", "num_draft", "max_ngram", "num_copy", "k"),
    [(9, 63, 3, 20, 64), (20, 30, 3, 5, 12), (50, 63, 2, 20, 40), (12, 8, 1, 3, 12), (9, 2, 3, 4, 1)],
)
def test_drafts_are_those_of_brute_force(
    vocabulary: int, num_draft: int, max_ngram: int, num_copy: int, k: int
) -> None:
    target = circling(vocabulary=vocabulary)
    prompt, length = [1, 2, 3, 4] * 6, 60
    drafter = LogitSpec(num_draft=num_draft, max_ngram=max_ngram, num_copy=num_copy, top_k=k)
    result = answer(target, drafter, prompt, length)
    done, logits = 1, target.forwards[0].logits[0]
    for forward, emitted in zip(target.forwards[1:], result.accept_lengths, strict=True):
        assert forward.tree is not None
        guesses = logits.argsort(descending=True)[:k].tolist()
        paths = drafted(prompt + result.output_ids[:done], guesses, num_draft, max_ngram, num_copy)
        found = by_path(forward.tree, forward.tree.tokens.tolist())
        assert list(found)[1:] == [path for path in paths if len(path) <= length - done - 1]
        if forward.tree.num_draft:
            probs = forward.tree.probs
            assert probs is not None and probs[0] == 1 and (probs[1:] <= probs[forward.tree.parents[1:]]).all()
        done, logits = done + emitted, forward.logits[forward.path[-1]]
    assert done == length
    assert max(result.accept_lengths) > 1
