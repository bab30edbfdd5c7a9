"""The reader's question, answered in a picture and three sentences: which drafter, how much faster, on what."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ngram_trie.metrics import ALL
from ngram_trie.site.evidence import OURS, Versus, spoken
from ngram_trie.site.gathered import Folder, Results

#: The method that most readers already have, and plain decoding.
KNOWN, PLAIN = "pld", "vanilla"


class Answer(NamedTuple):
    """Sentences about one run, each number from its table.csv and versus.csv, and the picture that shows them."""

    folder: Folder
    sentences: list[str]
    picture: Path


def answer(results: Results) -> Answer | None:
    """Of the live run of a real model on the most prompts that has a headline figure; None where there is none."""
    found = []
    for folder in results.folders:
        frame, picture = folder.csv("table.csv"), folder.path / "headline.png"
        if folder.is_synthetic or folder.engine != "live" or frame is None or not picture.is_file():
            continue
        if not {"protocol", "group", "speedup_low", "lossless", "device"} <= set(frame):
            continue
        frame = frame[(frame.protocol == "corrected") & frame.speedup.notna()]
        whole = frame[frame.dataset == ALL]
        if len(whole) > 1 and "cold" in set(whole.group):
            found.append((int(whole.num_prompts.max()), folder, frame, picture))
    if not found:
        return None
    _, folder, frame, picture = max(found, key=lambda each: (each[0], each[1].name))
    return Answer(folder, list(_sentences(folder, frame)), picture)


def _sentences(folder: Folder, frame: pd.DataFrame) -> list[str]:
    """Which, how much faster; beside what; on what it pays."""
    whole = frame[frame.dataset == ALL].set_index("method")
    cold = whole[whole.group == "cold"].sort_values("speedup", ascending=False)
    best, versus = cold.index[0], Versus(folder)
    tied = [name for name in cold.index[1:] if versus.faster(ALL, best, name) is None]
    row = whole.loc[best]
    near = f"; its lead over {_listed(tied)} is not significant" if tied else ", significantly above every other"
    which = (
        f"Of the drafters that need no training and know nothing beforehand, `{best}` is the fastest on {folder.model}:"
        f" {spoken(row)} the speed of plain decoding over {row.num_prompts:.0f} prompts ({row.device}){near}."
    )
    others = [
        f"{label} gives {spoken(whole.loc[name])}"
        for name, label in ((OURS, "The paper's n-gram trie"), (KNOWN, "prompt lookup"))
        if name in whole.index and name != best
    ]
    beside = f"{' and '.join(others)}." if others else ""
    tasks = frame[(frame.method == best) & (frame.dataset != ALL)].sort_values("speedup", ascending=False)
    most, least = tasks.iloc[0], tasks.iloc[-1]
    agreed = [text for text in whole.lossless.astype(str) if "/" in text]
    same = all(_all_identical(text) for text in agreed)
    pays = (
        f"`{best}` gains most on {_task(most)} and least on {_task(least)}"
        f"{'; every answer is identical to plain decoding’s' if agreed and same else ''}."
    )
    return [text for text in (which, beside, pays) if text]


def _task(row: Any) -> str:
    return f"{row.dataset.replace('_', ' ')} ({spoken(row)})"


def _all_identical(text: str) -> bool:
    """Of a verdict such as "12/12"."""
    same, _, total = text.partition(" ")[0].partition("/")
    return same == total.rstrip(",")


def _listed(names: list[str]) -> str:
    marked = [f"`{name}`" for name in names]
    return marked[0] if len(marked) == 1 else f"{', '.join(marked[:-1])} and {marked[-1]}"
