"""Recorded answers of a tiny network, to be forced upon it."""

from __future__ import annotations

import numpy as np

from ngram_trie.bench.records import RunManifest
from ngram_trie.bench.traces import Trace
from ngram_trie.prompt import Prompt

MANIFEST = RunManifest("run", {}, "model", "prompts", None, None, "a toy", 1, {}, "now")
TINY = {
    "model_type": "llama", "vocab_size": 200, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 300, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip


def traces() -> list[Trace]:
    """Two answers that quote their prompts, and one that is too long for the model."""
    rng = np.random.default_rng(0)
    made = []
    for number, length in enumerate((60, 80, 290)):
        ids = rng.integers(3, 200, length)
        made.append(Trace("another model", Prompt(ids, {}, "rag", str(number)), [*ids[20:50].tolist(), 2]))
    return made
