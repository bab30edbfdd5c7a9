"""What only a GPU can measure, in order of worth: each part is written when it ends, and the same command goes on."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from ngram_trie.cli.app import run
from ngram_trie.methods import ConfigError
from ngram_trie.store.files import PROJECT

SMALL = "model=smollm2_135m model.device=cuda model.dtype=float32 measure.repeats=1 measure.max_new_tokens=256"
LIVE = (
    "run experiment=adaptive_spec_bench "
    + SMALL
    + " '~methods.blend_logits_bigram' budget=equal budget.num_nodes={nodes}"
    " output={folder}/smollm2-{nodes}"
)
FORCED = (
    "run --methods trie,pld,suffix,blend,suffix_warm,blend_warm engine=teacher_forced engine.traces={traces}"
    " engine.parity=even model={model} model.weights=random model.dtype=bfloat16 model.device=cuda budget=equal"
    " budget.num_nodes=31 measure.repeats=1 output={folder}/{model}-forced"
)
HALF = (
    "run dataset=spec_bench dataset.parity=even dataset.limit=200 method=blend "
    + SMALL
    + " model.dtype={dtype} output={folder}/{dtype}"
)
#: Part -> its commands. `{traces}` is left out where no recordings are given.
PARTS = {
    "logits": [LIVE.replace("{nodes}", "32"), LIVE.replace("{nodes}", "64")],
    "forced": [FORCED.replace("{model}", "vicuna_7b")],
    "forced-llama": [FORCED.replace("{model}", "llama3_8b_instruct").replace("{traces}", "{llama}")],
    "half": [HALF.replace("{dtype}", "bfloat16"), HALF.replace("{dtype}", "float16")],
    "steps": ["bench_gpu --output {folder}/bench"],
    "table1": ["reproduce table1 --output {folder}/table1"],
}


def main(
    traces: Annotated[Path | None, typer.Option(help="recorded answers of Vicuna-7B to Spec-Bench")] = None,
    llama: Annotated[Path | None, typer.Option(help="a copy of github SpecDecode-Bench/simulator")] = None,
    folder: Annotated[Path, typer.Option(help="of the results")] = PROJECT / "results" / "local" / "gpu",
    parts: Annotated[str, typer.Option(help="names with commas, in this order")] = ",".join(PARTS),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print what each part would do")] = False,
) -> None:
    """Run every part, in order of worth.

      python -m scripts.studies.gpu --traces FILE --llama COPY

    One that fails is named at the end, and the next goes on.
    """
    if unknown := [name for name in parts.split(",") if name not in PARTS]:
        raise ConfigError(f"--parts: {unknown[0]}: there are {', '.join(PARTS)}")
    given = {"folder": folder, "traces": traces, "llama": llama}
    failed = []
    for name in parts.split(","):
        for command in PARTS[name]:
            if missing := [each for each, path in given.items() if path is None and f"{{{each}}}" in command]:
                print(f"{name}: left out, no --{missing[0]}", flush=True)
                continue
            script, *words = shlex.split(command.format_map(given))
            dry = ["dry_run=true"] if script == "run" else ["--help"]
            call = [sys.executable, "-m", f"scripts.{script}", *words, *(dry if dry_run else [])]
            print(f"{name}: {shlex.join(call[2:])}", flush=True)
            if subprocess.run(call, cwd=PROJECT, check=False).returncode:
                failed.append(name)
    if failed:
        raise ConfigError(f"not finished: {', '.join(dict.fromkeys(failed))}; the same command tries again")


if __name__ == "__main__":
    run(main)
