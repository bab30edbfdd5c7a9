from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_trie.baselines.cacheback import Cacheback
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree


def drafted(
    drafter: Cacheback, prompt: list[int], output: list[int], budget: int = 999, question: str = ""
) -> DraftTree:
    drafter.start(Prompt(np.array(prompt, np.int64), dataset="sums", question_id=question))
    drafter.observe(output)
    return drafter.propose(budget)


def recorded(folder: Path, answers: dict[str, list[int]]) -> str:
    path = folder / "answers.jsonl"
    rows = [{"dataset": "sums", "question_id": name, "output_token_ids": ids} for name, ids in answers.items()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


# 1 was followed by 2 3 4, by 5 6 7, by 2 3 4 again, by 2 8 9; the last 1 by nothing yet.
FOLLOWED = [1, 2, 3, 4, 1, 5, 6, 7, 1, 2, 3, 4, 1, 2, 8, 9]


def test_the_first_round_and_chaining_by_hand() -> None:
    # The first round has 9 nodes: 2 8 9, 2 3 4 and 5 6 7, and the fourth does not exist. Then 3 more: nothing followed
    # 9 but "1", alone; behind 4 came 1 2 8, the latest, and 1 5 6, for which there is no room.
    tree = drafted(Cacheback(num_draft=12, reserve=3), FOLLOWED, [1])
    assert tree.tokens.tolist() == [1, 2, 8, 9, 2, 3, 4, 5, 6, 7, 1, 2, 8]
    assert tree.parents.tolist() == [-1, 0, 1, 2, 0, 4, 5, 0, 7, 8, 6, 10, 11]
    # Ranks 0, 1, 2: one in rank + 2; then 2 of 3 and 3 of 4.
    begun = np.repeat([1 / 2, 1 / 3, 1 / 4], 3) * np.tile([1, 2 / 3, 2 / 4], 3)
    chained = begun[5] / 2 * np.array([1, 2 / 3, 2 / 4])
    assert tree.probs is not None and tree.probs.tolist() == pytest.approx([1, *begun, *chained])


def test_merged_beginnings_leave_room() -> None:
    # Three followers take 8 of 9 nodes; behind 4, 1 2 8 take 3 of the 4 left, and 1 5 6 would need two more.
    merged = Cacheback(num_draft=12, reserve=3, merge=True)
    tree = drafted(merged, FOLLOWED, [1])
    assert tree.tokens.tolist() == [1, 2, 8, 9, 3, 4, 5, 6, 7, 1, 2, 8]
    assert tree.parents.tolist() == [-1, 0, 1, 2, 1, 4, 0, 6, 7, 5, 9, 10]
    larger = drafted(Cacheback(num_draft=13, reserve=3, merge=True), FOLLOWED, [1])
    assert larger.tokens.tolist() == [*tree.tokens.tolist(), 5, 6]
    assert larger.parents.tolist() == [*tree.parents.tolist(), 9, 12]


def test_the_frozen_table_is_asked_second_and_knows_no_answer_to_the_question(tmp_path: Path) -> None:
    answers = {"a": [1, 2, 3, 4, 1, 7, 7, 7, 1, 7, 7, 7], "b": [1, 8, 8, 8], "c": [1, 2, 3]}
    drafter = Cacheback(answers=recorded(tmp_path, answers), num_draft=99, reserve=0)
    assert drafter.traits.state == "preloaded" and list(drafter.parts()) == [drafter.answers]

    def begun(question: str) -> list[list[int]]:
        tree = drafted(drafter, [1, 6, 6, 6], [1], question=question)
        return [tree.tokens[node : node + 3].tolist() for node in np.flatnonzero(tree.parents == 0)]

    # By count, then in the order of the answers. "c" is shorter than an n-gram.
    assert begun("d") == begun("c") == [[6, 6, 6], [7, 7, 7], [2, 3, 4], [8, 8, 8]]
    assert begun("a") == [[6, 6, 6], [8, 8, 8]]
    assert begun("b") == [[6, 6, 6], [7, 7, 7], [2, 3, 4]]
    assert "_frozen" in vars(drafter) and "_frozen" not in drafter.__getstate__()


# ---- against the release's own structures, in plain Python -----------------------------------------------------------


class Reference:
    """Ordered dicts of ordered dicts, and a draft that is grown by walking down from the root in every round."""

    def __init__(self, leader_len: int, follower_len: int, followers: int) -> None:
        self.leader_len, self.follower_len, self.followers = leader_len, follower_len, followers
        self.cache: dict[tuple[int, ...], OrderedDict[tuple[int, ...], None]] = {}

    def read(self, text: list[int]) -> None:
        for at in range(self.leader_len, len(text) - self.follower_len + 1):
            known = self.cache.setdefault(tuple(text[at - self.leader_len : at]), OrderedDict())
            known[tuple(text[at : at + self.follower_len])] = None
            known.move_to_end(tuple(text[at : at + self.follower_len]))
            if len(known) > self.followers:
                known.popitem(last=False)

    def draft(self, text: list[int], num_draft: int, reserve: int) -> list[tuple[int, ...]]:
        """The paths of all followers that are drafted, in order."""
        drafts: list[tuple[int, ...]] = []
        level: list[tuple[int, ...]] = [()]
        room = num_draft - reserve
        while level:
            grown, full = [], False
            for path in level:
                for follower in reversed(self.cache.get(tuple([*text, *path][-self.leader_len :]), {})):
                    full = full or len(follower) > room
                    if not full:
                        room -= len(follower)
                        grown.append(path + follower)
            drafts += grown
            if path == () and reserve:
                room += reserve
            elif full:
                break
            level = grown
        return drafts


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.lists(st.integers(0, 3), min_size=1, max_size=20),
    *(st.integers(1, 3) for _ in range(3)),
    st.integers(1, 40),
    st.data(),
)
def test_drafts_are_what_plain_dicts_give(
    prompt: list[int], output: list[int], leader_len: int, follower_len: int, followers: int, size: int, data: Any
) -> None:
    reserve = data.draw(st.integers(0, size))
    lengths = {"leader_len": leader_len, "follower_len": follower_len, "followers": followers}
    drafter = Cacheback(num_draft=size, reserve=reserve, **lengths)
    reference = Reference(**lengths)
    drafter.start(Prompt(np.array(prompt)))
    for token in output:  # one by one, so that every n-gram is completed by itself
        drafter.observe([token])
    reference.read(prompt + output)
    tree = drafter.propose(999)
    paths = [tuple(tree.tokens[tree.path_to(node)[1:]].tolist()) for node in range(1, len(tree))]
    ends = [path for path in paths if len(path) % follower_len == 0]
    expected = reference.draft(prompt + output, size, reserve)
    assert ends == expected and tree.num_draft == follower_len * len(expected)
    merged = Cacheback(num_draft=size, reserve=reserve, merge=True, **lengths)
    shared = drafted(merged, prompt, output)
    inner = {tuple(shared.tokens[shared.path_to(node)[1:]].tolist()) for node in range(1, len(shared))}
    for each in (tree, shared):
        assert each.probs is not None and each.probs[0] == 1 and (each.probs > 0).all()
        assert (each.probs[1:] < each.probs[each.parents[1:]]).all()
    assert len(inner) == shared.num_draft <= size and inner >= set(paths[: follower_len if paths else 0])
