"""A claim with its verdict, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from ngram_trie.site.gathered import WORDS, Folder, Results

HOLDS, IN_PART, FAILS, UNTESTED = "holds", "in part", "does not hold", "not tested"
OURS = "ngram_trie"
RELEASED = "ngram_trie_released"


class Claim(NamedTuple):
    """One row of the summary: where it is claimed, what, the verdict, why, and the files below results/ that say so."""

    where: str
    claim: str
    verdict: str
    why: str
    files: list[str]


class Evidence:
    """What was found about a claim, folder by folder.

    Attributes:
        seen: in words.
        tested: of each place that decides, whether the claim holds there; None where an interval leaves it open.
        models: those that decided.
        files: below results/.
    """

    def __init__(self, *files: str) -> None:
        self.seen: list[str] = []
        self.tested: list[bool | None] = []
        self.models: set[str] = set()
        self.files = list(files)

    def add(self, folder: Folder, text: str, file: str = "table.csv") -> None:
        self.seen.append(text)
        self.files.append(folder.file(file))

    def decide(self, folder: Folder, holds: Iterable[bool | None]) -> None:
        """Whether the claim holds in places of a folder that decides."""
        self.tested += holds
        self.models.add(folder.model)

    def leave_open(self, models: Iterable[str]) -> None:
        """Of a claim about all of these models those that nothing decided on are open, if any was decided on."""
        self.tested += [None] * len(set(models) - self.models) if self.models else []

    def judged(self, name: str, said: Mapping[str, object] = {}, partly: bool = False) -> Claim:
        """The claim `name` of templates/words.yaml with the verdict over what was tested.

        Args:
            said: what fills its texts, besides `seen` (listed), `found` (as sentences), `remark` and `no_run`, two ways
                to say that nothing that was measured decides.
            partly: a claim may hold in some places.
        """
        about = WORDS["claims"][name]
        untested = not self.tested
        why = about["why"] if self.seen else about.get("none", about["why"])
        filled = {
            **said,
            "seen": listed(self.seen) or about.get("nothing", ""),
            "found": ". ".join(self.seen),
            "remark": "None of the paper's models has a live run of it under results/. " if untested else "",
            "no_run": "None of its models has a run under results/. " if untested else "",
        }
        verdict = verdict_over(self.tested, partly)
        return Claim(about["where"], about["claim"].format(**filled), verdict, why.format(**filled), self.files)


def verdict_over(tested: Iterable[bool | None], partly: bool) -> str:
    """The verdict on a claim about all of these places; `partly` allows it to hold in some of them.

    A place that is left open refutes nothing and confirms nothing.
    """
    tested = list(tested)
    if False in tested:
        return IN_PART if partly and True in tested else FAILS
    if None in tested or not tested:
        return IN_PART if partly and True in tested else UNTESTED
    return HOLDS


def listed(parts: Iterable[str]) -> str:
    return "; ".join(parts)


def span(values: pd.Series, each: str = "{:.1f}") -> str:
    """The smallest and the largest number."""
    return f"{each.format(values.min())} to {each.format(values.max())}"


def spoken(row: Any) -> str:
    """A speedup with its interval; of a row that has `speedup`, `speedup_low` and `speedup_high`."""
    return f"{row.speedup:.2f}x [{row.speedup_low:.2f}, {row.speedup_high:.2f}]"


def named(folder: Folder) -> str:
    """A folder, and that its text is of our own making where it is: it decides nothing about real tasks."""
    return f"{folder.name} (synthetic)" if folder.is_synthetic else folder.name


def models(results: Results) -> set[str]:
    """The models that the N-Gram-Trie paper prints numbers of."""
    tables = (results.paper(f"table{number}.csv") for number in range(1, 7))
    return {name for table in tables if table is not None for name in table.model}


def frames(results: Results, kind: str, file: str = "table.csv") -> Iterator[tuple[Folder, pd.DataFrame]]:
    """The folders of a kind that hold a data file, with its rows."""
    for folder in results.of(kind, file):
        if (frame := folder.csv(file)) is not None:
            yield folder, frame


class Versus:
    """The speeds of a run's methods beside each other, versus.csv (`ngram_trie.versus`): what a claim about "faster
    than" rests on. Where it is missing, nothing is decided.
    """

    def __init__(self, folder: Folder) -> None:
        frame = folder.csv("versus.csv")
        self.file = [folder.file("versus.csv")] if frame is not None else []
        self._rows: dict[tuple[str, str, str], Any] = {}
        for row in () if frame is None else frame[frame.measure == "speedup"].itertuples():
            self._rows[row.dataset, row.a, row.b] = row

    def faster(self, dataset: str, ours: str, other: str) -> bool | None:
        """Whether `ours` is the faster of two methods; None unless the difference counts after the correction."""
        for key, sign in (((dataset, ours, other), 1), ((dataset, other, ours), -1)):
            if (row := self._rows.get(key)) is not None:
                return (row.ratio > 1) == (sign > 0) if row.significant else None
        return None

    def fastest(self, dataset: str, ours: str, others: Iterable[str]) -> bool | None:
        """Whether `ours` is faster than each of the others; no if one is faster, None if one cannot be told apart."""
        found = {self.faster(dataset, ours, other) for other in others if other != ours}
        return False if False in found else None if None in found or not found else True

    def spoken(self, dataset: str, ours: str, other: str) -> str:
        """The ratio of two methods with its interval, empty where there is none."""
        if (row := self._rows.get((dataset, ours, other))) is not None:
            ratio, low, high = row.ratio, row.low, row.high
        elif (row := self._rows.get((dataset, other, ours))) is not None:
            ratio, low, high = 1 / row.ratio, 1 / row.high, 1 / row.low
        else:
            return ""
        return f"{ratio:.2f} times [{low:.2f}, {high:.2f}], corrected p {row.p_holm:.2g}"
