"""The blend behind the interface of Arctic Inference's `SuffixDecodingCache`, which vLLM's method `suffix` drafts with.

`ngram_trie.integrations.arctic.in_place_of_arctic()` makes vLLM take it, with no change to vLLM.
"""

from __future__ import annotations

from collections.abc import Hashable, KeysView, Sequence
from dataclasses import dataclass, field

import numpy as np

from ngram_trie.blend.context_index import BlendIndex
from ngram_trie.blend.ppm import Numbers
from ngram_trie.budget import path_that_pays
from ngram_trie.drafter import check_int
from ngram_trie.integrations.answers import RecentAnswers
from ngram_trie.text import GrowingText
from ngram_trie.tree import IntArray

#: Chains are taken from trees of so many nodes.
_TREE = 64


@dataclass
class SuffixDecodingDraft:
    """A draft.

    Attributes:
        token_ids: drafted tokens; those of a chain in order.
        parents: index of each one's parent; -1 behind the context.
        probs: how likely each path is.
        score: their sum, the tokens that are expected to be accepted.
        match_len: how many of the last tokens stand together earlier in the request or an answer.
    """

    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    probs: list[float] = field(default_factory=list)
    score: float = 0.0
    match_len: int = 0


@dataclass
class _Active:
    """A request that is being answered."""

    index: BlendIndex
    text: GrowingText
    prompt_length: int
    others: Numbers


class SuffixDecodingCache:
    """Drafts for requests by their names, from their own text and, where answers are kept, from those of others.

    What others were answered is seen by requests that start later, and in whole answers: those of requests that are
    still being answered are not drafted from, other than in Arctic Inference.

    Args:
        max_tree_depth: longest match that counts, and most tokens of a draft.
        max_cached_requests: answers that are kept; 0 for none, -1 for no such limit. The oldest are forgotten.
        max_tokens: of the answers that are kept.

    Raises:
        ValueError: a value that is not allowed.
    """

    def __init__(self, max_tree_depth: int = 64, max_cached_requests: int = -1, max_tokens: int = 65_536) -> None:
        check_int("max_tree_depth", max_tree_depth, 1)
        check_int("max_cached_requests", max_cached_requests, -1, 2**31 - 1)
        self._max_tree_depth, self._max_cached_requests = max_tree_depth, max_cached_requests
        self._answers = RecentAnswers(max_tokens, max_answers=max_cached_requests if max_cached_requests > 0 else None)
        self._active: dict[Hashable, _Active] = {}

    @property
    def max_tree_depth(self) -> int:
        return self._max_tree_depth

    @property
    def max_cached_requests(self) -> int:
        return self._max_cached_requests

    @property
    def active_requests(self) -> KeysView[Hashable]:
        """Started and not yet stopped."""
        return self._active.keys()

    @property
    def cached_requests(self) -> KeysView[Hashable]:
        """Those whose answers are kept."""
        return dict.fromkeys(self._answers.keys()).keys()

    def start_request(self, req_id: Hashable, prompt_token_ids: IntArray | Sequence[int]) -> None:
        """
        Raises:
            ValueError: it was started already.
        """
        if req_id in self._active:
            raise ValueError(f"request {req_id!r}: was started already; stop it first")
        self._answers.forget(req_id)
        background = self._answers.background()
        index = BlendIndex(prompt_token_ids, background=background)
        text = GrowingText(prompt_token_ids)
        self._active[req_id] = _Active(index, text, len(text), background.text)

    def add_active_response(self, req_id: Hashable, token_ids: IntArray | Sequence[int]) -> None:
        """Tokens were emitted.

        Raises:
            ValueError: the request was not started.
        """
        request = self._of(req_id)
        request.index.extend(token_ids)
        request.text.extend(token_ids)

    def stop_request(self, req_id: Hashable) -> None:
        """The request is finished; its answer is kept, its prompt is not.

        Raises:
            ValueError: it was not started.
        """
        request = self._of(req_id)
        del self._active[req_id]
        answer = request.text.ids[request.prompt_length :]
        if self._max_cached_requests and len(answer):
            self._answers.add(req_id, answer.copy())

    def evict_cached_response(self, req_id: Hashable) -> None:
        """Forget an answer.

        Raises:
            ValueError: it is not kept.
        """
        if req_id not in self._answers:
            raise ValueError(f"request {req_id!r}: no answer of it is kept")
        self._answers.forget(req_id)

    def speculate(
        self,
        req_id: Hashable,
        context: IntArray | Sequence[int],
        max_spec_tokens: int | None = None,
        max_spec_factor: float = 1.0,
        max_spec_offset: float = 0.0,
        min_token_prob: float = 0.1,
        use_tree_spec: bool = False,
    ) -> SuffixDecodingDraft:
        """A draft behind the request's text.

        Args:
            context: the end of the text.
            max_spec_tokens: most tokens of the draft; None for the depth of the tree.
            max_spec_factor, max_spec_offset: and at most factor times the length of the match and offset.
            min_token_prob: a path less likely is not drafted.
            use_tree_spec: a tree, the likeliest tokens first; else its best path.

        Raises:
            ValueError: the request was not started, or the context is not the end of its text.
        """
        request = self._of(req_id)
        end = np.asarray(context)[-self._max_tree_depth :]
        if not len(end) or not np.array_equal(request.text.ids[-len(end) :], end):
            raise ValueError(f"request {req_id!r}: the context must be the end of its text, at least one token")
        matched = self._match(request, end)
        most = self._max_tree_depth if max_spec_tokens is None else max_spec_tokens
        most = min(most, int(max_spec_factor * matched + max_spec_offset))
        if most < 1:
            return SuffixDecodingDraft(match_len=matched)
        tree = request.index.draft(most if use_tree_spec else max(most, _TREE))
        assert tree.probs is not None
        probs = np.where(tree.probs < min_token_prob, 0.0, tree.probs)
        if use_tree_spec:
            tree = tree.part(np.flatnonzero(probs > 0))
        else:
            tree = tree.part(path_that_pays(tree.parents, probs, np.ones(most + 1)))
        assert tree.probs is not None
        return SuffixDecodingDraft(
            tree.tokens[1:].tolist(),
            (tree.parents[1:] - 1).tolist(),
            tree.probs[1:].tolist(),
            float(tree.probs[1:].sum()),
            matched,
        )

    def _of(self, req_id: Hashable) -> _Active:
        if req_id not in self._active:
            raise ValueError(f"request {req_id!r}: was not started")
        return self._active[req_id]

    def _match(self, request: _Active, context: IntArray) -> int:
        """Length of the longest end of the context that stands earlier in the request's text, or in an answer."""
        best = 0
        for text in (request.text.ids[:-1], request.others):
            ends = np.flatnonzero(text == context[-1])
            length = 0
            while len(ends):
                length += 1
                if length == len(context):
                    break
                ends = ends[ends >= length]
                ends = ends[text[ends - length] == context[-1 - length]]
            best = max(best, length)
        return best
