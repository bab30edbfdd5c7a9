"""Recorded greedy answers: what a live run leaves for replay, and what other people recorded.

One JSON line a turn. Ours hold `model, dataset, question_id, turn, prompt_token_ids, output_token_ids, spans,
max_output_tokens, stop_reason`. Of others' lines the two lists of token ids, `question_id` and `category` (or
`dataset`) are enough; lines whose `token_count_matches` is false are left out.

Lines of SpecDecode-Bench (github SpecDecode-Bench/simulator, 2fdccbd) hold `id, prompt_token_ids, generated_token_ids`
and, for a drafter NAME, `acc_NAME.acc_len`: how many tokens the step emits that emits the answer's token of that
position, the first of which is prefill's. (Its simulator looks one position too far back.) Their data set is in the
file's name, combined_DATASET.jsonl. Answers that its run cut at 8,192 tokens, which are loops, are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ngram_trie.bench.records import ItemKey, item_key
from ngram_trie.prompt import Prompt, column_name, question_number
from ngram_trie.store.files import write_atomically
from ngram_trie.store.lines import is_token_ids, read_rows

#: Room for an answer of which nothing is known.
UNLIMITED = 2**31
#: An answer of SpecDecode-Bench that is so long was cut.
SPEC_DECODE_BENCH_LIMIT = 8192


@dataclass(frozen=True)
class Trace:
    """One turn as a model answered it greedily.

    Attributes:
        model: which model, in words.
        prompt: with its dataset (the category), question id and turn.
        output_ids: the answer, the token that ended it included.
        max_output_tokens: how long it could have become; decides how deep the last drafts may go.
        stop_reason: why it ended, as in `PromptRecord`.
        recorded: of drafters that were recorded with it, by name: how many tokens the step emits that emits the token
            of each position. A list of another length than the answer's belongs to another answer to the same prompt.
    """

    model: str
    prompt: Prompt
    output_ids: list[int]
    max_output_tokens: int = UNLIMITED
    stop_reason: str = "recorded_end"
    recorded: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def key(self) -> ItemKey:
        return item_key(self.prompt)

    @property
    def category(self) -> str:
        """What it is selected by, and tables call it."""
        return column_name(self.prompt.dataset, self.prompt.noise_kind)

    def drafted_in_prefill(self) -> Trace:
        """The same turn, for methods that draft from the prompt alone and verify that in the prefill, as Spec-Bench's
        prompt lookup does: prefill ends one token early, and what it did is the first step.
        """
        ids = self.prompt.ids[:-1]
        spans = {name: (min(start, len(ids)), min(end, len(ids))) for name, (start, end) in self.prompt.spans.items()}
        prompt = replace(self.prompt, ids=ids, spans=spans)
        output = [int(self.prompt.ids[-1]), *self.output_ids]
        most = self.max_output_tokens + 1
        return replace(self, prompt=prompt, output_ids=output, max_output_tokens=most, recorded={})

    def of_recording(self, name: str) -> Trace:
        """The turn as far as both the answer and what was recorded of the drafter `name` go."""
        return replace(self, output_ids=self.output_ids[: len(self.recorded[name])])

    def to_json(self) -> str:
        """A line of a file."""
        prompt = self.prompt
        row: dict[str, Any] = {
            "model": self.model,
            "dataset": prompt.dataset,
            "question_id": prompt.question_id,
            "turn": prompt.turn,
            "prompt_token_ids": prompt.ids.tolist(),
            "output_token_ids": self.output_ids,
            "spans": prompt.spans,
            "max_output_tokens": self.max_output_tokens,
            "stop_reason": self.stop_reason,
        }
        if len(prompt.noise):
            row["noise_token_ids"] = prompt.noise.tolist()
        if prompt.noise_kind:
            row["noise_kind"] = prompt.noise_kind
        if prompt.texts:
            row["released_token_ids"] = [text.tolist() for text in prompt.texts]
        return json.dumps(row, separators=(",", ":"))


def parse_trace(row: Any, path: Path | None = None) -> Trace | None:
    """The trace of one row, or None for one that says of itself that it is to be left out.

    Args:
        path: of its file, for rows that do not name their model and data set.

    Raises:
        ValueError: what is missing or wrong.
    """
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    if row.get("token_count_matches") is False:
        return None
    recorded: dict[str, Sequence[int]] = {}
    if path and "generated_token_ids" in row:
        about = {"model": path.parent.name, "dataset": path.stem.removeprefix("combined_")}
        row |= {**about, "question_id": row.get("id")}
        row["output_token_ids"] = row["generated_token_ids"]
        if len(_token_ids(row, "output_token_ids")) >= SPEC_DECODE_BENCH_LIMIT:
            return None
        recorded = {name[4:]: _accept_lengths(name, part) for name, part in row.items() if name.startswith("acc_")}
    prompt_ids, output_ids = (_token_ids(row, name) for name in ("prompt_token_ids", "output_token_ids"))
    noise_ids = _token_ids(row, "noise_token_ids") if row.get("noise_token_ids") else []
    texts = row.get("released_token_ids", [])
    if not isinstance(texts, list):
        raise ValueError("released_token_ids must be a list of lists of token ids")
    texts = [_token_ids({"released_token_ids": text}, "released_token_ids") for text in texts]
    if not prompt_ids:
        raise ValueError("prompt_token_ids is empty")
    dataset = row.get("dataset", row.get("category"))
    if not isinstance(dataset, str):
        raise ValueError("neither `dataset` nor `category` names what the question belongs to")
    if row.get("question_id") is None:
        raise ValueError("question_id is missing")
    turn, room = row.get("turn", 0), row.get("max_output_tokens", UNLIMITED)
    if type(turn) is not int or type(room) is not int or room < len(output_ids):
        raise ValueError("turn and max_output_tokens must be integers, the second no less than the output's length")
    spans = row.get("spans") or vicuna_spans(prompt_ids)
    if not isinstance(spans, dict) or not all(_is_span(span, len(prompt_ids)) for span in spans.values()):
        raise ValueError("spans must map names to [start, end) within the prompt")
    if "user" in spans:  # what the released code reads, unless the recording says otherwise
        spans = {"released": spans["user"], **spans}
    spans = {name: (start, end) for name, (start, end) in spans.items()}
    ids, noise, *arrays = (np.array(part, np.int64) for part in (prompt_ids, noise_ids, *texts))
    kind = str(row.get("noise_kind", ""))
    prompt = Prompt(ids, spans, dataset, str(row["question_id"]), turn, noise, texts=tuple(arrays), noise_kind=kind)
    model, reason = str(row.get("model", "unknown")), str(row.get("stop_reason") or "recorded_end")
    return Trace(model, prompt, output_ids, room, reason, recorded)


def _accept_lengths(name: str, part: Any) -> list[int]:
    lengths = part.get("acc_len") if isinstance(part, dict) else None
    if not isinstance(lengths, list) or not all(type(length) is int and length > 0 for length in lengths):
        raise ValueError(f"{name} must hold acc_len, a list of integers of at least 1")
    return lengths


def _token_ids(row: Mapping[str, Any], name: str) -> list[int]:
    ids: Any = row.get(name)
    if not is_token_ids(ids):
        raise ValueError(f"{name} {'is missing' if ids is None else 'must be a list of token ids'}")
    return list(ids)


def _is_span(span: Any, length: int) -> bool:
    is_pair = isinstance(span, list | tuple) and len(span) == 2 and all(type(end) is int for end in span)
    return is_pair and 0 <= span[0] <= span[1] <= length


# The Vicuna template in the Llama tokenizer: " ASSISTANT:" at the end, and "USER:" after a space or after "</s>".
_ASSISTANT = [319, 1799, 9047, 13566, 29901]
_USERS = ([3148, 1001, 29901], [29958, 11889, 29901], [11889, 29901])


def vicuna_spans(prompt_ids: list[int]) -> dict[str, tuple[int, int]]:
    """Where the last user turn lies in a prompt of Vicuna v1.1's template; nothing for any other prompt."""
    end = len(prompt_ids) - len(_ASSISTANT)
    if end < 0 or prompt_ids[end:] != _ASSISTANT:
        return {}
    for start in range(end, -1, -1):
        for user in _USERS:
            if prompt_ids[start : start + len(user)] == user:
                return {"user": (start + len(user), end)}
    return {}


def read_traces(path: Path) -> list[Trace]:
    """All traces of a file, or of all `trace_files` of a folder, in order.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line is no trace, or repeats a turn; the message names file, line and reason.
    """
    found: dict[ItemKey, Trace] = {}
    for file in trace_files(path):
        for number, row in read_rows(file):
            try:
                trace = parse_trace(row, file)
                if trace and trace.key in found:
                    raise ValueError(f"turn {tuple(trace.key)} was there before")
            except ValueError as error:
                raise ValueError(f"{file}:{number}: {error}") from None
            if trace:
                found[trace.key] = trace
    return list(found.values())


def trace_files(path: Path) -> list[Path]:
    """The file itself, or the .jsonl files in a folder and below it, by name.

    Raises:
        FileNotFoundError: there is none.
    """
    files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise FileNotFoundError(f"{path}: no such trace file; a live run writes traces.jsonl into its output folder")
    return files


def write_traces(path: Path, traces: Iterable[Trace]) -> None:
    """Write a trace file, in place of one that is there."""
    write_atomically(path, "".join(trace.to_json() + "\n" for trace in traces))


def select(
    traces: list[Trace], categories: list[str] | str | None, parity: str | None = None
) -> dict[str, list[Trace]]:
    """Category -> its traces, in order; all categories unless some are named. A named one may turn out empty.

    Args:
        parity: "odd" or "even" takes the questions with such a number, the last one in their id.

    Raises:
        ValueError: a parity is asked for, and an id has no number.
    """
    if parity:
        traces = [trace for trace in traces if question_number(trace.prompt.question_id) % 2 == (parity == "odd")]
    categories = [categories] if isinstance(categories, str) else categories
    groups: dict[str, list[Trace]] = {name: [] for name in categories or []}
    for trace in traces:
        if categories is None or trace.category in groups:
            groups.setdefault(trace.category, []).append(trace)
    return groups


def answers(path: Path) -> list[Trace]:
    """The traces whose answer has a step to replay.

    Raises:
        ValueError: there are none, or a line is no trace.
    """
    found = [trace for trace in read_traces(path) if len(trace.output_ids) > 1]
    if not found:
        raise ValueError(f"{path} holds no answers to replay")
    return found
