"""What the paper's released code prints for Spec-Bench's two context tasks, and what it would print over all questions,
from recorded answers: results/paper/released_code.csv."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ngram_trie import metrics
from ngram_trie.drafters import ReleasedNgramTrieDrafter
from ngram_trie.engines.replay import replay
from ngram_trie.engines.traces import Trace
from ngram_trie.records import PromptRecord

#: The categories that the released script runs, by the name of their data set.
CATEGORIES = {"spec_bench_summarization": "summarization", "spec_bench_rag": "rag"}


def released_lists(traces: Sequence[Trace]) -> pd.DataFrame:
    """Replay `ngram_trie_released` as released (n 13, L_p 3, 64 nodes, the user's turn) and count as that code counts.

    Args:
        traces: answers to all questions of Spec-Bench's `summarization` and `rag`; others are passed over.

    Returns:
        One row for each of the two: model, dataset, `question_id` (the last one, which the code prints), and the means
        of its lists of accept lengths: `accept_length_last_question`; over all questions pooled
        (`accept_length_all_questions`) and as a mean of the questions' means (`accept_length_all_questions_macro`);
        `num_questions`.

    Raises:
        ValueError: a category without answers, or answers of several models.
    """
    drafter = ReleasedNgramTrieDrafter(context="released")
    rows = []
    for dataset, category in CATEGORIES.items():
        asked = sorted(
            (trace for trace in traces if trace.prompt.dataset == category), key=lambda t: int(t.prompt.question_id)
        )
        models = sorted({trace.model for trace in asked})
        if len(models) != 1:
            raise ValueError(f"{category}: needs the answers of one model, found {', '.join(models) or 'none'}")
        fields = {"run": "", "method": "", "model": models[0], "repeat": 0, "state": "cold", "kind": "drafter"}
        records = [PromptRecord.of(trace.prompt, replay(drafter, trace), **fields) for trace in asked]
        frame = metrics.to_frame(records)
        every, last = metrics.as_released_lists(frame), metrics.under_protocol(frame, "released")
        rows.append({
            "model": models[0],
            "dataset": dataset,
            "question_id": last.question_id.item(),
            "accept_length_last_question": metrics.accept_length(last),
            "accept_length_all_questions": metrics.accept_length(every),
            "accept_length_all_questions_macro": metrics.accept_length_macro(every),
            "num_questions": metrics.num_prompts(every),
        })  # fmt: skip
    return pd.DataFrame(rows)
