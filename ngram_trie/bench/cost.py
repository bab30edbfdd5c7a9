"""Predicts speedups from accept lengths and a measured curve of step costs.

A plain step costs v(0, c) seconds at c cached tokens, a step that verifies q drafted nodes v(q, c). With a prompt of l
tokens, an answer of N tokens in S steps and a drafter that takes I seconds to index and d to draft in all,

    T = prefill(l) + I + d + sum of v(q_i, c_i) over the S steps,      T_vanilla = prefill(l) + sum of v(0, c),

and the predicted speedup is T_vanilla / T. `explain` takes it apart, one cost at a time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.interpolate import RegularGridInterpolator

from ngram_trie.bench import metrics
from ngram_trie.bench.records import PromptRecord, RunManifest
from ngram_trie.drafter import check_amount, check_int, check_positive
from ngram_trie.store.files import first_line, write_atomically

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class CostCurve:
    """Seconds of a verification step over (drafted nodes, cached tokens), and of a prefill over the prompt's length.

    Attributes:
        name: what it holds for, in words: model and device.
        nodes: (a,) increasing, from 0, the plain step.
        contexts: (b,) increasing.
        step_seconds: (a, b) of a step without its drafting.
        prefill_lengths, prefill_seconds: (c,) each.

    Raises:
        ValueError: shapes that do not fit, sizes that do not increase, or a curve that does not begin at 0 nodes.
    """

    name: str
    nodes: Sequence[int]
    contexts: Sequence[int]
    step_seconds: Sequence[Sequence[float]]
    prefill_lengths: Sequence[int]
    prefill_seconds: Sequence[float]

    def __post_init__(self) -> None:
        if np.shape(self.step_seconds) != (len(self.nodes), len(self.contexts)) or list(self.nodes[:1]) != [0]:
            raise ValueError("a cost curve needs one time for each number of nodes, 0 first, and each context length")
        if len(self.prefill_lengths) != len(self.prefill_seconds):
            raise ValueError("a cost curve needs one prefill time for each prompt length")
        for name, least in (("nodes", 2), ("contexts", 1), ("prefill_lengths", 1)):
            sizes = list(getattr(self, name))
            if len(sizes) < least or sizes != sorted(set(sizes)):
                raise ValueError(f"{name}={sizes}: a cost curve needs at least {least}, increasing")
        if not np.all(np.isfinite(self.step_seconds)) or np.min(self.step_seconds) <= 0:
            raise ValueError("step_seconds: a cost curve needs finite times above 0")
        if not np.all(np.isfinite(self.prefill_seconds)) or np.min(self.prefill_seconds) < 0:
            raise ValueError("prefill_seconds: a cost curve needs finite times of at least 0")

    def step(self, nodes: Iterable[int], contexts: Iterable[int]) -> FloatArray:
        """(k,) seconds of steps over `nodes` drafted nodes at `contexts` cached tokens; linear between and beyond what
        was measured.
        """
        points = np.column_stack([np.asarray(list(nodes), float), np.asarray(list(contexts), float)])
        measured_at, seconds = list(self.contexts), np.array(self.step_seconds, float)
        if len(measured_at) == 1:  # the same at every context
            measured_at, seconds = [measured_at[0], measured_at[0] + 1], np.repeat(seconds, 2, axis=1)
        curve = RegularGridInterpolator((self.nodes, measured_at), seconds, bounds_error=False, fill_value=None)
        return np.asarray(curve(points), float)

    def prefill(self, length: int) -> float:
        """Seconds to read a prompt of `length` tokens; in proportion beyond what was measured."""
        longest = self.prefill_lengths[-1]
        scale = max(1.0, length / longest)
        return scale * float(np.interp(min(length, longest), self.prefill_lengths, self.prefill_seconds))

    def write(self, folder: Path) -> None:
        """Write curve.json and, for people, curve.csv (one row a point)."""
        self.keep(folder)
        self.frame().to_csv(folder / "curve.csv", index=False, float_format="%.5g", lineterminator="\n")

    def keep(self, folder: Path) -> None:
        """Write curve.json alone: a run that drafted by this curve, or whose speed it predicts, can then be told again
        after the curve was measured anew.
        """
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "curve.json", json.dumps(asdict(self), indent=1) + "\n")

    def frame(self) -> pd.DataFrame:
        """One row a point: nodes, context, milliseconds, and relative to the plain step at the same context."""
        table = 1e3 * pd.DataFrame(self.step_seconds, index=self.nodes, columns=self.contexts)
        long = table.rename_axis("nodes").melt(ignore_index=False, var_name="context", value_name="step_ms")
        plain = table.loc[0]
        return long.reset_index().assign(relative=lambda rows: rows.step_ms / rows.context.map(plain))

    @classmethod
    def read(cls, folder: Path) -> CostCurve:
        """Raises:
        FileNotFoundError: no curve there; the message says how to measure one.
        ValueError: the file holds none.
        """
        path = Path(folder) / "curve.json"
        if not path.exists():
            raise FileNotFoundError(f"{path}: no cost curve; `make bench-steps` measures one for this machine")
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{path}: not a cost curve: {first_line(error)}") from None


def assumed_curve(
    *, q0: int = 16, price: float = 0.01, plain_step_ms: float = 20.0, prefill_ms_per_token: float = 0.05
) -> CostCurve:
    """A curve that nobody measured, in the shape of a GPU's: up to `q0` nodes ride along free of charge, since weights
    must be read anyway; each node beyond adds `price` of a plain step.
    """
    check_int("q0", q0, 0)
    check_positive("plain_step_ms", plain_step_ms)
    check_amount("price", price)
    check_amount("prefill_ms_per_token", prefill_ms_per_token)
    nodes = sorted({0, q0, q0 + 1024})
    relative = [1.0 + price * max(0, count - q0) for count in nodes]
    return CostCurve(
        f"an assumed device: 1 + {price:g} x max(0, nodes - {q0}) of a plain step of {plain_step_ms:g} ms, prefill "
        f"{prefill_ms_per_token:g} ms a token",
        nodes,
        [1],
        [[plain_step_ms / 1e3 * cost] for cost in relative],
        [0, 1024],
        [0.0, prefill_ms_per_token * 1.024],
    )


COLUMNS = ["vanilla", "verify", "drafting", "prefill", "num_steps", "num_emitted"]


def predict(records: Iterable[PromptRecord], curve: CostCurve) -> pd.DataFrame:
    """One row an answer: its keys and, in seconds on `curve`:

    vanilla: decoding the same tokens one by one; verify: its steps; drafting: the drafter's own measured time; prefill.
    And num_steps, num_emitted.
    """
    rows = []
    for record in records:
        if record.failure or record.kind != "drafter":
            continue
        emitted = np.array(record.accept_lengths, int)
        total = int(emitted.sum())
        # Cached before each step: the prompt and what was emitted, but for the pending root.
        contexts = record.num_prompt_tokens + np.concatenate([[0], emitted.cumsum()])[:-1] if len(emitted) else emitted
        every = record.num_prompt_tokens + np.arange(total)
        seconds = record.seconds
        rows.append(
            {
                **metrics.keys_of(record),
                "vanilla": curve.step(np.zeros(total), every).sum() if total else 0.0,
                "verify": curve.step(record.tree_sizes, contexts).sum() if total else 0.0,
                "drafting": seconds.index + seconds.draft if seconds else 0.0,
                "prefill": curve.prefill(record.num_prompt_tokens),
                "num_steps": len(emitted),
                "num_emitted": total,
            }
        )
    return pd.DataFrame(rows, columns=metrics.KEYS + COLUMNS)


def with_predicted(frame: pd.DataFrame, records: Iterable[PromptRecord], curve: CostCurve) -> pd.DataFrame:
    """A frame of `metrics.to_frame` with columns `predicted_vanilla` and `predicted_seconds`: what the answer takes on
    `curve` token by token and with its drafts, prefill included and drafting not; nan of failures and outside loops.
    """
    predicted = predict(records, curve)
    columns = {
        "predicted_vanilla": predicted.prefill + predicted.vanilla,
        "predicted_seconds": predicted.prefill + predicted.verify,
    }
    return frame.merge(predicted[metrics.KEYS].assign(**columns), how="left", on=metrics.KEYS)


def explain(frame: pd.DataFrame, drafting: bool = True) -> dict[str, float]:
    """The predicted speedup of the answers in a frame of `predict`, and its way there.

    accept_length: what the drafts are worth where nothing else costs anything.
    after_verify: with steps that cost what their trees cost, as a speedup of decoding.
    after_drafting: and with the drafter's own time.
    predicted_speedup: and with the prefill, which no draft makes faster.

    Args:
        drafting: with the drafter's time, which is measured and never the same twice. Without it all follows from
            answers, trees and curve.
    """
    sums = frame[COLUMNS].sum()
    if not drafting:
        sums["drafting"] = 0.0
    return {
        "accept_length": metrics.ratio_of(sums.num_emitted, sums.num_steps),
        "after_verify": metrics.ratio_of(sums.vanilla, sums.verify),
        "after_drafting": metrics.ratio_of(sums.vanilla, sums.verify + sums.drafting),
        "predicted_speedup": metrics.ratio_of(sums.prefill + sums.vanilla, sums.prefill + sums.verify + sums.drafting),
    }


def predicted_and_measured(records: Collection[PromptRecord], curve: CostCurve) -> pd.DataFrame:
    """One row for each method of the project's loop and each dataset, and "all": `explain`, the measured speedup with
    its interval, and `error`, predicted over measured minus 1. "all" are those without noise, as in tables.
    """
    predicted, measured = predict(records, curve), metrics.to_frame(records)
    clean = measured[measured.context == metrics.CLEAN]
    rows = []
    for method in predicted.method.unique():
        for dataset in [*predicted.dataset.unique(), "all"]:
            ours = predicted[predicted.method == method]
            live = clean if dataset == metrics.ALL else measured[measured.dataset == dataset]
            ours = ours[ours.dataset.isin(live.dataset)]
            ratio, low, high = metrics.speedup(live, method)
            row = {"method": method, "dataset": dataset, **explain(ours)}
            row |= {"measured_speedup": ratio, "measured_low": low, "measured_high": high}
            rows.append(row | {"error": row["predicted_speedup"] / ratio - 1})
    return pd.DataFrame(rows)


def holds_for(folder: Path, manifest: RunManifest) -> bool:
    """Whether the curve in `folder` was measured on the model and the device of a run."""
    path = folder / "manifest.json"
    if not path.exists() or not (folder / "curve.json").exists():
        return False
    found = RunManifest.read(path)
    return (found.model, found.device) == (manifest.model, manifest.device)
