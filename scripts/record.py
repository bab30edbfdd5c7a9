"""Record a model's greedy answers, for engine=replay: which drafter found them makes no difference, so a fast one does.

  python -m scripts.record experiment=spec_bench model=smollm2_135m output=results/local/smollm2-135m/spec_bench.jsonl
  python -m scripts.record dataset=rag model=local model.path=FILE output=answers.jsonl

The same command resumes an interrupted recording: a line is an answer. Nothing is timed. The file holds the prompts.
"""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig
from tqdm import tqdm

from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.config import ConfigError
from ngram_trie.decoding import SpeculativeDecoder
from ngram_trie.drafter import Drafter
from ngram_trie.engines.live import Live, eos_ids
from ngram_trie.engines.prepare import prepare
from ngram_trie.engines.recording import record
from ngram_trie.engines.traces import read_traces


def main(config: DictConfig) -> Path:
    """Everything one configuration asks for; returns the file."""
    if not config.output:
        raise ConfigError("output: give the file to write, output=FILE.jsonl")
    engine = prepare(config)
    if not isinstance(engine, Live):
        raise ConfigError(f"engine={config.engine.name}: answers are recorded with engine=live")
    drafter = engine.methods[config.method.name]
    if not isinstance(drafter, Drafter) or drafter.own_model:
        raise ConfigError(f"method={config.method.name}: give a drafter for the run's own model, such as method=blend")
    path = Path(config.output)
    known = read_traces(path) if path.exists() else []
    with tqdm(total=len(engine.items), initial=len(known), unit="answer") as bar:
        target = engine.load(None, None)
        engine.stop = engine.stop.also(eos_ids(target.model))
        for _ in record(engine, SpeculativeDecoder(target, drafter), path, known):
            bar.update()
    print(f"written: {path}")
    return path


if __name__ == "__main__":
    hydra_app(main, __doc__)
