"""Train the draft model of speculative sampling (SpS) from nothing: `make train-draft-model`.

The same script and text world as the embedded model's, at a fifth of its size.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ngram_trie.config import PROJECT
from scripts.train_embedded import TrainConfig, train

CONFIG = TrainConfig(
    hidden_size=128,
    intermediate_size=256,
    num_layers=2,
    num_heads=2,
    num_steps=2600,
    decay_steps=2200,
    decay_fraction=0.6,
    alike_steps=2200,
    short_steps=400,
    grow_steps=600,
    prompt_steps=1300,
)

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT / "results" / "local" / "draft_model"
    print(f"training into {folder}; started again, it goes on from its last checkpoint (every 200 steps)", flush=True)
    train(CONFIG, folder)
    print(f"done. To ship it, copy all but checkpoint.pt and the log from {folder} to data/embedded/draft_model.")
