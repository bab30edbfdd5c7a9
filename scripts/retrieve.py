"""Find the passages for each question: search, rerank, keep the best; count how often they hold the answer.

  python -m scripts.retrieve questions.limit=82                            TriviaQA over Wikipedia, as in the paper
  python -m scripts.retrieve corpus=file corpus.path=FILE encoder=minilm reranker=late_interaction questions.path=FILE

Give the same corpus, encoder, index, train_size and seed as to scripts.build_index. Writes to output=FOLDER, line by
line (the same command resumes an interrupted run): contexts.jsonl, each question with its passages from IVF-PQ;
places.jsonl, the rank of the first passage with an answer in each search; then recall.csv and a manifest, which hold
only numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import torch
from omegaconf import DictConfig, OmegaConf

from ngram_trie import methods
from ngram_trie.bench import config as configuration
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.bench.records import RunManifest
from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.data.retrieval import index
from ngram_trie.data.retrieval.corpus import Corpus
from ngram_trie.data.retrieval.encoders import Encoder
from ngram_trie.data.retrieval.questions import Asked
from ngram_trie.data.retrieval.recall import recall_table
from ngram_trie.data.retrieval.rerankers import Reranker
from ngram_trie.data.retrieval.reranking import rerank_all, search_all
from ngram_trie.store.files import content_hash
from scripts.build_index import vectors_of


def manifest_of(
    config: DictConfig, asked: list[Asked], corpus: Corpus, encoder: Encoder, reranker: Reranker
) -> RunManifest:
    """What decides the result: without where files lie, and with the identity of what is in them."""
    identities = (encoder.identity, reranker.identity, corpus.fingerprint())
    libraries = {name: part.library for name, part in (("encoder", encoder), ("reranker", reranker)) if part.library}
    resolved: dict[str, Any] = configuration.relative(OmegaConf.to_container(config, resolve=True))
    for name in ("output", "force", "folder"):
        del resolved[name]
    for part in ("corpus", "questions", "encoder", "reranker"):
        if resolved[part].get("path"):
            resolved[part]["path"] = Path(resolved[part]["path"]).name
    return make_manifest(
        resolved,
        ", ".join(identities),
        content_hash([vars(question) for question in asked]),
        torch.device("cuda" if torch.cuda.is_available() else "cpu"),
        {"faiss": faiss.__version__} | libraries,
    )


def retrieve(config: DictConfig) -> Path:
    """Everything one config asks for; returns the output folder."""
    if config.match not in ("text", "title"):
        raise methods.ConfigError(f"match={config.match}: must be text or title")
    asked = methods.build(config.questions, "questions")
    corpus, encoder = index.parts_of(config)
    folder, vectors = vectors_of(config, corpus, encoder)
    searchers: dict[str, Any] = {"ivfpq": index.Approximate(index.file_of(folder, config), config.nprobe)}
    if config.flat:
        searchers["flat"] = index.Exact(vectors)
    reranker = methods.build(config.reranker, "reranker")
    manifest = manifest_of(config, asked, corpus, encoder, reranker)

    own = "passages" if config.questions.path else "triviaqa"
    output = Path(config.output or configuration.PROJECT / "results" / "local" / own)
    output.mkdir(parents=True, exist_ok=True)
    about = output / "manifest.json"
    if config.force:
        for name in (about.name, "hits.npz", "contexts.jsonl", "places.jsonl"):
            (output / name).unlink(missing_ok=True)
    if not about.exists():
        manifest.write(about)
    elif (found := RunManifest.read(about).run) != manifest.run:
        raise FileExistsError(
            f"{output} holds another run ({found} there, {manifest.run} here): give another output=FOLDER, or "
            "force=true to replace it"
        )

    queries = encoder.encode_queries([question.question for question in asked])
    hits = search_all(output / "hits.npz", searchers, queries, min(config.top, len(corpus)))
    places = rerank_all(output, asked, hits, corpus, reranker, config.keep, config.match)
    table = recall_table(places, (config.keep, config.top))
    table.to_csv(output / "recall.csv", index=False)
    print(table.to_string(index=False))
    print(f"contexts in {output}")
    return output


if __name__ == "__main__":
    hydra_app(retrieve, __doc__, "retrieval")
