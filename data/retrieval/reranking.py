"""Questions to the passages they are answered from: search, rerank, keep the best. Resumable, line by line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ngram_trie.data.retrieval.corpus import Corpus
from ngram_trie.data.retrieval.questions import Asked
from ngram_trie.data.retrieval.recall import first_hit
from ngram_trie.data.retrieval.rerankers import KeepOrder, Reranker
from ngram_trie.store.files import drop_torn_line, replacing
from ngram_trie.store.lines import read_objects


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What an interrupted run has written, without a torn last line."""
    if not path.exists():
        return []
    drop_torn_line(path)
    return [row for _, row in read_objects(path)]


def search_all(path: Path, searchers: dict[str, Any], queries: np.ndarray, top: int) -> dict[str, np.ndarray]:
    """Row numbers of the `top` passages of every question, (q, top) by search; read from `path` if they are there."""
    if not path.exists():
        found = {}
        for name, searcher in searchers.items():
            print(f"search: {name}, {len(queries)} questions", flush=True)
            found[name] = searcher.search(queries, top)
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, **found)
    with np.load(path, allow_pickle=False) as found:
        return dict(found)


def rerank(
    asked: Asked, candidates: dict[str, list[int]], corpus: Corpus, reranker: Reranker, keep: int, match: str = "text"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A line of contexts.jsonl and one of places.jsonl. Each passage is scored once, whichever search found it."""
    rows = list(dict.fromkeys(row for found in candidates.values() for row in found))
    passages = dict(zip(rows, corpus.passages(rows), strict=True))
    scores = reranker.scores(asked.question, [passages[row].content for row in rows])
    score = dict(zip(rows, scores.tolist(), strict=True))
    places: dict[str, Any] = {"id": asked.id}
    kept: list[int] = []
    for name, found in candidates.items():
        best = sorted(found, key=lambda row: -score[row])  # equal ones keep the order of the search
        for column, ranked in ((name, found), (f"{name} reranked", best)):
            if ranked is found or not isinstance(reranker, KeepOrder):
                places[column] = first_hit(
                    [getattr(passages[row], match) for row in ranked], asked.answers, whole=match == "title"
                )
        if name == "ivfpq":
            kept = best[:keep]
    context = {
        "id": asked.id,
        "question": asked.question,
        "answers": asked.answers,
        "passages": [vars(passages[row]) | {"score": round(score[row], 6)} for row in kept],
    }
    return context, places


def rerank_all(
    folder: Path,
    asked: Sequence[Asked],
    hits: Mapping[str, np.ndarray],
    corpus: Corpus,
    reranker: Reranker,
    keep: int,
    match: str = "text",
) -> list[dict[str, Any]]:
    """Write contexts.jsonl and places.jsonl to `folder`; returns the lines of the second.

    Args:
        hits: (q, top) row numbers by search, those below 0 empty.
        keep: passages of a question.
        match: "text", a passage answers that holds an answer; "title", one whose title is an answer.
    """
    one, other = (folder / name for name in ("contexts.jsonl", "places.jsonl"))
    contexts, places = read_lines(one), read_lines(other)
    # A kill between the two writes leaves the first file one line ahead: that question is written to the other alone.
    with one.open("a", encoding="utf-8") as first, other.open("a") as second:
        for number in tqdm(range(len(places), len(asked)), initial=len(places), total=len(asked), unit="question"):
            candidates = {name: [row for row in found[number].tolist() if row >= 0] for name, found in hits.items()}
            context, place = rerank(asked[number], candidates, corpus, reranker, keep, match)
            if number >= len(contexts):
                print(json.dumps(context, ensure_ascii=False), file=first, flush=True)
            print(json.dumps(place), file=second, flush=True)
            places.append(place)
    return places
