"""Recording a model's greedy answers: they do not depend on the drafter, so a fast one records them."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from pathlib import Path

from omegaconf import DictConfig
from tqdm import tqdm

from ngram_trie.bench.live import Live, eos_ids
from ngram_trie.bench.prepare import prepare
from ngram_trie.bench.recording import record as recorded
from ngram_trie.bench.traces import read_traces
from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.decoding import SpeculativeDecoder
from ngram_trie.drafter import Drafter
from ngram_trie.methods import ConfigError
from ngram_trie.store.files import drop_torn_line, one_writer


def main(config: DictConfig) -> Path:
    """Everything one configuration asks for; returns the file."""
    if not config.output:
        raise ConfigError("output: give the file to write, output=FILE.jsonl")
    engine = prepare(config)
    if not isinstance(engine, Live):
        raise ConfigError(f"engine={config.engine.name}: answers are recorded with engine=live")
    drafter = engine.methods[[config.method.name, *config.methods][-1]]
    if not isinstance(drafter, Drafter) or drafter.own_model:
        raise ConfigError(f"method={config.method.name}: give a drafter for the run's own model, such as method=blend")
    path = Path(config.output)
    with ExitStack() as files:
        files.callback(one_writer(path.parent, path.name).release)
        known = []
        if path.exists():
            drop_torn_line(path)
            known = read_traces(path)
        bar = files.enter_context(tqdm(total=len(engine.items), initial=len(known), unit="answer"))
        target = engine.load(None, None)
        engine.stop = engine.stop.also(eos_ids(target.model))
        for _ in recorded(engine, SpeculativeDecoder(target, drafter), path, known):
            bar.update()
    print(f"written: {path}")
    return path


def record() -> None:
    """Record a model's greedy answers for engine=replay. They do not depend on the drafter, so a fast one records them.

      ngram-trie record smollm2_135m docs_rag --limit 4 --output answers.jsonl
      ngram-trie record experiment=spec_bench model=smollm2_135m output=results/local/spec_bench.jsonl

    Each line of the file is one answer with its prompt. The same command resumes an interrupted recording. Nothing is
    timed.
    """
    hydra_app(main, inspect.getdoc(record), prog="ngram-trie record")
