"""The passages of every question of the docs_* data sets, from search and reranking."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from typer import Argument

from ngram_trie.bench.records import RunManifest
from ngram_trie.cli.app import run
from ngram_trie.cli.overrides import layered
from ngram_trie.data.docs.corpus import FOLDER, documentation, write_passages
from ngram_trie.data.docs.tasks import RETRIEVED, entries
from ngram_trie.data.retrieval.recall import recall_table
from ngram_trie.data.retrieval.reranking import read_lines
from ngram_trie.store.files import PROJECT, write_atomically
from scripts import build_index, retrieve

#: 146 passages a list; 48 bytes a vector of 384 dimensions.
SETTINGS = (
    "corpus=docs", "encoder=minilm", "reranker=late_interaction", "index='IVF128,PQ48'", "chunk=256",
    "shard_size=1024", "match=title", "flat=false",
)  # fmt: skip


def main(
    output: Annotated[Path, Argument(help="folder for recall.csv and its manifest")] = PROJECT
    / "results/retrieval/docs",
) -> None:
    """Encode all passages, index them, search for every question, rerank, and keep the ids of the best five.

    Takes half an hour on one core; the same command resumes an interrupted run. Writes data/docs/retrieved.json: ids
    and scores, and the identity of the texts. An answer counts as found where a passage of the question's symbol is.

        python -m scripts.retrieve_docs
    """
    docs = documentation()
    write_passages(docs)
    asked = [entry for task in entries().values() for entry in task if entry.ask]
    rows = [{"id": entry.id, "question": entry.ask, "answers": [entry.symbol]} for entry in asked]
    questions = FOLDER / "questions.jsonl"
    write_atomically(questions, "".join(json.dumps(row) + "\n" for row in rows))
    local = FOLDER / f"retrieval-{docs.hash}"
    places = [f"folder={local / 'index'}", f"questions.path={questions}", f"output={local / 'found'}"]
    config = layered([*SETTINGS, *places], "retrieval")
    build_index.build(config)
    found = retrieve.retrieve(config)

    kept: dict[str, Any] = {
        line["id"]: [[passage["id"], passage["score"]] for passage in line["passages"]]
        for line in read_lines(found / "contexts.jsonl")
    }
    write_retrieved({"corpus": docs.hash, "packages": docs.versions, "passages": kept})
    output.mkdir(parents=True, exist_ok=True)
    recall(read_lines(found / "places.jsonl"), (config.keep, config.top)).to_csv(output / "recall.csv", index=False)
    manifest = RunManifest.read(found / "manifest.json")
    texts = {"corpus": docs.hash, "passages": str(len(docs.passages)), "packages": json.dumps(docs.versions)}
    replace(manifest, environment={**manifest.environment, **texts}).write(output / "recall_manifest.json")
    print(f"{RETRIEVED}: {len(kept)} questions; recall in {output}")


def recall(places: list[dict[str, Any]], cuts: tuple[int, ...]) -> pd.DataFrame:
    """The recall of each task's questions, warm-up left out."""
    tables = []
    for task, listed in entries().items():
        ids = {entry.id for entry in listed[:-2]}
        if mine := [row for row in places if row["id"] in ids]:
            table = recall_table(mine, cuts)
            table.insert(0, "task", task)
            tables.append(table)
    return pd.concat(tables)


def write_retrieved(found: dict[str, Any], path: Path = RETRIEVED) -> None:
    """One question a line, so that changes can be read."""
    lines = [f"  {json.dumps(id)}: {json.dumps(passages)}" for id, passages in found["passages"].items()]
    head = json.dumps({name: value for name, value in found.items() if name != "passages"}, indent=1)
    write_atomically(path, head[:-2] + ',\n "passages": {\n' + ",\n".join(lines) + "\n }\n}\n")


if __name__ == "__main__":
    run(main)
