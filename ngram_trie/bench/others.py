"""What other work takes from answers that are measured on a CPU: processes beside this one and, of a virtual machine,
other machines of its host. An answer from which they took much is measured again; only what they took decides.
"""

from __future__ import annotations

from time import perf_counter, process_time

import numpy as np
import psutil
import torch

#: Seconds to wait before a disturbed answer is measured again, and again: others are busy for a while. All that adds no
#: more than this to a run's time.
PAUSES_S, MOST_MORE = (5.0, 20.0), 0.25
#: Seconds of an answer that is too short to be looked at: the kernel counts in hundredths.
SHORT_S = 0.25
#: Bytes that are read to see how fast memory is, more than caches hold; for how many seconds that holds; and how many
#: readings say what is usual.
READ_BYTES, FRESH_S, FEW_READINGS = 1 << 27, 1.0, 10


class Others:
    """Watches one answer after the other: `begin`, the answer, `end`."""

    def __init__(self) -> None:
        self._spare = (psutil.cpu_count() or 1) - torch.get_num_threads()
        self._memory = torch.ones(READ_BYTES // 4)
        self._readings: list[float] = []
        self._read_at = -np.inf
        self._answering_s = self._more_s = 0.0

    def begin(self) -> None:
        """An answer begins."""
        if perf_counter() - self._read_at > FRESH_S:
            self._read()
        self._before, self._started = _seconds_of_others(), perf_counter()

    def end(self) -> float:
        """What they took from the answer that ends: the share of a core, or by which share memory, just before and
        behind it, was slower than it usually is in the run (of all readings the quarter point), whichever is more.
        """
        seconds = perf_counter() - self._started
        taken = _seconds_of_others() - self._before - self._spare * seconds
        self._answering_s += seconds
        if seconds < SHORT_S:
            return 0.0
        self._read()
        usual = float(np.quantile(self._readings, 0.25)) if len(self._readings) > FEW_READINGS else np.inf
        return round(max(0.0, taken / seconds, max(self._readings[-2:]) / usual - 1), 3)

    def may_wait(self, pause: float) -> bool:
        """Whether so many seconds and the last answer once more are within `MOST_MORE`; if so, they count."""
        more = self._more_s + pause + perf_counter() - self._started
        if more > MOST_MORE * self._answering_s:
            return False
        self._more_s = more
        return True

    def _read(self) -> None:
        self._readings.append(self._reading())
        self._read_at = perf_counter()

    def _reading(self) -> float:
        """Seconds of reading memory, of two readings the faster one."""
        seconds = []
        for _ in range(2):
            started = perf_counter()
            self._memory.sum()
            seconds.append(perf_counter() - started)
        return min(seconds)


def _seconds_of_others() -> float:
    """Processor seconds that the machine has given to others than this process so far, its host's included."""
    spent, kinds = psutil.cpu_times(), ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(spent, kind, 0.0) for kind in kinds) - process_time()
