"""BGE-M3's dense vectors and its reranker's scores as FlagEmbedding computes them, through transformers alone: for a
transformers that FlagEmbedding does not import with. On one GPU, in half precision, or on the processor.

FlagEmbedding runs the longest batch of every call twice, to see whether it fits, and has no option against it. Here a
batch that does not fit is made smaller when it turns out so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer


class _Batches:
    """A model and its tokenizer, of `folder`.

    Raises:
        ValueError: the folder lacks weights of the model.
    """

    def __init__(self, kind: Any, folder: str, use_fp16: bool) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        dtype = torch.float16 if use_fp16 else torch.float32
        model, info = kind.from_pretrained(folder, dtype=dtype, output_loading_info=True)
        # transformers fills what is missing with random numbers; the pooler is not used
        if missing := sorted(name for name in info["missing_keys"] if "pooler" not in name):
            raise ValueError(f"weights are missing: {', '.join(missing[:3])}")
        self.model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()

    @torch.inference_mode()
    def run(self, rows: Sequence[Sequence[int]], batch_size: int, result: Callable[[Any], torch.Tensor]) -> np.ndarray:
        """(n, ...) float32: what `result` makes of the model's output, in the order of `rows` of token ids, whose
        batches are of like length.
        """
        order = sorted(range(len(rows)), key=lambda number: -len(rows[number]))
        parts: list[np.ndarray] = []
        done = 0
        while done < len(order):
            batch = {"input_ids": [rows[number] for number in order[done : done + batch_size]]}
            inputs = self.tokenizer.pad(batch, return_tensors="pt").to(self.model.device)
            try:
                parts.append(result(self.model(**inputs)).float().cpu().numpy())
            except torch.cuda.OutOfMemoryError:
                if batch_size == 1:
                    raise
                batch_size = batch_size * 3 // 4
                continue
            done += len(parts[-1])
        return np.concatenate(parts)[np.argsort(order)]


class DenseVectors(_Batches):
    """BGEM3FlagModel's dense vectors."""

    def __init__(self, folder: str, use_fp16: bool) -> None:
        super().__init__(AutoModel, folder, use_fp16)

    def encode_corpus(self, texts: list[str], batch_size: int, max_length: int) -> dict[str, np.ndarray]:
        """ "dense_vecs": (n, d) float32, the unit vectors of the first tokens."""
        rows = self.tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]
        first = lambda output: torch.nn.functional.normalize(output.last_hidden_state[:, 0], dim=-1)  # noqa: E731
        return {"dense_vecs": self.run(rows, batch_size, first)}

    encode_queries = encode_corpus


class PairScores(_Batches):
    """FlagReranker's scores."""

    def __init__(self, folder: str, use_fp16: bool) -> None:
        super().__init__(AutoModelForSequenceClassification, folder, use_fp16)
        self.tokenizer.backend_tokenizer.no_truncation()  # a tokenizer.json may have some of its own

    def compute_score(self, pairs: list[tuple[str, str]], batch_size: int, max_length: int) -> np.ndarray:
        """(n,) float32 logits. A question is cut to three quarters of `max_length`, its passage to what that leaves."""
        backend = self.tokenizer.backend_tokenizer
        free = max_length - backend.num_special_tokens_to_add(is_pair=True)
        rows = []
        for pair in pairs:
            question, passage = (backend.encode(text, add_special_tokens=False) for text in pair)
            question.truncate(max_length * 3 // 4)
            passage.truncate(free - len(question))
            rows.append(backend.post_process(question, passage).ids)
        return self.run(rows, batch_size, lambda output: output.logits.view(-1))
