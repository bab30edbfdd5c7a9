"""Answers that others recorded as text, as token ids for replay (engine=replay engine.traces=FILE).

Two kinds of files, of which none comes with the project:

- `longbench`: a copy of LongBench's repository with predictions (github viridisGreen/LongBench, eaae805: greedy, by
  Llama-3-8B-Instruct), and the data set's rows (github Zefan-Cai/KVCache-Factory, data/LongBench). Prompts are made as
  that repository makes them.
- `tau_bench`: sessions of an agent with its tools (github benaspinall1/agent-project, ab0cd0d: Qwen3-4B-Instruct-2507,
  temperature 0.6). Every message of the assistant is an answer to all before it; the question is the task, so that
  intervals are over tasks.

Answers of which the tokenizer does not give the text back are left out and counted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from transformers import PreTrainedTokenizerBase

from ngram_trie.bench.traces import Trace, write_traces
from ngram_trie.cli.app import run
from ngram_trie.prompt import Prompt
from ngram_trie.store.lines import read_objects
from ngram_trie.targets.chat import render
from ngram_trie.targets.load import load_tokenizer


@dataclass(frozen=True)
class Recorded:
    """An answer as text: to a chat, and how many tokens it could have had, None where that is not known."""

    dataset: str
    question_id: str
    turn: int
    chat: list[dict[str, str]]
    answer: str
    most: int | None = None


def longbench(paths: list[Path], tokenizer: PreTrainedTokenizerBase) -> Iterator[Recorded]:
    """Of COPY/pred/MODEL/DATASET.jsonl and of the data set's rows, in their order.

    Raises:
        ValueError: the two do not belong together.
    """
    predicted, rows = paths
    settings = predicted.absolute().parents[2] / "config"
    model, dataset = predicted.parent.name, predicted.stem
    text, most, longest = (
        json.loads((settings / name).read_text(encoding="utf-8"))[key]
        for name, key in (
            ("dataset2prompt.json", dataset),
            ("dataset2maxlen.json", dataset),
            ("model2maxlen.json", model),
        )
    )
    nothing: tuple[int, dict[str, Any]] = (0, {})
    for (number, answer), (_, row) in itertools.zip_longest(
        read_objects(predicted), read_objects(rows), fillvalue=nothing
    ):
        if "pred" not in answer or answer.get("answers") != row.get("answers"):
            raise ValueError(f"{predicted}:{number}: not an answer to the question in the same line of {rows}")
        prompt = text.format(**row)
        ids = tokenizer(prompt).input_ids
        if len(ids) > longest:  # the middle is left out
            half = longest // 2
            prompt = "".join(tokenizer.decode(part, skip_special_tokens=True) for part in (ids[:half], ids[-half:]))
        yield Recorded(dataset, str(number), 0, [{"role": "user", "content": prompt}], answer["pred"], most)


def tau_bench(paths: list[Path], tokenizer: PreTrainedTokenizerBase) -> Iterator[Recorded]:
    """Of files DOMAIN/AGENT/SIZE/*.json or folders of them, each a list of sessions; messages without text are not
    answers.
    """
    turns: dict[tuple[str, str], int] = {}
    for path in itertools.chain(*(sorted(each.rglob("*.json")) if each.is_dir() else [each] for each in paths)):
        sessions = json.loads(path.read_text(encoding="utf-8"))
        domain = path.absolute().parents[2].name
        for session in sessions:
            chat: list[dict[str, str]] = []
            for message in session["traj"]:
                text = message.get("content") or ""
                if message["role"] == "assistant" and text and chat:
                    task = domain, str(session["task_id"])
                    turns[task] = turns.get(task, -1) + 1
                    yield Recorded(*task, turns[task], [*chat], text)
                chat.append({"role": message["role"], "content": text})


KINDS = {"longbench": longbench, "tau_bench": tau_bench}


def trace_of(recorded: Recorded, tokenizer: PreTrainedTokenizerBase, model: str) -> Trace | None:
    """The answer as token ids, with the token that ended it; None where the tokenizer does not give its text back."""
    prompt = render(tokenizer, recorded.chat, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(prompt, add_special_tokens=False).input_ids
    output = tokenizer(recorded.answer, add_special_tokens=False).input_ids
    if tokenizer.decode(output) != recorded.answer or not output:
        return None
    most = recorded.most or len(output) + 1
    if len(output) < most:
        output.append(tokenizer.eos_token_id)
    about = recorded.dataset, recorded.question_id, recorded.turn
    return Trace(model, Prompt(np.array(ids, np.int64), {}, *about), output[:most], most)


def main(
    kind: Annotated[Literal["longbench", "tau_bench"], typer.Argument(help="longbench or tau_bench")],
    paths: Annotated[
        list[Path],
        typer.Argument(help="longbench: COPY/pred/MODEL/DATASET.jsonl and the rows; tau_bench: files or folders"),
    ],
    tokenizer: Annotated[str, typer.Option(help="of the model that answered: a folder or hub id")],
    output: Annotated[Path, typer.Option(help="the file of token ids")],
    model: Annotated[str, typer.Option(help="its name, with how it decoded unless greedily")] = "recorded",
    parity: Annotated[Literal["odd", "even"] | None, typer.Option(help="questions with such numbers alone")] = None,
) -> None:
    """Turn answers that others recorded as text into token ids for replay.

    python -m scripts.import_answers tau_bench FILE --tokenizer T --output FILE

    `make reproduce-recordings TRACES=FILE TOKENIZER=FOLDER` does that and replays them.
    """
    if kind == "longbench" and len(paths) != 2:
        raise ValueError("longbench: give two files, the predictions and the data set's rows")
    loaded = load_tokenizer(tokenizer)
    traces, left_out = [], 0
    for recorded in KINDS[kind](paths, loaded):
        if parity is None or int(recorded.question_id) % 2 == (parity == "odd"):
            trace = trace_of(recorded, loaded, model)
            traces += [trace] if trace else []
            left_out += trace is None
    output.parent.mkdir(parents=True, exist_ok=True)
    write_traces(output, traces)
    lengths = sum(len(trace.output_ids) for trace in traces)
    print(f"{output}: {len(traces)} answers, {lengths} tokens; {left_out} left out: not the same text again")


if __name__ == "__main__":
    run(main, "nothing was written")
