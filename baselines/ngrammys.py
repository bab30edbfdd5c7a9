"""The drafters of N-Grammys that read tables of a model's own N-grams, alone and mixed with the context's.

Each drafts k rows of w tokens. The paper verifies them as a batch (`verify=rows`, of the method or of the engine);
merged into one tree, shared prefixes once, they are accepted alike at less cost. The context's alone are in
`context_ngrams`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ngram_trie.baselines.context_ngrams import RowsDrafter, context_ngrams
from ngram_trie.drafter import Verify, check_choice, check_int, check_place
from ngram_trie.store.ngram_tables import BUILD_COMMAND, RANKINGS, NgramTables
from ngram_trie.tree import FloatArray, IntArray, Sources, rank_probs

Extend = Literal["model", "bigram"]


class TableDrafter(RowsDrafter):
    """k rows of w tokens, made with the help of a model's tables.

    Args:
        tables: folder that `scripts.build_ngram_tables` wrote for the target; opened when it is first needed.
        k, w, num_draft, verify: as in `RowsDrafter`.
    """

    traits = replace(RowsDrafter.traits, state="preloaded")
    not_sent = ("opened",)  # another process maps the files itself

    def __init__(self, tables: str, k: int, w: int, num_draft: int | None, verify: Verify | None = None) -> None:
        check_place("tables", tables)
        self.folder = Path(tables)
        super().__init__(k, w, num_draft, verify)

    @functools.cached_property
    def opened(self) -> NgramTables:
        """The tables.

        Raises:
            FileNotFoundError, ValueError: no usable tables (`NgramTables.open`), or smaller ones than k or w.
        """
        opened = NgramTables.open(self.folder)
        self.check_size(opened)
        return opened

    def check_size(self, tables: NgramTables) -> None:
        """Raises:
        ValueError: `tables` hold less than is asked for.
        """
        if self.k > tables.k:
            raise ValueError(f"k={self.k}: {self.folder} holds {tables.k} successors of each token")

    def parts(self) -> Mapping[Path, str]:
        return {self.folder / "header.json": f"`{BUILD_COMMAND}{self.folder.name}` builds it"}

    def bind(self, target: Any) -> None:
        if self.opened and target.model:  # a recorded answer does not say which weights gave it
            self.opened.check(target.model, self.folder)


class ModelUnigram(TableDrafter):
    """The model unigram (section 4.1): always the same k tokens.

    The tables hold no probabilities of it: a token's is that of its rank (`rank_probs`).

    Args:
        tables, k, num_draft: as in `TableDrafter`; w is 1.
        ranking: "code", by a token's inner product with the mean output embedding, as the pseudo code of appendix B.1
            has it; or "text", by its distance from the mean, as section 4.1 has it. On the general model the first
            begins with the most frequent tokens, the second with tokens that never occur and are never accepted.
    """

    def __init__(self, *, tables: str, k: int = 10, ranking: str = "code", num_draft: int | None = None) -> None:
        check_choice("ranking", ranking, RANKINGS)
        self.ranking = ranking
        super().__init__(tables, k, 1, num_draft)

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        return {"k": num_nodes}

    def check_size(self, tables: NgramTables) -> None:
        if self.k > len(tables.bigram):
            raise ValueError(f"k={self.k}: {self.folder} ranks {len(tables.bigram)} tokens")

    def rows(self, text: IntArray) -> tuple[IntArray, FloatArray]:
        rows = self.opened.unigram[RANKINGS.index(self.ranking), : self.k, None].astype(np.int64)
        return rows, rank_probs(np.arange(len(rows)))[:, None]


class ModelBigram(TableDrafter):
    """The model bigram (section 4.1): the k tokens that the model finds likeliest after the last token alone; with w
    above 1 the extended bigram.

    A first token's probability is the one that the model gave it, of each further one that of the likeliest successor
    of the token before it, the best that the tables know.

    Args:
        tables, k, w, num_draft, verify: as in `TableDrafter`.
        extend: where the tokens after the first come from: "model", the model's greedy continuation, which is stored
            up to the w of the tables; or "bigram", the bigram's best applied again and again, for any w. The paper
            names both and does not say which it used.
    """

    def __init__(
        self,
        *,
        tables: str,
        k: int = 10,
        w: int = 1,
        extend: Extend = "model",
        num_draft: int | None = None,
        verify: Verify | None = None,
    ) -> None:
        check_choice("extend", extend, get_args(Extend))
        self.extend: Extend = extend
        super().__init__(tables, k, w, num_draft, verify)

    def check_size(self, tables: NgramTables) -> None:
        super().check_size(tables)
        if self.extend == "model" and self.w > tables.w:
            raise ValueError(f"w={self.w}: {self.folder} holds rows of {tables.w} tokens; extend=bigram has no limit")

    def rows(self, text: IntArray) -> tuple[IntArray, FloatArray]:
        successors = self.opened.greedy if self.extend == "model" else self.opened.chain
        last = int(text[-1])
        rows = successors(last, self.w)[: self.k]
        edges = np.empty(rows.shape)
        edges[:, 0] = self.opened.shares[last, : self.k]
        edges[:, 1:] = self.opened.shares[rows[:, :-1], 0]
        return rows, edges.cumprod(axis=1)


class MixedNgrams(ModelBigram):
    """The mixed strategy (section 4.3): as many rows as there are from the context, then the extended model bigram
    until there are k. As published, a row that both give takes two of the k places. The probabilities of the first are
    those of `ContextNgrams`, of the others those of `ModelBigram`. A node's source is "context" or "bigram".

    Args:
        tables, k, w, extend, num_draft, verify: as in `ModelBigram`; (k, w) = (10, 10) is the paper's representative
            choice.
        q: query length of the context n-grams; the paper's is 1 (section 5, note 4).

    Attributes:
        num_context: how many of the rows given last are the context's.
    """

    num_context = 0

    def __init__(
        self,
        *,
        tables: str,
        k: int = 10,
        w: int = 10,
        q: int = 1,
        extend: Extend = "model",
        num_draft: int | None = None,
        verify: Verify | None = None,
    ) -> None:
        check_int("q", q, 1)
        self.q = q
        super().__init__(tables=tables, k=k, w=w, extend=extend, num_draft=num_draft, verify=verify)

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """As many rows as they are long, sqrt(num_nodes), as the published (10, 10) is square; where rows share tokens
        the nodes that are left make them longer. The bigram always fills all rows up, so with ten of them few nodes
        would never reach a second token.
        """
        return {"k": min(math.isqrt(num_nodes), 10), "num_draft": num_nodes}

    def context_rows(self, text: IntArray) -> tuple[IntArray, FloatArray]:
        """As `rows`, the context's share of them, r from 0 to k."""
        rows, _, shares = context_ngrams(text, self.q, self.w, self.k)
        return rows, shares

    def rows(self, text: IntArray) -> tuple[IntArray, FloatArray]:
        ours, shares = self.context_rows(text)
        self.num_context = len(ours)
        left = self.k - len(ours)
        if not left:
            return ours, shares
        more, probs = super().rows(text)
        return np.concatenate([ours, more[:left]]), np.concatenate([shares, probs[:left]])

    def sources(self, num_rows: int) -> Sources:
        return Sources(("context", "bigram"), (np.arange(num_rows) >= self.num_context).astype(np.int64))
