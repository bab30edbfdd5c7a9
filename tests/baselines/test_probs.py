"""How likely drafters hold their nodes to be accepted (`DraftTree.probs`): by hand."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import SMALL
from support.text import by_path, drafted

from ngram_trie.baselines.arctic_suffix import ArcticSuffix
from ngram_trie.baselines.context_ngrams import ContextNgrams
from ngram_trie.baselines.datastore import build_datastore
from ngram_trie.baselines.llma import LLMA
from ngram_trie.baselines.ngram_predictor import NgramPredictor
from ngram_trie.baselines.ngrammys import MixedNgrams, ModelBigram, ModelUnigram
from ngram_trie.baselines.prompt_lookup import PromptLookup
from ngram_trie.baselines.rest import REST
from ngram_trie.baselines.sam import SAMDecoding
from ngram_trie.baselines.suffix_decoding import SuffixDecoding
from ngram_trie.drafter import Drafter
from ngram_trie.drafters import NgramTrieDrafter, ReleasedNgramTrieDrafter
from ngram_trie.tree import DraftTree

Make = Callable[[], Drafter]
#: Of the drafters that have a store: its documents, of tokens that the tables have, too.
DOCUMENTS = [[1, 2, 3, 0], [0, 1, 2, 3, 2, 1], [2, 0], [3, 1, 2]]
F = Fraction


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders: a datastore of DOCUMENTS and the tables SMALL."""
    folder = tmp_path_factory.mktemp("stored")
    build_datastore(DOCUMENTS, folder / "datastore")
    (folder / "tables").mkdir()
    SMALL.write(folder / "tables")
    return {name: str(folder / name) for name in ("datastore", "tables")}


def scores(tree: DraftTree) -> dict[tuple[int, ...], float]:
    assert tree.probs is not None
    return {path: prob for path, prob in by_path(tree, tree.probs.tolist()).items() if path}


# All counts are over one place more than there were.
# "1" was followed by 2 twice and by 3 once, "1 2" by 4 and by 5; the last 1 by nothing yet.
FOLLOWED = [1, 2, 4, 1, 2, 5, 1, 3, 6]
# "1 2" counts 2 + 3 times in the windows of Algorithm 1, followed by 3 in those of the first place.
WINDOWS = [7, 1, 2, 3, 9, 8, 1, 2, 4]
# In three windows of four tokens "1 2" is followed by 3 4, 3 5 and 6 7.
RELEASED = [1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 6, 7]
# "1" was followed by 2 3 twice, by 2 4, by 5 6 and by 7 8.
ROWS = [1, 2, 3, 0, 1, 2, 4, 0, 1, 5, 6, 0, 1, 2, 3, 0, 1, 7, 8]

BY_HAND: dict[str, tuple[Make, list[int], list[int], dict[tuple[int, ...], Fraction]]] = {
    "suffix: shares of what followed": (
        functools.partial(SuffixDecoding, num_draft=4, alpha=None),
        FOLLOWED, [1], {(2,): F(2, 4), (3,): F(1, 4), (2, 4): F(1, 4), (2, 5): F(1, 4)},
    ),
    "suffix: shares of what occurred": (
        functools.partial(SuffixDecoding, num_draft=4, alpha=None, totals="occurrences"),
        FOLLOWED, [1], {(2,): F(2, 5), (3,): F(1, 5), (2, 4): F(1, 5), (2, 5): F(1, 5)},
    ),
    "trie: counts of Algorithm 1": (
        functools.partial(NgramTrieDrafter, n=6, prefix_len=3, num_draft=3),
        WINDOWS, [5, 1, 2], {(4,): F(3, 6), (3,): F(2, 6), (3, 9): F(2, 6)},
    ),
    "released trie: windows": (
        functools.partial(ReleasedNgramTrieDrafter, n=4, prefix_len=2),
        RELEASED, [1, 2], {(3,): F(2, 4), (3, 4): F(1, 4), (3, 5): F(1, 4), (6,): F(1, 4), (6, 7): F(1, 4)},
    ),
    "released trie: after paths were dropped": (
        functools.partial(ReleasedNgramTrieDrafter, n=4, prefix_len=2, num_draft=5),
        RELEASED, [1, 2], {(3,): F(2, 4), (6,): F(1, 4), (6, 7): F(1, 4)},
    ),
    "released trie: no match": (
        functools.partial(ReleasedNgramTrieDrafter, n=4, prefix_len=2), RELEASED, [77], {(100,): F(0)},
    ),
    "sam: a match of two": (
        SAMDecoding, [2, 7, 8, 9, 1, 2, 5, 1], [2], {(5,): F(2, 3), (5, 1): F(2, 4), (5, 1, 2): F(2, 5)},
    ),
    "pld: a match of two": (
        functools.partial(PromptLookup, num_draft=3),
        [1, 2, 5, 9, 1], [2], {(5,): F(2, 3), (5, 9): F(2, 4), (5, 9, 1): F(2, 5)},
    ),
    "pld: no match": (functools.partial(PromptLookup, dummy_when_none=100), [1, 2], [3], {(100,): F(0)}),
    "llma: a match of two": (LLMA, [7, 1, 2, 3, 4], [1, 2], {(3,): F(2, 3), (3, 4): F(2, 4)}),
    "predictor: 2 of 3 and one more after 1, 2 of 2 after 2, 2 of 3 after 1": (
        functools.partial(NgramPredictor, max_order=2, num_draft=3),
        [1, 2, 1, 3, 1, 2], [1], {(2,): F(2, 4), (2, 1): F(2, 4), (2, 1, 2): F(2, 4) * F(2, 3)},
    ),
    "context: shares of all matches": (
        functools.partial(ContextNgrams, w=2),
        ROWS, [1],
        {
            (2,): F(3, 6), (2, 3): F(2, 6), (2, 4): F(1, 6),
            (5,): F(1, 6), (5, 6): F(1, 6), (7,): F(1, 6), (7, 8): F(1, 6),
        },
    ),
    "context: those that are not drafted count": (
        functools.partial(ContextNgrams, k=1, w=2), ROWS, [1], {(2,): F(3, 6), (2, 3): F(2, 6)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name: str) -> None:
    make, prompt, output, expected = BY_HAND[name]
    found = scores(drafted(make(), prompt, output))
    assert found == pytest.approx({path: float(prob) for path, prob in expected.items()})


def test_of_a_store_by_hand(stored: dict[str, str]) -> None:
    rest = REST(datastore=stored["datastore"])
    # "1 2" stands in three documents and goes on in two, which are the hits.
    assert scores(drafted(rest, [9, 1], [2], budget=4)) == pytest.approx(
        {(3,): 2 / 3, (3, 0): 1 / 3, (3, 2): 1 / 3, (3, 2, 1): 1 / 3}
    )
    sam = SAMDecoding(datastore=stored["datastore"], static_bias=0)
    # A match of three in the second document.
    assert scores(drafted(sam, [0, 1], [2])) == pytest.approx({(3,): 3 / 4, (3, 2): 3 / 5, (3, 2, 1): 3 / 6})


def test_of_a_models_tables_by_hand(stored: dict[str, str]) -> None:
    """The model gives each token's first successor 1/2 and the second 1/4."""
    tables = stored["tables"]
    assert scores(drafted(ModelUnigram(tables=tables, k=3, ranking="text"), [0], [1])) == pytest.approx(
        {(2,): 1 / 2, (0,): 1 / 3, (3,): 1 / 4}
    )
    bigram = scores(drafted(ModelBigram(tables=tables, k=2, w=3), [0], [1]))
    assert bigram == {(2,): 0.5, (2, 0): 0.25, (2, 0, 0): 0.125, (3,): 0.25, (3, 1): 0.125, (3, 1, 1): 0.0625}
    # 2 2 is all that followed 1, once; the model's row 2 0 shares its first node.
    mixed = scores(drafted(MixedNgrams(tables=tables, k=2, w=2), [1, 2, 2], [1]))
    assert mixed == {(2,): 0.5, (2, 2): 0.5, (2, 0): 0.25}


def test_rows_and_nodes_of_them_know_their_source(stored: dict[str, str]) -> None:
    """As above: of the node that both rows have, with the same probability, the context comes first."""
    mixed = MixedNgrams(tables=stored["tables"], k=2, w=2)
    tree = drafted(mixed, [1, 2, 2], [1])
    assert tree.sources is not None and tree.sources.names == ("context", "bigram")
    sources = {path: rank for path, rank in by_path(tree, tree.sources.ranks.tolist()).items() if path}
    assert sources == {(2,): 0, (2, 2): 0, (2, 0): 1}
    # Nothing followed 0 before: all is the model's.
    alone = drafted(mixed, [1], [0]).sources
    assert alone is not None and alone.ranks[1:].tolist() == [1] * (len(alone.ranks) - 1)
    assert drafted(ModelBigram(tables=stored["tables"], k=2), [0], [1]).sources is None


def test_of_earlier_answers_by_hand() -> None:
    warm = SuffixDecoding(remember_outputs=True, num_draft=2)
    drafted(warm, [8], [31, 32, 33, 31, 32, 34, 31, 32, 33])
    # The 33 that ended the answer has no followers; the other one was followed by 31.
    assert scores(drafted(warm, [9], [31, 32])) == pytest.approx({(33,): 2 / 4, (33, 31): 2 / 4})


TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=25)


def test_of_the_authors_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says itself; here with a stand-in of the same interface."""

    cache = mock.Mock()
    drafted_by_it = SimpleNamespace(token_ids=[5, 6, 7], parents=[-1, 0, 0], probs=[0.5, 0.25, 0.125])
    cache.return_value.speculate.return_value = drafted_by_it
    module = SimpleNamespace(SuffixDecodingCache=cache)
    monkeypatch.setitem(sys.modules, "arctic_inference", SimpleNamespace(suffix_decoding=module))
    monkeypatch.setitem(sys.modules, "arctic_inference.suffix_decoding", module)
    assert scores(drafted(ArcticSuffix(), [1], [2])) == {(5,): 0.5, (5, 6): 0.25, (5, 7): 0.125}


@settings(max_examples=40, deadline=None)
@given(TOKENS, st.integers(1, 2), st.integers(1, 3), st.integers(1, 4))
def test_a_contexts_share_is_what_brute_force_counts(text: list[int], q: int, w: int, k: int) -> None:
    suffix = text[-q:]
    starts = [at + q for at in range(len(text) - q - w + 1) if text[at : at + q] == suffix]
    tree = drafted(ContextNgrams(q=q, w=w, k=k), [], text)
    for path, prob in scores(tree).items():
        agree = sum(text[start : start + len(path)] == list(path) for start in starts)
        assert prob == pytest.approx(agree / (len(starts) + 1))
