"""SAM-Decoding with Token Recycling: which of the two drafts, and that both learn from every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.fake_target import begun, circling

from ngram_trie.baselines.datastore import build_datastore
from ngram_trie.baselines.sam_token_recycling import SAMTokenRecycling
from ngram_trie.baselines.token_recycling import TokenRecycling
from ngram_trie.tree import DraftTree


def proposed(text: list[int], **settings: Any) -> tuple[DraftTree, DraftTree]:
    """The draft behind `text`, of which the last token is the first of the answer, and that of a Token Recycling which
    has read the prompt, as the release's has."""
    trees = []
    for drafter in (SAMTokenRecycling(**settings), TokenRecycling()):
        prompt = begun(drafter, circling(), text)
        if isinstance(drafter, TokenRecycling):
            drafter.learn_prompt(prompt)
        trees.append(drafter.propose(99))
    return trees[0], trees[1]


def test_a_match_of_five_tokens_is_copied_and_a_shorter_one_left_to_the_tree() -> None:
    five, _ = proposed([1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5])
    assert five.tokens.tolist() == [5, 6, 7, 1, 2, 3, 4, 5] and five.parents.tolist() == list(range(-1, 7))
    assert five.sources is not None and five.sources.names == ("copy",)
    four, tree = proposed([1, 2, 3, 4, 5, 6, 7, 2, 3, 4, 5])
    assert four.sources is not None and four.sources.names == ("recycled",)
    assert four.tokens.tolist() == tree.tokens.tolist() and four.num_draft == 80
    assert proposed([1, 2, 3, 4, 5, 6, 7, 2, 3, 4, 5], min_match=4)[0].tokens.tolist() == [5, 6, 7, 2, 3, 4, 5]
    assert proposed([1, 2, 3, 4, 5], tree_nodes=8)[0].num_draft == 8


def test_the_copy_begins_where_enough_follows() -> None:
    """Five tokens match, and 39 follow none of their suffixes but "5", which occurred first."""
    text = [5, *range(10, 49), 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5]
    assert proposed(text)[0].tokens.tolist() == [5, *range(10, 49)]
    assert proposed(text, num_draft=6)[0].tokens.tolist() == [5, 6, 1, 2, 3, 4, 5]


def test_another_text_has_to_match_five_tokens_longer(tmp_path: Path) -> None:
    build_datastore([[20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]], tmp_path)
    store: dict[str, Any] = {"datastore": str(tmp_path)}
    assert proposed(list(range(20, 30)), **store)[0].tokens.tolist() == [29, 30, 31]  # 10 less 5 is 5
    nine, tree = proposed(list(range(21, 30)), **store)
    assert nine.tokens.tolist() == tree.tokens.tolist()
    drafter = SAMTokenRecycling(**store)
    assert drafter.traits.state == "preloaded" and list(drafter.parts()) == [tmp_path / "header.json"]
    assert drafter.traits.remembers and not SAMTokenRecycling(keep_between_prompts=False, **store).traits.remembers
    assert SAMTokenRecycling().traits.state == "warm"
    assert SAMTokenRecycling(keep_between_prompts=False).traits.state == "cold" and not SAMTokenRecycling().parts()


def test_the_matrix_learns_from_the_whole_prompt() -> None:
    target, drafter = circling(), SAMTokenRecycling()
    prompt = begun(drafter, target, [1, 2, 3, 9, 3, 8, 1, 2])
    text, tree = prompt.ids.tolist(), drafter.propose(99)
    assert tree.sources is not None and tree.sources.names == ("recycled",)
    # the root, 2, stands at place 1 of the prompt and is its eighth token, which the model has not read yet
    assert tree.tokens[0] == 2 and tree.tokens[1] == target.rule(text[:2])
    alone = TokenRecycling()
    begun(alone, circling(), [1, 2, 3, 9, 3, 8, 1, 2])
    assert alone.propose(99).tokens[1] == 0


def test_the_matrix_learns_from_copies_too() -> None:
    """After a step that was copied, the rows of its tokens are there."""
    target, drafter = circling(), SAMTokenRecycling()
    prompt = begun(drafter, target, [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6])
    copy = drafter.propose(99)
    assert copy.tokens.tolist() == [6, 7, 1, 2, 3, 4, 5, 6]
    target.verify(copy)
    target.commit(len(prompt.ids), [0])
    drafter.observe([3])  # no match of five tokens ends in it, and the copy's fifth node was a 3
    after = target.rule([*prompt.ids.tolist(), 6, 7, 1, 2, 3])
    assert drafter.propose(99).tokens[1:3].tolist() == [after, (after + 1) % 50]
