"""Questions to the passages they are answered from: search, rerank, keep the best; and how often the answer is there.

  python -m scripts.retrieve                                               TriviaQA over Wikipedia
  python -m scripts.retrieve corpus=file corpus.path=FILE encoder=minilm reranker=late_interaction questions.path=FILE

Give corpus and encoder as to scripts.build_index. Writes to output=FOLDER, line by line (a run that was cut short goes
on): contexts.jsonl, each question with its passages from IVF-PQ; places.jsonl, at which place each search finds the
first answer; then recall.csv and a manifest, which hold numbers only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pandas as pd
import torch
from omegaconf import DictConfig, OmegaConf
from scipy.stats import binomtest
from tqdm import tqdm

from ngram_trie import config as configuration
from ngram_trie.cli import shell
from ngram_trie.data.retrieval import index, vectors
from ngram_trie.data.retrieval.corpus import Corpus
from ngram_trie.data.retrieval.questions import Asked
from ngram_trie.data.retrieval.recall import first_hit
from ngram_trie.data.retrieval.rerankers import KeepOrder, Reranker, order
from ngram_trie.engines.provenance import device_manifest
from ngram_trie.files import content_hash, drop_torn_line, replacing
from ngram_trie.records import RunManifest
from scripts.build_index import folder_of, parts_of


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What an interrupted run has written, without a torn last line."""
    if not path.exists():
        return []
    drop_torn_line(path)
    # Not splitlines: passages may hold other line ends (U+2028) than the file's own.
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def search_all(path: Path, searchers: dict[str, Any], queries: np.ndarray, top: int) -> dict[str, np.ndarray]:
    """Row numbers of the `top` passages of every question, (q, top) by search; read from `path` if they are there."""
    if not path.exists():
        found = {}
        for name, searcher in searchers.items():
            print(f"search: {name}, {len(queries)} questions", flush=True)
            found[name] = searcher.search(queries, top)[1]
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, **found)
    with np.load(path, allow_pickle=False) as found:
        return dict(found)


def rerank(
    asked: Asked, candidates: dict[str, list[int]], corpus: Corpus, reranker: Reranker, keep: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A line of contexts.jsonl and one of places.jsonl. Each passage is scored once, whichever search found it."""
    rows = list(dict.fromkeys(row for found in candidates.values() for row in found))
    passages = dict(zip(rows, corpus.passages(rows), strict=True))
    scores = reranker.scores(asked.question, [passages[row].content for row in rows])
    score = dict(zip(rows, scores.tolist(), strict=True))
    places: dict[str, Any] = {"id": asked.id}
    kept: list[int] = []
    for name, found in candidates.items():
        best = [found[i] for i in order(np.array([score[row] for row in found]))]
        for column, ranked in ((name, found), (f"{name} reranked", best)):
            if ranked is found or not isinstance(reranker, KeepOrder):
                places[column] = first_hit([passages[row].text for row in ranked], asked.answers)
        if name == "ivfpq":
            kept = best[:keep]
    context = {
        "id": asked.id,
        "question": asked.question,
        "answers": asked.answers,
        "passages": [vars(passages[row]) | {"score": round(score[row], 6)} for row in kept],
    }
    return context, places


def recall_table(places: list[dict[str, Any]], cuts: tuple[int, ...]) -> pd.DataFrame:
    """Share of questions with an answer among the first k passages, with its 95% interval (Wilson)."""
    lines = []
    for column in [name for name in places[0] if name != "id"]:
        search, _, reranked = column.partition(" ")
        for k in cuts:
            hits = sum(row[column] is not None and row[column] <= k for row in places)
            interval = binomtest(hits, len(places)).proportion_ci(method="wilson")
            recall = {"recall": hits / len(places), "low": interval.low, "high": interval.high}
            lines.append(
                {"search": search, "reranked": bool(reranked), "k": k, "questions": len(places), "found": hits}
                | {name: round(value, 4) for name, value in recall.items()}
            )
    return pd.DataFrame(lines)


def manifest_of(config: DictConfig, asked: list[Asked], *identities: str) -> RunManifest:
    """What decides the result: without where files lie, and with the identity of what is in them."""
    resolved: dict[str, Any] = configuration.relative(OmegaConf.to_container(config, resolve=True))
    for name in ("output", "force", "folder"):
        del resolved[name]
    for part in ("corpus", "questions", "encoder", "reranker"):
        if resolved[part].get("path"):
            resolved[part]["path"] = Path(resolved[part]["path"]).name
    return device_manifest(
        resolved,
        ", ".join(identities),
        content_hash([vars(question) for question in asked]),
        torch.device("cuda" if torch.cuda.is_available() else "cpu"),
        {"faiss": faiss.__version__},
    )


def retrieve(config: DictConfig) -> Path:
    """Everything one config asks for; returns the output folder."""
    asked = configuration.build(config.questions, "questions")
    folder = folder_of(config)
    searchers: dict[str, Any] = {"ivfpq": index.IvfPq(folder / "ivfpq", config.nprobe)}
    settings, corpus, encoder = parts_of(config)
    store = vectors.VectorStore.open(folder / "vectors")
    header = json.loads((folder / "vectors" / "header.json").read_text(encoding="utf-8"))
    mine = header | {"corpus": corpus.fingerprint(), "encoder": encoder.identity}
    vectors.claim(folder / "vectors", mine, "give the corpus and encoder that it was built with")
    built = json.loads((folder / "ivfpq" / "header.json").read_text(encoding="utf-8"))
    config.index = {name: built[name] for name in vars(settings)}  # what was built is what is searched
    if config.flat:
        searchers["flat"] = index.Flat(store)
    reranker = configuration.build(config.reranker, "reranker")
    manifest = manifest_of(config, asked, encoder.identity, reranker.identity, header["corpus"])

    output = Path(config.output or configuration.PROJECT / "results" / "local" / "triviaqa")
    output.mkdir(parents=True, exist_ok=True)
    files = {name: output / name for name in ("manifest.json", "hits.npz", "contexts.jsonl", "places.jsonl")}
    if config.force:
        for file in files.values():
            file.unlink(missing_ok=True)
    if files["manifest.json"].exists():
        if (found := RunManifest.read(files["manifest.json"]).run) != manifest.run:
            raise FileExistsError(
                f"{output} holds another run ({found} there, {manifest.run} here): give another output=FOLDER, or "
                "force=true to replace it"
            )
    else:
        manifest.write(files["manifest.json"])

    queries = encoder.encode_queries([question.question for question in asked])
    hits = search_all(files["hits.npz"], searchers, queries, min(config.top, len(corpus)))
    contexts, places = read_lines(files["contexts.jsonl"]), read_lines(files["places.jsonl"])
    # A kill between the two writes leaves the first file one line ahead: that question is written to the other alone.
    with files["contexts.jsonl"].open("a", encoding="utf-8") as first, files["places.jsonl"].open("a") as second:
        for number in tqdm(range(len(places), len(asked)), initial=len(places), total=len(asked), unit="question"):
            candidates = {name: [row for row in found[number].tolist() if row >= 0] for name, found in hits.items()}
            context, place = rerank(asked[number], candidates, corpus, reranker, config.keep)
            if number >= len(contexts):
                print(json.dumps(context, ensure_ascii=False), file=first, flush=True)
            print(json.dumps(place), file=second, flush=True)
            places.append(place)
    table = recall_table(places, (config.keep, config.top))
    table.to_csv(output / "recall.csv", index=False)
    print(table.to_string(index=False))
    print(f"contexts in {output}")
    return output


def cli() -> None:
    """What the shell calls."""
    shell.hydra_app(retrieve, __doc__, "retrieval")


if __name__ == "__main__":
    cli()
