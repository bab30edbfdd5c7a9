"""Recording a model's greedy answers: they do not depend on the drafter, so a fast one records them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from omegaconf import DictConfig
from tqdm import tqdm

from ngram_trie.cli.app import is_console
from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.config import ConfigError
from ngram_trie.decoding import SpeculativeDecoder
from ngram_trie.drafter import Drafter, check_int
from ngram_trie.engines.likely_file import LikelyFile, LikelyWriter, companion
from ngram_trie.engines.live import Live, eos_ids
from ngram_trie.engines.prepare import prepare
from ngram_trie.engines.recording import KeepsLikely
from ngram_trie.engines.recording import record as recorded
from ngram_trie.engines.traces import Trace, read_traces
from ngram_trie.files import drop_torn_line, one_writer


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
        check_alike(config.likely, path, known)
        bar = files.enter_context(tqdm(total=len(engine.items), initial=len(known), unit="answer"))
        target = engine.load(None, None)
        engine.stop = engine.stop.also(eos_ids(target.model))
        before = []
        if config.likely:
            check_int("likely", config.likely, 1, target.model.config.vocab_size)
            drafter = KeepsLikely(drafter, config.likely)
            rows = [trace.likely for trace in known if trace.likely]
            file = LikelyWriter(companion(path), config.likely, target.model.config.vocab_size, rows)
            files.callback(file.close)
            before = [partial(drafter.write, file)]
        for _ in recorded(engine, SpeculativeDecoder(target, drafter), path, known, *before):
            bar.update()
    print(f"written: {path}")
    return path


def check_alike(k: int | None, path: Path, known: Sequence[Trace]) -> None:
    """
    Raises:
        ConfigError: what the recording goes on with was recorded otherwise.
    """
    begun = LikelyFile.open(companion(path)).k if companion(path).exists() else None
    if (known or begun) and begun != k:
        asked, there = (f"likely={'null' if number is None else number}" for number in (k, begun))
        raise ConfigError(f"{asked}: {path} was begun with {there}: give {there}, or another file")


def record() -> None:
    """Record a model's greedy answers for engine=replay. They do not depend on the drafter, so a fast one records them.

      python -m scripts.record smollm2_135m docs_rag --limit 4 --output answers.jsonl
      python -m scripts.record experiment=spec_bench model=smollm2_135m output=results/local/spec_bench.jsonl
      python -m scripts.record dataset=rag likely=16 output=answers.jsonl

    Each line of the file is one answer with its prompt. The same command resumes an interrupted recording. Nothing is
    timed. With likely=16, answers.likely beside the file holds the 16 likeliest tokens at each place of prompt and
    answer, for methods that draft from them: 64 bytes per place, 96 for a vocabulary of more than 65,536 tokens.
    """
    hydra_app(main, inspect.getdoc(record), prog="ngram-trie record" if is_console() else "")
