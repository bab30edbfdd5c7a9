"""Answers of a model written down one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ngram_trie.bench.live import Live
from ngram_trie.bench.traces import Trace
from ngram_trie.decoding import PromptTooLong, SpeculativeDecoder
from ngram_trie.prompt import LaterTurn


def record(
    engine: Live,
    decoder: SpeculativeDecoder,
    path: Path,
    known: Sequence[Trace],
) -> Iterator[Trace]:
    """Append the answers that are not `known` to the file of traces; a turn follows the answers to those before it.

    Raises:
        ValueError: the file holds answers of another model or to other prompts.
    """
    answered = {trace.key: trace for trace in known}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for key, item in engine.items.items():
            if isinstance(item, LaterTurn):
                earlier = [answered.get((*key[:2], turn)) for turn in range(item.turn)]
                if None in earlier:  # too long, so there is nothing to go on from
                    continue
                prompt = item.build([trace.output_ids for trace in earlier if trace])
            else:
                prompt = item
            if key in answered:
                if answered[key].model != engine.model or answered[key].prompt.ids.tolist() != prompt.ids.tolist():
                    raise ValueError(f"{path} holds answers of another model or to other prompts: give another file")
                continue
            try:
                result = decoder.generate(prompt, engine.stop)
            except PromptTooLong:
                continue
            room = min(engine.stop.max_new_tokens, decoder.target.context_limit - len(prompt.ids))
            answered[key] = Trace(engine.model, prompt, result.output_ids, room, result.stop_reason)
            file.write(answered[key].to_json() + "\n")
            file.flush()
            yield answered[key]
