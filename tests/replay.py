"""Accept lengths of a drafter over a recorded greedy answer: just enough of a replay for the golden tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngram_trie.drafter import Drafter, Prompt
from ngram_trie.tree import DraftTree

SHARED = Path(__file__).resolve().parents[2] / "shared"
TRACES = SHARED / "traces" / "spec_bench.vicuna-7b-v1.3.jsonl"
PLD_RECORDED = SHARED / "traces" / "spec_bench.vicuna-7b-v1.3.pld_recorded.jsonl"

#: What precedes an answer in the Vicuna template: " ASSISTANT:".
NUM_TEMPLATE_TAIL = 5
#: "USER:" after a space, and directly after the previous turn's "</s>".
USERS = ([3148, 1001, 29901], [29958, 11889, 29901])


def matched_tokens(tree: DraftTree, continuation: Sequence[int]) -> int:
    """Depth of the deepest node whose path spells the beginning of `continuation`."""
    best = 0
    spelt = {0}
    for node in range(1, len(tree)):
        depth = int(tree.depths[node])
        on_path = int(tree.parents[node]) in spelt and depth <= len(continuation)
        if on_path and tree.tokens[node] == continuation[depth - 1]:
            spelt.add(node)
            best = max(best, depth)
    return best


def accept_lengths(
    drafter: Drafter, prompt: Prompt, output: Sequence[int], budget: int = 10**6, prefill_drafts: bool = False
) -> list[int]:
    """Tokens emitted by each step, cut at the end of the output.

    Prefill emits output[0] and is no step; with `prefill_drafts`, as in Spec-Bench's prompt lookup, a draft made from
    the prompt alone is verified along with it, and that counts as the first step.
    """
    drafter.start(prompt)
    done, lengths = 0, []
    if not prefill_drafts:
        drafter.observe(output[:1])
        done = 1
    while done < len(output):
        matched = matched_tokens(drafter.propose(budget), output[done:])
        lengths.append(min(matched + 1, len(output) - done))
        drafter.observe(output[done : done + lengths[-1]])
        done += lengths[-1]
    return lengths


@dataclass(frozen=True)
class Recorded:
    """One recorded turn."""

    category: str
    prompt: Prompt
    output: list[int]
    prompt_text: str
    text: str


def recorded_turns(categories: Iterable[str] | None = None) -> Iterator[Recorded]:
    """The turns of `TRACES`; the span "user" is the last user turn without the template."""
    for row in read_jsonl(TRACES):
        if categories is None or row["category"] in categories:
            ids = row["prompt_token_ids"]
            end = len(ids) - NUM_TEMPLATE_TAIL
            start = next(at + 3 for at in range(end, -1, -1) if ids[at : at + 3] in USERS)
            prompt = Prompt(
                np.array(ids, np.int64), {"user": (start, end)}, "spec_bench", str(row["question_id"]), row["turn"]
            )
            yield Recorded(row["category"], prompt, row["output_token_ids"], row["prompt"], row["output"])


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
