"""What a run says while it goes on, on stderr: what it is at, how long is left, and how the methods stand so far."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType

import joblib
import psutil
from tqdm import tqdm

from ngram_trie.bench.records import ItemKey, PromptRecord


def say(text: str) -> None:
    """A line above the bar, if there is one."""
    tqdm.write(text, file=sys.stderr)


def warn_of_load(num_threads: int) -> None:
    """Say so where other processes keep the machine busy: seconds are then theirs, too. Or where there are more threads
    than cores that this process may use: they wait for each other in every product.
    """
    load, cores = psutil.getloadavg()[0], joblib.cpu_count()  # which knows what a container may use
    if num_threads > cores:
        say(f"warning: {num_threads} threads on {cores} cores: several times slower; give engine.num_threads={cores}")
    if load > cores / 2:
        fewer = "; engine.num_threads=1 loses least by it" if num_threads > 1 else ""
        say(
            f"warning: other work is running here (load {load:.1f} on {cores} cores): speeds will be noisy and too "
            f"low{fewer}"
        )


class Progress:
    """The bar over all answers of a run, with the time left by each method's own answers; and a line on how the methods
    stand, once the first prompt has been answered by all of them, and again after 2, 4, 8 ...

    Args:
        total: answers in all.
        left: of these, how many of each method are to come.
        num_methods: how many answer each prompt.
        is_timed: whether seconds are those of answers; without, there is nothing to say how methods stand.
    """

    def __init__(self, total: int, left: Mapping[str, int], num_methods: int, is_timed: bool) -> None:
        shown = "{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]" if is_timed else None
        done = total - sum(left.values())
        self.bar = tqdm(total=total, initial=done, unit="answer", dynamic_ncols=True, smoothing=0.05, bar_format=shown)
        self.left, self.num_methods, self.is_timed = dict(left), num_methods, is_timed
        self.taken: dict[str, list[float]] = {}
        self.last = time.perf_counter()
        self.answered: dict[ItemKey, list[PromptRecord]] = {}
        self.totals: dict[str, Total] = {}
        self.num_complete, self.next_line = 0, 1

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.bar.close()

    def add(self, record: PromptRecord) -> None:
        """One answer more."""
        self.bar.set_description(record.column, refresh=False)
        self.left[record.method] -= 1
        if self.is_timed:
            self.bar.set_postfix_str(f"{self.seconds_left(record) / 60:.0f} min left", refresh=False)
        self.bar.update()
        if record.repeat or record.session or not self.is_timed:
            return
        of_item = self.answered.setdefault(record.key.item, [])
        of_item.append(record)
        if len(of_item) == self.num_methods:
            add_up(self.answered.pop(record.key.item), self.totals)
            self.num_complete += 1
            if self.num_complete == self.next_line and (line := standing(self.totals)):
                self.next_line *= 2
                say(f"after {self.num_complete} prompt{'s' * (self.num_complete > 1)}: {line}")

    def seconds_left(self, record: PromptRecord) -> float:
        """By the seconds that each method's answers took up to this one, its first one by the answer's own clock: the
        method was made ready before it.
        """
        now = time.perf_counter()
        took, self.last = now - self.last, now
        of_method = self.taken.setdefault(record.method, [])
        of_method.append(took if of_method or not record.seconds else min(took, record.seconds.total))
        means = {name: sum(taken) / len(taken) for name, taken in self.taken.items()}
        typical = sum(means.values()) / len(means)
        return sum(count * means.get(name, typical) for name, count in self.left.items())


@dataclass
class Total:
    """What a method has answered, and the method that it is compared with."""

    baseline: str
    tokens: int = 0
    seconds: float = 0.0


def add_up(records: Iterable[PromptRecord], totals: dict[str, Total]) -> None:
    """Add records to the totals of their methods."""
    for record in records:
        if record.seconds and not record.failure:
            total = totals.setdefault(record.method, Total(record.baseline))
            total.tokens += len(record.output_ids)
            total.seconds += record.seconds.total


def standing(totals: Mapping[str, Total]) -> str:
    """How the methods stand: each baseline's tokens per second, and how many times as fast the others are so far; ""
    where a baseline has no answer.
    """
    speed = {name: total.tokens / total.seconds for name, total in totals.items() if total.seconds > 0}
    parts = []
    for name in sorted(speed, key=lambda name: totals[name].baseline != name):
        if (baseline := totals[name].baseline) == name:
            parts.append(f"{name} {speed[name]:.1f} tokens/s")
        elif baseline in speed:
            parts.append(f"{name} {speed[name] / speed[baseline]:.2f}x")
    return ", ".join(parts)
