"""What each part of `blend_logits` is worth: live, one part changed at a time (docs/blend.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import hydra
import pandas as pd
from typer import Option

from ngram_trie import config as configuration
from ngram_trie.cli.app import name_in
from ngram_trie.cli.app import run as run_command
from ngram_trie.engines.live import LosslessError
from ngram_trie.files import place
from ngram_trie.metrics import ALL
from ngram_trie.versus import between
from scripts import run

FULL = "blend_logits"
DATASETS = ["spec_bench_summarization", "spec_bench_rag"]
#: A row each: the fields in which it differs from configs/method/blend_logits.yaml.
VARIANTS: dict[str, dict[str, Any]] = {
    FULL: {},
    # where distributions are taken from
    "no_rejected": {"max_rejected": 0},
    "no_text": {"max_soft": 0},
    "hard_counts_alone": {"max_soft": 0, "max_rejected": 0, "hard": 1.0, "soft": 1e-9},
    "prompt_step_0": {"prompt_step": 0},
    "prompt_step_2": {"prompt_step": 2},
    "prompt_step_4": {"prompt_step": 4},
    # how many of the latest ones
    "latest_1": {"max_soft": 1, "max_rejected": 1},
    "latest_4": {"max_soft": 4, "max_rejected": 4},
    "latest_64": {"max_soft": 64, "max_rejected": 64},
    # how much of each
    "likely_1": {"num_likely": 1},
    "likely_4": {"num_likely": 4},
    "likely_8": {"num_likely": 8},
    # the formula
    "orders_2": {"max_order": 2},
    "orders_4": {"max_order": 4},
    "escape_035": {"escape": 0.35},
    "escape_15": {"escape": 1.5},
    "hard_01": {"hard": 0.1, "soft": 0.9},
    "hard_08": {"hard": 0.8, "soft": 0.2},
    "no_frequent": {"num_frequent": 0},
}


def overrides(model: str, datasets: list[str], parity: str, limit: int, num_nodes: int, output: Path) -> list[str]:
    """Of a run with a row for each of VARIANTS, beside vanilla and `blend`."""
    lines = [f"model={model}", "measure.repeats=1", "measure.max_new_tokens=128", "measure.share_prefill=true"]
    lines += ["budget=equal", f"budget.num_nodes={num_nodes}", f"output={output}"]
    for name in datasets:
        lines += [
            f"+dataset@datasets.{name}={name}",
            f"datasets.{name}.parity={parity}",
            f"datasets.{name}.limit={limit}",
        ]
    lines += ["+method@methods.vanilla=vanilla", "+method@methods.blend=blend"]
    for name, fields in VARIANTS.items():
        lines.append(f"+method@methods.{name}=blend_logits")
        lines += [f"methods.{name}.{field}={value}" for field, value in fields.items()]
    return lines


def ablation(folder: Path) -> pd.DataFrame:
    """A row for `blend` and each of VARIANTS: tokens a step, and over all data sets their ratio to `blend_logits`.

    Args:
        folder: a finished run.
    """
    table, pairs = pd.read_csv(folder / "table.csv"), pd.read_csv(folder / "versus.csv")
    table = table[table.protocol == "corrected"]
    lengths = table.pivot(index="method", columns="dataset", values="accept_length")
    lengths = lengths.loc[["blend", *VARIANTS], [*(name for name in lengths if name != ALL), ALL]].reset_index()
    pairs = pairs[(pairs.measure == "accept_length") & (pairs.dataset == ALL)]
    ratios = pd.concat([between(pairs, name, FULL) for name in lengths.method if name != FULL])
    ratios = ratios[["a", "ratio", "low", "high"]].rename(columns={"a": "method"})
    return lengths.merge(ratios, "left", "method")


def main(
    model: Annotated[str, Option(help="of configs/model", callback=name_in("model"))] = "smollm2_135m",
    datasets: Annotated[
        list[str] | None, Option(help="of configs/dataset; once for each; default: two of Spec-Bench")
    ] = None,
    parity: Annotated[str, Option(help="questions with odd or even numbers")] = "odd",
    limit: Annotated[int, Option(min=1, help="questions of each data set")] = 8,
    num_nodes: Annotated[int, Option(min=1, help="of every draft")] = 32,
    output: Annotated[Path | None, Option(help="default: results/local/smollm2-135m/logits_ablation")] = None,
) -> None:
    """Decode live with blend_logits and with one part of it changed at a time; write the tables of scripts.run. Every
    variant has the same number of nodes, so the accept length is what to compare. The questions are the odd ones, on
    which constants are chosen.

        python -m scripts.ablate_logits
        python -m scripts.ablate_logits --limit 2 --num-nodes 8
    """
    folder = output or place("results/local/smollm2-135m/logits_ablation")
    with hydra.initialize_config_dir(str(configuration.CONFIGS), version_base="1.3"):
        config = hydra.compose("config", overrides(model, datasets or DATASETS, parity, limit, num_nodes, folder))
    run.measure(config)
    frame = ablation(folder)
    frame.to_csv(folder / "ablation.csv", index=False, float_format="%.5g", lineterminator="\n")
    print(frame.to_string(index=False, float_format="{:.3f}".format))


if __name__ == "__main__":
    run_command(main, also=(LosslessError,))
