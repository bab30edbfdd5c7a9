"""One recorded answer, step by step: what a drafter drafted, what was accepted of it, and what it could have known.

The answer is replayed in the loop of `ngram_trie.decoding`, so the trees are exactly those that are verified in a live
run and the paths those that are accepted. `ngram_trie.report` shows it as a page.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ngram_trie.bench.replay import TraceTarget, replay
from ngram_trie.bench.traces import Trace
from ngram_trie.decoding import Seen
from ngram_trie.drafter import Drafter, WrappedDrafter
from ngram_trie.report.case_study import text_pieces
from ngram_trie.tree import DraftTree, IntArray

Decode = Callable[[Sequence[int]], str]
#: Agreement beyond this many tokens is not distinguished, and this many followers are shown.
LONGEST_MATCH, MOST_FOLLOWERS = 32, 4


class Step(NamedTuple):
    """One verification step.

    Attributes:
        start: place in the answer of the first token that it emits; the root is the token before.
        tree: as it is verified, with the drafter's probabilities where it gives them.
        path: accepted nodes, the root first.
        num_emitted: tokens that the answer keeps of it.
    """

    start: int
    tree: DraftTree
    path: list[int]
    num_emitted: int


class _WatchedTarget(TraceTarget):
    """A recorded answer that keeps what it verified and accepted."""

    def __init__(self, trace: Trace, max_draft: int) -> None:
        super().__init__(trace, max_draft)
        self.verified: list[tuple[DraftTree, list[int]]] = []

    def verify(self, tree: DraftTree, top_k: int = 0) -> Seen:
        self._tree = tree
        return super().verify(tree)

    def commit(self, past: int, path: list[int]) -> None:
        self.verified.append((self._tree, list(path)))
        super().commit(past, path)


class _Telling(WrappedDrafter):
    """A drafter that always says where the nodes come from."""

    def propose(self, budget: int) -> DraftTree:
        tree = self.drafter.propose(budget)
        return replace(tree, sources=self.drafter.sources_of(tree))


def walk(drafter: Drafter, trace: Trace, max_draft: int = 256) -> list[Step]:
    """The steps in which `drafter` would have given a recorded answer.

    Raises:
        ValueError: the answer has no tokens.
    """
    if not trace.output_ids:
        raise ValueError(f"question {trace.prompt.question_id}: the recorded answer has no tokens")
    target = _WatchedTarget(trace, max_draft)
    result = replay(_Telling(drafter), trace, target=target)
    steps, start = [], 1
    for (tree, path), length in zip(target.verified, result.accept_lengths, strict=False):
        # Besides the root; where the answer ends inside the draft, its last token is a node and not the model's own.
        steps.append(Step(start, tree, path[: length + 1], length))
        start += length
    return steps


class Evidence(NamedTuple):
    """What the text before a token says about it.

    Attributes:
        length: of the longest end of the text that occurred before, at most LONGEST_MATCH; 0 if its last token did not.
        places: how often it did.
        followers: the tokens that followed it there, the most frequent ones with their counts.
        seen: how often the token that did come occurs in the text before.
    """

    length: int
    places: int
    followers: list[tuple[int, int]]
    seen: int


def evidence(text: IntArray, token: int) -> Evidence:
    """What `text`, prompt and answer so far, says about `token`, which follows it."""
    ends = np.arange(len(text) - 1)  # a place is the index of its last token
    length = 0
    while length < min(LONGEST_MATCH, len(text) - 1):
        longer = ends[(ends >= length) & (text[ends - length] == text[len(text) - 1 - length])]
        if not len(longer):
            break
        ends, length = longer, length + 1
    seen = int((text == token).sum())
    if not length:
        return Evidence(0, 0, [], seen)
    followers = Counter(text[ends + 1].tolist()).most_common(MOST_FOLLOWERS)
    return Evidence(length, len(ends), followers, seen)


def token_texts(ids: Sequence[int], decode: Decode | None) -> dict[int, str]:
    """The text that each token adds in the middle of a text; "#id" for one that adds none, or without a tokenizer."""
    if decode is None:
        return {token: f"#{token}" for token in ids}
    return {token: text_pieces([ids[0], token], decode)[1] or f"#{token}" for token in ids}


def explore(trace: Trace, drafters: Mapping[str, Drafter], decode: Decode | None = None) -> dict[str, Any]:
    """Everything that the page shows, as JSON-like data.

    Args:
        trace: the answer.
        drafters: by the name to show; side by side in this order.
        decode: token ids to text, a tokenizer's own function; without it ids are shown.
    """
    walks = {name: walk(drafter, trace) for name, drafter in drafters.items()}
    told = [step.tree.sources for steps in walks.values() for step in steps if step.tree.sources is not None]
    sources = list(dict.fromkeys(itertools.chain.from_iterable(each.names for each in told)))
    text = np.concatenate([trace.prompt.ids, np.array(trace.output_ids, np.int64)])
    begin = len(trace.prompt.ids)
    facts = [evidence(text[: begin + place], int(text[begin + place])) for place in range(len(trace.output_ids))]
    shown = {int(token) for steps in walks.values() for step in steps for token in step.tree.tokens}
    shown |= {token for fact in facts for token, _ in fact.followers} | set(trace.output_ids)
    pieces = text_pieces(trace.output_ids, decode) if decode else [f"{token} " for token in trace.output_ids]
    return {
        "title": f"{trace.category}, question {trace.prompt.question_id}, model {trace.model}",
        "ids": list(trace.output_ids),
        "pieces": pieces,
        "texts": {str(token): part for token, part in token_texts(sorted(shown), decode).items()},
        "evidence": [[fact.length, fact.places, fact.followers, fact.seen] for fact in facts],
        "sources": sources,
        "drafters": [
            {"name": name, "steps": [_step_data(step, sources) for step in steps]} for name, steps in walks.items()
        ],
    }


def _step_data(step: Step, sources: Sequence[str]) -> dict[str, Any]:
    data: dict[str, Any] = {
        "start": step.start,
        "emitted": step.num_emitted,
        "tokens": step.tree.tokens.tolist(),
        "parents": step.tree.parents.tolist(),
        "path": step.path,
    }
    if step.tree.probes:
        data["probes"] = step.tree.probes
    if step.tree.probs is not None:
        data["probs"] = [float(f"{prob:.3g}") for prob in step.tree.probs]
    if step.tree.sources is not None:
        data["sources"] = [sources.index(step.tree.sources.names[rank]) for rank in step.tree.sources.ranks]
    return data
