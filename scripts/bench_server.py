"""Compare OpenAI-compatible servers, or ways to run one, under load.

  make bench-server ARGS="'servers={mine: ADDRESS}' model=smollm2_135m"
  python -m scripts.bench_server 'servers={a: http://127.0.0.1:8000/v1, b: http://127.0.0.1:8001/v1}' model=smollm2_135m
  python -m scripts.bench_server 'servers={mine: ADDRESS}' model=smollm2_135m endpoint=chat concurrency=[] rates=[0.5]

Every server answers the same questions under every load, in turns. Writes trials.jsonl, a manifest and tables: tokens
per second, time to the first piece, time per token, goodput, whether the texts are the same, and vLLM's own counts of
drafts. The key is read from OPENAI_API_KEY.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

from ngram_trie.bench import config as configuration
from ngram_trie.bench import models
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.bench.schemas import ServerRun
from ngram_trie.bench.server import Server
from ngram_trie.bench.server_load import TRIALS, Asked, Bench, Load
from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.data.prompts import Question, build_prompt, model_tokenizer
from ngram_trie.report import servers as report
from ngram_trie.store.files import content_hash, placeless, relative


def asked_of(questions: list[Question], tokenizer: Any, endpoint: str) -> list[Asked]:
    """The questions as they are sent; turns that wait for answers to earlier ones are left out.

    Raises:
        ValueError: nothing is left, or a chat about functions, which this does not send.
    """
    found = []
    for question in questions:
        if question.tools and endpoint == "chat":
            raise ValueError(f"dataset={question.dataset}: its functions are not sent in a chat: endpoint=completions")
        if all(answer is not None for _, answer in question.history):
            ids = build_prompt(question, tokenizer).ids.tolist()
            said: list[tuple[str, str | None]] = [("system", question.system)] if question.system else []
            for pair in question.history:
                said += zip(("user", "assistant"), pair, strict=True)
            messages = [{"role": role, "content": text} for role, text in (*said, ("user", question.message))]
            key = (question.dataset, question.question_id, question.turn)
            found.append(Asked(*key, messages if endpoint == "chat" else ids, len(ids)))
    if not found:
        raise ValueError("dataset: no question that can be asked on its own")
    return found


def bench(settings: ServerRun) -> Path:
    """Ask, write; returns the folder."""
    urls = settings.servers or {}
    servers = [Server(name, url, settings.endpoint, settings.timeout_s) for name, url in urls.items()]
    datasets = configuration.build_all(settings, "dataset")
    tokenizer = model_tokenizer(settings.model)
    questions = list(chain.from_iterable(dataset.questions for dataset in datasets.values()))
    asked = asked_of(questions, tokenizer, settings.endpoint)
    beside = ("output", "force", "servers", "bound")
    kept = {name: value for name, value in settings.plain.items() if name not in beside}
    manifest = make_manifest(
        placeless(relative(kept | {"servers": list(urls)})),  # their addresses are nobody's business
        models.identity(settings.model),
        content_hash([each.prompt for each in asked]),
        environment={"device": "the machine that asks; what the servers run on is not known here"},
    )
    folder = Path(settings.output or configuration.PROJECT / "results" / "local" / "servers")
    run = Bench(
        run=manifest.run,
        servers=servers,
        asked=asked,
        loads=[
            *(Load("concurrency", value) for value in settings.concurrency),
            *(Load("rate", value) for value in settings.rates),
        ],
        rounds=settings.rounds,
        max_tokens=settings.max_new_tokens,
        count=lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"]),
        warmup=settings.warmup,
        server_model=settings.server_model,
    )
    if settings.force:
        (folder / TRIALS).unlink(missing_ok=True)
    trials = run.measure(folder / TRIALS)
    manifest.write(folder / "manifest.json")
    bound = report.Bound(settings.bound.ttft_ms, settings.bound.tpot_ms)
    title = f"{models.name(settings.model)}, {len(asked)} questions of {', '.join(datasets)}"
    print(report.write(folder, trials, bound, title))
    print(f"written: {folder}")
    return folder


if __name__ == "__main__":
    hydra_app(bench, __doc__, "server")
