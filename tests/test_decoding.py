"""The loop emits exactly what greedy decoding would, whatever a drafter proposes, and stops where it should."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_target import FakeTarget, fibonacci
from support.tiny import VOCABULARY, Scripted, adversarial_tree, plain_greedy, tiny_target

from ngram_trie.decoding import DrafterError, PromptTooLong, SpeculativeDecoder, Stop, verify_greedy
from ngram_trie.drafters import NgramTrieDrafter, NoDraft
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree

tokens = st.integers(0, VOCABULARY - 1)
prompts = st.lists(tokens, min_size=1, max_size=24)


@pytest.mark.parametrize(("family", "attention"), [("llama", "sdpa"), ("llama", "eager"), ("qwen2", "sdpa")])
@given(prompt=prompts, trees=st.lists(adversarial_tree(), max_size=12))
def test_any_draft_leaves_greedy_output_unchanged(family, attention, prompt, trees) -> None:
    length = 24
    truth = plain_greedy(family, attention, tuple(prompt), length)
    drafter = Scripted([
        lambda text, make=make: make(truth, len(text) - len(prompt), text[-1]) for make in trees
    ])  # fmt: skip
    result = SpeculativeDecoder(tiny_target(family, attention), drafter).generate(
        Prompt(np.array(prompt, np.int64)), Stop(length)
    )
    assert result.output_ids == truth
    assert sum(result.accept_lengths) + 1 == length
    assert len(result.accept_lengths) == len(result.tree_sizes)
    assert drafter.observed == truth  # to the last token, for drafters that remember answers


def test_verify_greedy_by_hand() -> None:
    #        9 -> 1 -> 2      the target says: 1 after 9, 3 after 1, 4 after 3
    #          -> 1 -> 3
    tree = DraftTree(np.array([9, 1, 2, 1, 3]), np.array([-1, 0, 1, 0, 3]))
    assert verify_greedy(tree, np.array([1, 3, 7, 3, 4])) == [0, 3, 4]
    assert verify_greedy(tree, np.array([8, 3, 7, 3, 4])) == [0]


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=5), st.lists(st.integers(0, 2), min_size=30)
)
def test_verify_greedy_keeps_a_longest_agreeing_path(paths: list[list[int]], chosen: list[int]) -> None:
    tree = DraftTree.from_paths(9, paths)
    next_tokens = np.array(chosen[: len(tree)])

    def agrees(node: int) -> bool:
        path = tree.path_to(node)
        return all(tree.tokens[b] == next_tokens[a] for a, b in itertools.pairwise(path))

    kept = verify_greedy(tree, next_tokens)
    assert agrees(kept[-1])
    assert len(kept) - 1 == max(tree.depths[node] for node in range(len(tree)) if agrees(node))


class Oracle(Scripted):
    """Drafts the next tokens of a known answer, then more: a draft that runs past every stop."""

    def __init__(self, truth: list[int], depth: int = 7) -> None:
        super().__init__([lambda text: DraftTree.chain(text[-1], self.following(text))] * 1000)
        self.truth, self.depth = truth, depth

    def following(self, text: list[int]) -> list[int]:
        done = len(text) - self.num_prompt
        return self.truth[done : done + self.depth]


PROMPT = (1, 2, 3)


def answers(stop: Stop, depth: int = 7, family: str = "llama") -> tuple[list[int], list[int], str]:
    truth = plain_greedy(family, "sdpa", PROMPT, 80)
    result = SpeculativeDecoder(tiny_target(family), Oracle(truth, depth)).generate(Prompt(np.array(PROMPT)), stop)
    assert sum(result.accept_lengths) + 1 == len(result.output_ids)
    return result.output_ids, truth, result.stop_reason


@pytest.mark.parametrize("position", [0, 1, 5, 8, 9, 20])
def test_eos_ends_the_answer_even_inside_an_accepted_draft(position: int) -> None:
    truth = plain_greedy("llama", "sdpa", PROMPT, 80)
    eos = truth[position]
    output, _, reason = answers(Stop(80, frozenset({eos, VOCABULARY + 1})))
    assert output == truth[: truth.index(eos) + 1]
    assert reason == "eos"


@pytest.mark.parametrize("limit", [1, 2, 7, 8, 9, 30])
def test_the_token_limit_is_exact(limit: int) -> None:
    output, truth, reason = answers(Stop(limit))
    assert output == truth[:limit]
    assert reason == "max_new_tokens"


@pytest.mark.parametrize("depth", [0, 3, 7, 16])
@pytest.mark.parametrize("span", [(4, 6), (6, 10), (0, 2), (13, 15)])
def test_a_stop_string_may_lie_across_a_drafts_border(span: tuple[int, int], depth: int) -> None:
    def decode(ids: object) -> str:
        return "".join(f"<{token}>" for token in ids)  # type: ignore[attr-defined]

    truth = plain_greedy("llama", "sdpa", PROMPT, 80)
    stop_string = decode(truth[slice(*span)])[1:-1]  # begins and ends inside a token
    output, _, reason = answers(Stop(80, stop_strings=(stop_string,), decode=decode), depth)
    first_end = next(i for i in range(1, 81) if stop_string in decode(truth[:i]))
    assert output == truth[:first_end]
    assert reason == "stop_string"


def test_the_context_limit_ends_the_answer() -> None:
    target = tiny_target("llama")
    prompt = list(range(50)) + list(range(50)) + list(range(50))
    result = SpeculativeDecoder(target, NgramTrieDrafter(num_draft=8)).generate(Prompt(np.array(prompt)), Stop(1000))
    assert len(prompt) + len(result.output_ids) == target.context_limit
    assert result.stop_reason == "context_limit"
    assert result.output_ids == plain_greedy("llama", "sdpa", tuple(prompt), 10)
    with pytest.raises(PromptTooLong, match="160"):
        SpeculativeDecoder(target, NoDraft()).generate(Prompt(np.zeros(160, np.int64)), Stop(5))


@pytest.mark.parametrize(
    ("options", "message"), [({"max_new_tokens": 0}, "at least 1"), ({"stop_strings": ("x",)}, "decode")]
)
def test_wrong_stops_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Stop(**options)  # type: ignore[arg-type]


def test_probes_are_never_accepted() -> None:
    chosen = np.array([5, 6, 7])
    tree = DraftTree(np.array([1, 5, 6]), np.array([-1, 0, 1]))
    assert verify_greedy(tree, chosen) == [0, 1, 2]
    assert verify_greedy(DraftTree(tree.tokens, tree.parents, probes=1), chosen) == [0, 1]


def test_without_room_the_drafter_is_not_asked() -> None:
    drafter = Scripted([lambda text: DraftTree.root_only(text[-1])] * 9)
    SpeculativeDecoder(tiny_target("llama"), drafter).generate(Prompt(np.array(PROMPT)), Stop(4))
    assert drafter.step == 2  # the first token is from prefill, the last step emits one


class Deaf(NoDraft):
    """Fails at the third token."""

    heard = 0

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        self.heard += len(new_ids)
        if self.heard == 3:
            raise RuntimeError("too much")


@pytest.mark.parametrize("length", [3, 9], ids=["at the end", "before it"])
def test_a_token_reaches_the_caller_though_the_drafter_fails_on_it(length: int) -> None:
    emitted: list[int] = []
    decoder = SpeculativeDecoder(FakeTarget(fibonacci), Deaf())
    with pytest.raises(DrafterError, match=r"^Deaf, step behind 4 cached tokens: RuntimeError: too much"):
        decoder.generate(Prompt(np.array([1, 2])), Stop(length), emit=emitted.extend)
    assert emitted == [3, 5, 8]
