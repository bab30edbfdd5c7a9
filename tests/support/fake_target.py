"""A target whose choices a test writes down: any function of the text so far, and what it was asked to verify."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ngram_trie.decoding import GenerationResult, SpeculativeDecoder, Stop
from ngram_trie.drafter import Drafter, TopK
from ngram_trie.prompt import Prompt
from ngram_trie.targets.network import Forward
from ngram_trie.targets.top_k import top_k_rows
from ngram_trie.tree import DraftTree, IntArray


def fibonacci(text: list[int]) -> int:
    return (text[-1] + text[-2]) % 100


def jumbled(vocabulary: int) -> Callable[[list[int]], int]:
    """A choice that depends on the last three tokens and the position in no simple way."""
    return lambda text: (7 * text[-1] + 5 * sum(text[-3:-1]) + len(text) // 3) % 101 % vocabulary


def circling(rule: Callable[[list[int]], int] | None = None, vocabulary: int = 50, **options: Any) -> FakeTarget:
    """A target whose runners-up are the tokens behind its choice, in circles; jumbled by default."""
    rule = rule or jumbled(vocabulary)

    def runners_up(text: list[int]) -> torch.Tensor:
        return -((torch.arange(vocabulary) - rule(text)) % vocabulary).float()

    return FakeTarget(rule, vocabulary, runners_up=runners_up, **options)


class FakeTarget:
    """Args:
    rule: the next token after a text.
    runners_up: logits of the vocabulary after a text, largest for what `rule` says; one-hot by default.
    """

    model: Any = None

    def __init__(
        self,
        rule: Callable[[list[int]], int],
        vocabulary: int = 100,
        max_draft: int = 99,
        runners_up: Callable[[list[int]], torch.Tensor] | None = None,
    ) -> None:
        self.rule, self.vocabulary, self.max_draft, self.context_limit = rule, vocabulary, max_draft, 1000
        self.draft_limit = 1000
        self.runners_up = runners_up or (lambda text: torch.eye(vocabulary)[rule(text)])
        self.last: Forward
        self.forwards: list[Forward] = []

    def prefill(self, prompt_ids: IntArray) -> Forward:
        self.text: list[int] = prompt_ids.tolist()
        self._forward(DraftTree.root_only(self.text[-1]), [self.text])
        self.last.path = [0]
        self.last.prompt = torch.stack([self._state(end) for end in range(1, len(self.text) + 1)])
        return self.last

    def verify(self, tree: DraftTree, top_k: int = 0) -> Forward:
        return self._forward(tree, [self.text + tree.tokens[tree.path_to(node)].tolist() for node in range(len(tree))])

    def commit(self, past: int, path: list[int]) -> None:
        assert past == len(self.text)
        self.text += self.last.tree.tokens[path].tolist()
        self.last.path = path

    def synchronize(self) -> None:
        pass

    def top_k(self, k: int, nodes: IntArray | None = None, least: float = 0.0) -> TopK:
        nodes = np.arange(len(self.last.logits)) if nodes is None else nodes
        return top_k_rows(nodes, self.last.logits[nodes], k, least=least)

    def top_k_in_prompt(self, places: IntArray, k: int, among: IntArray | None = None, least: float = 0.0) -> TopK:
        logits = torch.stack([self.runners_up(self.text[: at + 1]) for at in places])
        if among is None:
            return top_k_rows(places, logits, k, least=least)
        found = top_k_rows(places, logits[:, among], k, least=least)
        return found._replace(tokens=among[found.tokens])

    def _forward(self, tree: DraftTree, texts: list[list[int]]) -> Forward:
        choices = np.array([self.rule(text) for text in texts])
        logits = torch.stack([self.runners_up(text) for text in texts])
        assert (logits.argmax(-1).numpy() == choices).all()
        # a state says what follows, as a model's last one does
        self.last = Forward(tree=tree, hidden=logits, logits=logits, choices=choices)
        self.forwards.append(self.last)
        return self.last

    def _state(self, end: int) -> torch.Tensor:
        """Of the text up to there; zeros where it is too short for the rule."""
        try:
            return self.runners_up(self.text[:end])
        except IndexError:
            return torch.zeros(self.vocabulary)

    @property
    def trees(self) -> list[DraftTree]:
        return [forward.tree for forward in self.forwards if forward.prompt is None]

    def greedy(self, prompt: list[int], length: int) -> list[int]:
        """`length` tokens, one by one."""
        text = list(prompt)
        for _ in range(length):
            text.append(self.rule(text))
        return text[len(prompt) :]


def begun(drafter: Drafter, target: Any, text: list[int]) -> Prompt:
    """A drafter behind a prompt and the first token of the answer, the last of `text`; returns the prompt."""
    prompt = Prompt(np.array(text[:-1], np.int64))
    drafter.bind(target)
    target.prefill(prompt.ids)
    drafter.start(prompt)
    drafter.observe(text[-1:])
    return prompt


def answer(target: FakeTarget, drafter: Drafter, prompt: list[int], length: int) -> GenerationResult:
    """The loop's answer, which has to be the greedy one."""
    result = SpeculativeDecoder(target, drafter).generate(Prompt(np.array(prompt, np.int64)), Stop(length))
    assert result.output_ids == target.greedy(prompt, length)
    return result
