"""What a run says while it goes on, on stderr: what it is at, how long is left, and how the methods stand so far."""

from __future__ import annotations

import sys
from types import TracebackType

import psutil
from tqdm import tqdm

from ngram_trie.records import PromptRecord


def say(text: str) -> None:
    """A line above the bar, if there is one."""
    tqdm.write(text, file=sys.stderr)


def warn_of_load(num_threads: int) -> None:
    """Say so where other processes keep the machine busy: seconds are then theirs, too. Or where there are more threads
    than cores that this process may use: they wait for each other in every product.
    """
    from joblib import cpu_count  # knows what a container may use; the engines also serve machines without it

    load, cores = psutil.getloadavg()[0], cpu_count()
    if num_threads > cores:
        say(f"warning: {num_threads} threads on {cores} cores: several times slower; give engine.num_threads={cores}")
    if load > cores / 2:
        fewer = "; engine.num_threads=1 loses least by it" if num_threads > 1 else ""
        say(
            f"warning: other work is running here (load {load:.1f} on {cores} cores): speeds will be noisy and too "
            f"low{fewer}"
        )


class Progress:
    """The bar over all answers of a run, with the time left over all of them; and a line on how the methods stand,
    once the first prompt has been answered by all of them, and again after 2, 4, 8 ...

    Args:
        total, done: answers in all, and those that are there already.
        num_methods: how many answer each prompt.
        is_timed: whether seconds are those of answers; without, there is nothing to say how methods stand.
    """

    def __init__(self, total: int, done: int, num_methods: int, is_timed: bool) -> None:
        self.bar = tqdm(total=total, initial=done, unit="answer", dynamic_ncols=True, smoothing=0.05)
        self.num_methods, self.is_timed = num_methods, is_timed
        self.answered: dict[tuple[str, str, int], list[PromptRecord]] = {}
        self.complete: list[PromptRecord] = []
        self.num_complete, self.next_line = 0, 1

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.bar.close()

    def add(self, record: PromptRecord) -> None:
        """One answer more."""
        self.bar.set_description(record.dataset, refresh=False)
        self.bar.update()
        if record.repeat or record.session or not self.is_timed:
            return
        of_item = self.answered.setdefault(record.key.item, [])
        of_item.append(record)
        if len(of_item) == self.num_methods:
            self.complete += self.answered.pop(record.key.item)
            self.num_complete += 1
            if self.num_complete == self.next_line and (line := standing(self.complete)):
                self.next_line *= 2
                say(f"after {self.num_complete} prompt{'s' * (self.num_complete > 1)}: {line}")


def standing(records: list[PromptRecord]) -> str:
    """How the methods stand: each baseline's tokens per second, and how many times as fast the others are so far; ""
    where a baseline has no answer.
    """
    tokens: dict[str, int] = {}
    seconds: dict[str, float] = {}
    baselines: dict[str, str] = {}
    for record in records:
        if record.seconds and not record.failure:
            tokens[record.method] = tokens.get(record.method, 0) + len(record.output_ids)
            seconds[record.method] = seconds.get(record.method, 0.0) + record.seconds.total
            baselines[record.method] = record.baseline
    speed = {name: tokens[name] / seconds[name] for name in tokens if seconds[name] > 0}
    parts = []
    for name in sorted(speed, key=lambda name: baselines[name] != name):
        if baselines[name] == name:
            parts.append(f"{name} {speed[name]:.1f} tokens/s")
        elif baselines[name] in speed:
            parts.append(f"{name} {speed[name] / speed[baselines[name]]:.2f}x")
    return ", ".join(parts)
