"""Recording a model's greedy answers: they do not depend on the drafter, so a fast one records them."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from pathlib import Path

from tqdm import tqdm

from ngram_trie.bench.config import check_beside
from ngram_trie.bench.live import Live, eos_ids
from ngram_trie.bench.prepare import prepare
from ngram_trie.bench.records import ItemKey
from ngram_trie.bench.schemas import Run
from ngram_trie.bench.traces import Trace, read_traces
from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.decoding import PromptTooLong, SpeculativeDecoder
from ngram_trie.drafter import Drafter
from ngram_trie.methods import ConfigError
from ngram_trie.prompt import LaterTurn
from ngram_trie.store.files import drop_torn_line, one_writer


def main(run: Run) -> Path:
    """Append the answers that the file does not have yet; a turn follows the answers to those before it. Returns the
    file.

    Raises:
        ConfigError: no file, a method or an engine that records nothing, or a setting of other commands.
        ValueError: the file holds answers of another model or to other prompts.
    """
    check_beside(run, "record")
    if not run.output:
        raise ConfigError("output: give the file to write, output=FILE.jsonl")
    engine = prepare(run)
    if not isinstance(engine, Live):
        raise ConfigError(f"engine={run.engine.name}: answers are recorded with engine=live")
    drafter = engine.methods[[run.method.name, *run.methods][-1]]
    if not isinstance(drafter, Drafter) or drafter.traits.own_model:
        raise ConfigError(f"method={run.method.name}: give a drafter for the run's own model, such as method=blend")
    path = Path(run.output)
    with ExitStack() as held:
        held.callback(one_writer(path.parent, path.name).release)
        answered: dict[ItemKey, Trace] = {}
        if path.exists():
            drop_torn_line(path)
            answered = {trace.key: trace for trace in read_traces(path)}
        file = held.enter_context(path.open("a", encoding="utf-8"))
        bar = held.enter_context(tqdm(total=len(engine.items), initial=len(answered), unit="answer"))
        target = engine.load(None, None)
        stop, decoder = engine.stop.also(eos_ids(target.model)), SpeculativeDecoder(target, drafter)
        for key, item in engine.items.items():
            if isinstance(item, LaterTurn):
                earlier = [answered.get(key._replace(turn=turn)) for turn in range(item.turn)]
                if None in earlier:  # too long, so there is nothing to go on from
                    continue
                prompt = item.build([trace.output_ids for trace in earlier if trace])
            else:
                prompt = item
            room = min(stop.max_new_tokens, target.context_limit - len(prompt.ids))
            if known := answered.get(key):
                if known.model != engine.model or known.prompt.ids.tolist() != prompt.ids.tolist():
                    raise ValueError(f"{path} holds answers of another model or to other prompts: give another file")
                if known.max_output_tokens != room:
                    most = known.max_output_tokens
                    raise ValueError(f"{path} holds answers of at most {most} tokens, not {room}: give another file")
                continue
            try:
                result = decoder.generate(prompt, stop)
            except PromptTooLong:
                continue
            answered[key] = Trace(engine.model, prompt, result.output_ids, room, result.stop_reason)
            file.write(answered[key].to_json() + "\n")
            file.flush()
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
