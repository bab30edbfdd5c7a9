"""Scores of a question's candidates: a cross-encoder as the paper has it, late interaction for want of one, or none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch

from ngram_trie.data.retrieval.encoders import load_sentence_transformer
from ngram_trie.data.retrieval.models import flag_embedding, loading, minilm, quiet, snapshot
from ngram_trie.data.retrieval.xlm_roberta import PairScores
from ngram_trie.store.files import fingerprint


class Reranker(ABC):
    """Attributes:
    identity: what decides the scores: class, weights and settings.
    library: what computes them, where that may be one or another.
    """

    identity: str
    library: str = ""

    @abstractmethod
    def scores(self, question: str, passages: list[str]) -> np.ndarray:
        """(k,) float32, one for each passage; more is better."""


class KeepOrder(Reranker):
    """No reranking: a passage's score is minus its place in the search."""

    identity = "none"

    def scores(self, question: str, passages: list[str]) -> np.ndarray:
        return -np.arange(len(passages), dtype=np.float32)


class CrossEncoder(Reranker):
    """bge-reranker-v2-m3 or another cross-encoder that FlagEmbedding's FlagReranker reads, or `xlm_roberta` where that
    does not import; its scores are logits.

    Args:
        path: hub id, or a folder with a snapshot of it.
        revision: of the hub's repository.
        batch_size: pairs a forward.
        max_length: tokens of question and passage together, after which the passage is cut.

    Raises:
        FileNotFoundError: no weights; the message says what to do.
    """

    def __init__(self, path: str, revision: str | None = None, batch_size: int = 64, max_length: int = 512) -> None:
        folder = snapshot(path, revision, "reranker.path")
        self.identity = f"cross_encoder {fingerprint(str(folder))} {max_length}"
        if not (folder / "config.json").exists():
            raise FileNotFoundError(f"reranker.path={folder}: no config.json; it is not a snapshot of a cross-encoder")
        package, self.library = flag_embedding()
        self._options: dict[str, Any] = {"batch_size": batch_size, "max_length": max_length}
        with loading(folder, "reranker.path"):
            made = package.FlagReranker if package else PairScores
            self._model = made(str(folder), use_fp16=torch.cuda.is_available())

    def scores(self, question: str, passages: list[str]) -> np.ndarray:
        pairs = [(question, passage) for passage in passages]
        with quiet():
            return np.asarray(self._model.compute_score(pairs, **self._options), np.float32).reshape(len(pairs))


class LateInteraction(Reranker):
    """MaxSim over the token vectors of a sentence encoder: the mean over the question's tokens of the largest cosine to
    any token of the passage (Khattab & Zaharia 2020, section 3.3).

    ColBERT trains its encoder for this score. MiniLM is trained for the mean of its token vectors, so it is a reranker
    for machines that have no cross-encoder, not a reproduction of ColBERT.

    Args:
        path: folder of sentence-transformers or hub id; None for MiniLM as in `encoders.SentenceEncoder`.
        revision: of the hub's repository.
        batch_size: texts a forward.
        dtype: "float32", or "bfloat16": twice as fast where the processor has it. Vectors are kept in half precision.
        keep: passages whose token vectors are kept for other questions; 10,000 of 150 tokens take 1.2 GB for MiniLM.

    Raises:
        FileNotFoundError: no weights; the message says what to do.
        ValueError: another dtype.
    """

    def __init__(
        self,
        path: str | None = None,
        revision: str | None = None,
        batch_size: int = 64,
        dtype: str = "float32",
        keep: int = 10_000,
    ) -> None:
        if dtype not in ("float32", "bfloat16"):
            raise ValueError(f"reranker.dtype={dtype}: must be float32 or bfloat16")
        folder = snapshot(path or minilm("reranker.path"), revision, "reranker.path")
        self.identity = f"late_interaction {fingerprint(str(folder))} {dtype}"
        self._model = load_sentence_transformer(folder, "reranker.path", dtype)
        self._batch_size, self._keep = batch_size, keep
        self._kept: dict[str, torch.Tensor] = {}

    def scores(self, question: str, passages: list[str]) -> np.ndarray:
        from sentence_transformers.util import maxsim

        if len(self._kept) > self._keep:
            self._kept.clear()
        new = [passage for passage in dict.fromkeys(passages) if passage not in self._kept]
        self._kept.update(zip(new, self._token_vectors(new), strict=True))
        found = [self._kept[passage].float() for passage in passages]
        query = self._token_vectors([question])[0].float()
        return np.asarray(maxsim([query], found, length_normalize=True)[0], np.float32)

    def _token_vectors(self, texts: list[str]) -> list[torch.Tensor]:
        """Unit vectors of each text's tokens, half precision, (tokens, d). The first and the last token are special:
        no words.
        """
        if not texts:
            return []
        vectors = self._model.encode(
            texts, output_value="token_embeddings", batch_size=self._batch_size, show_progress_bar=False
        )
        return [torch.nn.functional.normalize(vector[1:-1].cpu().float(), dim=-1).half() for vector in vectors]
