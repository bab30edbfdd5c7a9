"""The drafters of N-Grammys that read tables of a model's own N-grams, alone and mixed with the context's.

Each drafts k rows of w tokens. The paper verifies them as a batch (`verify=rows`, of the method or of the engine);
merged into one tree, shared prefixes once, they are accepted alike at less cost. The context's alone are in
`context_ngrams`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ngram_trie.baselines.context_ngrams import RowsDrafter, context_ngrams
from ngram_trie.baselines.datastore import check_folder
from ngram_trie.drafter import State, Verify, check_choice, check_int
from ngram_trie.ngram_tables import BUILD_COMMAND, RANKINGS, NgramTables
from ngram_trie.tree import IntArray

Extend = Literal["model", "bigram"]


class TableDrafter(RowsDrafter):
    """k rows of w tokens, made with the help of a model's tables.

    Args:
        tables: folder that `scripts.build_ngram_tables` wrote for the target; opened when it is first needed.
        k, w, num_draft, verify: as in `RowsDrafter`.

    Raises:
        ValueError: a value that is not allowed; the message names it and what is.
    """

    state: State = "preloaded"
    not_sent = ("opened",)  # another process maps the files itself

    def __init__(self, tables: str, k: int, w: int, num_draft: int | None, verify: Verify | None = None) -> None:
        self.folder = check_folder(tables, "tables")
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

    def rows(self, text: IntArray) -> IntArray:
        return self.opened.unigram[RANKINGS.index(self.ranking), : self.k, None].astype(np.int64)


class ModelBigram(TableDrafter):
    """The model bigram (section 4.1): the k tokens that the model finds likeliest after the last token alone; with w
    above 1 the extended bigram.

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

    def rows(self, text: IntArray) -> IntArray:
        rows = self.opened.greedy if self.extend == "model" else self.opened.chain
        return rows(int(text[-1]), self.w)[: self.k]


class MixedNgrams(ModelBigram):
    """The mixed strategy (section 4.3): as many rows as there are from the context, then the extended model bigram
    until there are k. As published, a row that both give takes two of the k places.

    Args:
        tables, k, w, extend, num_draft, verify: as in `ModelBigram`; (k, w) = (10, 10) is the paper's representative
            choice.
        q: query length of the context n-grams; the paper's is 1 (section 5, note 4).
    """

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

    def context_rows(self, text: IntArray) -> IntArray:
        """(r, w) the context's share of the rows, r from 0 to k."""
        return context_ngrams(text, self.q, self.w, self.k)[0]

    def rows(self, text: IntArray) -> IntArray:
        ours = self.context_rows(text)
        return ours if len(ours) == self.k else np.concatenate([ours, super().rows(text)[: self.k - len(ours)]])
