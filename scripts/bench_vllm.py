"""Ways of drafting in vLLM beside each other (make bench-vllm); an interrupted run is continued.

python -m scripts.bench_vllm results/local/vllm-cpu
python -m scripts.bench_vllm results/local/vllm-smoke --limit 2 --rounds 1 --num-tokens 8
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from omegaconf import OmegaConf

from ngram_trie import config as configuration
from ngram_trie.cli.app import run
from ngram_trie.data.prompts import build_prompt, model_tokenizer
from ngram_trie.engines import vllm_bench
from ngram_trie.engines.journal import MANIFEST, Journal
from ngram_trie.engines.provenance import make_manifest
from ngram_trie.files import CONFIGS, PROJECT, content_hash
from ngram_trie.targets import choose
from ngram_trie.targets.gguf import local_folder

MODEL = "smollm2_135m"
BATCHES, RATES = (1, 2, 4, 8), (0.5, 1.0)


def bench(
    folder: Annotated[Path, typer.Argument(help="where laps, tables and manifest go")],
    python: Annotated[Path, typer.Option(help="of vLLM's virtual environment")] = PROJECT / ".venv-vllm/bin/python",
    datasets: Annotated[
        str, typer.Option(help="names in configs/dataset")
    ] = "docs_summarization,docs_rag,docs_open_qa,docs_attributed_qa",
    limit: Annotated[int, typer.Option(help="questions of each data set", min=1)] = 16,
    per_lap: Annotated[int, typer.Option(help="prompts at each batch size and rate", min=1)] = 6,
    num_tokens: Annotated[int, typer.Option(help="of each answer; half of it in the identity check", min=4)] = 48,
    max_prompt: Annotated[int, typer.Option(help="longest prompt, in tokens", min=16)] = 320,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    force: Annotated[bool, typer.Option("--force", help="replace what the folder holds of another run")] = False,
) -> None:
    """Measure ways of drafting in vLLM in turns, and print the table (make bench-vllm).

    The same command resumes: what the folder already has is not measured again.

      python -m scripts.bench_vllm results/local/vllm-cpu
      python -m scripts.bench_vllm results/local/vllm-smoke --limit 2 --rounds 1 --num-tokens 8
    """
    if not python.is_file():
        raise FileNotFoundError(f"--python {python}: no such file; make setup-vllm makes vLLM's virtual environment")
    model = OmegaConf.create({"model": OmegaConf.load(CONFIGS / "model" / f"{MODEL}.yaml")}).model
    tokenizer = model_tokenizer(model)
    groups = []
    for name in datasets.split(","):
        config = OmegaConf.load(CONFIGS / "dataset" / f"{name}.yaml")
        config.parity, config.limit = "even", limit
        dataset = configuration.build(config, f"dataset {name}")
        options = {"tokenizer": tokenizer, "max_tokens": max_prompt, "truncation": "middle"}
        groups.append([build_prompt(question, **options) for question in dataset.questions])
    # the first ones are of all data sets
    longest = max(map(len, groups))
    prompts = [group[place] for place in range(longest) for group in groups if place < len(group)]
    laps = list(vllm_bench.plan(len(prompts), per_lap, num_tokens, BATCHES, RATES, rounds))
    settings = {"ways": vllm_bench.WAYS, "datasets": datasets, "limit": limit, "per_lap": per_lap, "rounds": rounds}
    settings |= {"num_tokens": num_tokens, "max_prompt": max_prompt, "batches": BATCHES, "rates": RATES}
    hashed = content_hash([prompt.ids.tolist() for prompt in prompts])
    manifest = make_manifest(settings, choose.identity(model), hashed, "cpu")
    with Journal(folder / vllm_bench.LAPS, manifest, force) as journal:
        notes = vllm_bench.run(journal, python, local_folder(model.path), prompts, laps)
        replace(manifest, environment={**manifest.environment, **notes}).write(folder / MANIFEST)
    print(vllm_bench.write(folder))


if __name__ == "__main__":
    run(bench)
