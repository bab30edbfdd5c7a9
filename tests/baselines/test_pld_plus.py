from __future__ import annotations

import numpy as np
import torch
from support.fake_target import FakeTarget, begun

from ngram_trie.baselines.pld_plus import PLDPlus


def test_copies_from_where_the_state_was_most_alike() -> None:
    """7 occurs behind 1, 2 and 3; the state behind the token before the last 7 is most like that behind 2."""
    states = {1: [1.0, 0, 0, 0], 2: [0, 1, 0, 0], 3: [0, 0, 1, 0], 4: [0.2, 3, 0.5, 0]}
    after = lambda text: torch.tensor([*states.get(text[-1], [0, 0, 0, 1.0]), *[0.0] * 6])  # noqa: E731
    target = FakeTarget(lambda text: int(after(text).argmax()), 10, runners_up=after)
    drafter = PLDPlus(num_draft=3)
    begun(drafter, target, [1, 7, 5, 2, 7, 6, 8, 9, 3, 7, 9, 4, 7])
    tree = drafter.propose(99)
    assert tree.tokens.tolist() == [7, 6, 8, 9] and tree.parents.tolist() == [-1, 0, 1, 2]
    assert drafter.propose(2).num_draft == 2
    drafter.observe([6])  # it occurs once
    assert drafter.propose(9).tokens.tolist() == [6, 8, 9, 3]
    drafter.observe([5, 0])
    assert drafter.propose(9).num_draft == 0


def test_the_state_of_the_last_accepted_node_counts() -> None:
    """Behind a draft it is the node at the end of the accepted path, not the last of the tree."""
    rule = lambda text: (text[-1] + 1) % 10  # noqa: E731
    target = FakeTarget(rule, 10)
    drafter = PLDPlus()
    begun(drafter, target, [3, 4, 8, 4, 5, 4, 5])
    tree = drafter.propose(4)
    assert tree.tokens.tolist() == [5, 4]  # nothing else of the prompt follows 5
    choices = target.verify(tree).choices
    target.commit(6, [0])
    drafter.observe([int(choices[0])])
    assert drafter.root == 6 and drafter.propose(4).num_draft == 0
    np.testing.assert_array_equal(target.last.hidden[0], torch.eye(10)[6])
