"""What the default drafter needs, compiled by a second process while the first one compiles its network: numba compiles
one function at a time, so two threads would take turns. It happens once for a version of the package and a processor.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ngram_trie.blend.prediction import credit_or_draft
from ngram_trie.budget.adaptive import AdaptiveDrafter
from ngram_trie.decoding import Seen, SpeculativeDecoder, Stop
from ngram_trie.drafter import TopK
from ngram_trie.methods import make_drafter
from ngram_trie.prompt import Prompt
from ngram_trie.store.compiled import is_kept
from ngram_trie.tree import DraftTree, FloatArray, IntArray

#: Tokens of the stand-in's vocabulary, and of the answer that is drafted: the drafter's tables grow on the way.
TOKENS, LENGTH = 24, 1200


def begin() -> subprocess.Popen[bytes] | None:
    """Start the second process; None where it has nothing to do, or where it cannot help. If it fails, what it should
    have compiled is compiled where it is needed.
    """
    runs_python = Path(sys.executable or "").name.startswith("python")  # and not a server that Python is a part of
    if is_kept(credit_or_draft) or not runs_python or (os.cpu_count() or 1) < 2:
        return None
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import compile_default; compile_default()"
    with contextlib.suppress(OSError):
        null = subprocess.DEVNULL
        return subprocess.Popen([sys.executable, "-c", code], stdin=null, stdout=null, stderr=null)
    return None


def compile_default() -> None:
    """Let the default drafter draft an answer."""
    drafter = AdaptiveDrafter(make_drafter("blend_logits"), cost=_Level())
    SpeculativeDecoder(_StandIn(), drafter).generate(Prompt(np.arange(2 * TOKENS) % TOKENS), Stop(LENGTH))


class _Level:
    """Steps whose nodes cost next to nothing."""

    def step(self, nodes: Iterable[int], contexts: Iterable[int]) -> FloatArray:
        return 1 + 0.01 * np.array([*nodes])


class _StandIn:
    """A target without a model: each token is followed by the next one, but by the first one behind every third node.
    What is compiled over it is what any target needs.
    """

    model = None
    context_limit = draft_limit = 2 * LENGTH
    max_draft = 32
    last: Any

    def prefill(self, prompt_ids: IntArray) -> Seen:
        return self._see(DraftTree.root_only(int(prompt_ids[-1])), prompt_ids)

    def verify(self, tree: DraftTree, top_k: int = 0) -> Seen:
        return self._see(tree, None)

    def commit(self, past: int, path: list[int]) -> None:
        self.last.path = path

    def synchronize(self) -> None:
        return

    def top_k(self, k: int, nodes: IntArray | None = None, least: float = 0.0) -> TopK:
        places = np.arange(len(self.last.tree)) if nodes is None else nodes
        return _behind(places, self.last.choices[places], k)

    def top_k_in_prompt(self, places: IntArray, k: int, among: IntArray | None = None, least: float = 0.0) -> TopK:
        return _behind(places, self.last.prompt[places] + 1, k)

    def _see(self, tree: DraftTree, prompt: IntArray | None) -> Seen:
        choices = np.where(np.arange(len(tree)) % 3 == 2, 0, (tree.tokens + 1) % TOKENS)
        self.last = SimpleNamespace(tree=tree, choices=choices, prompt=prompt, path=[0])
        return Seen(choices)


def _behind(places: IntArray, first: IntArray, k: int) -> TopK:
    """`first` and the tokens after it behind the places, each half as likely as the one before."""
    tokens = (first[:, None] + np.arange(k)) % TOKENS
    return TopK(places, tokens, np.broadcast_to(0.5 ** np.arange(1, k + 1), tokens.shape).copy())
