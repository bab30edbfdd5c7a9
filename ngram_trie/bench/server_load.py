"""Servers under load: every server, every load, every round, one record for each such trial.

A server answers many at once and shows text with times, so what is measured as a whole is a trial: all questions under
one load. Trials take turns, server by server. An interrupt loses the one under way, since half a load is no load.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import httpx2
import numpy as np
from pydantic import TypeAdapter, ValidationError
from tqdm import tqdm

from ngram_trie.bench.records import Failure
from ngram_trie.bench.server import Server, Streamed
from ngram_trie.store.files import content_hash, drop_torn_line, one_writer
from ngram_trie.store.lines import read_rows

TRIALS = "trials.jsonl"


class Asked(NamedTuple):
    """A question as it is sent.

    Attributes:
        prompt: token ids, or messages.
        num_prompt_tokens: by the tokenizer of the configured model.
    """

    dataset: str
    question_id: str
    turn: int
    prompt: Any
    num_prompt_tokens: int


class Load(NamedTuple):
    """How requests come: "concurrency", so many under way at all times, or "rate", so many a second at random times
    (Poisson), however many are under way."""

    kind: str
    value: float

    def __str__(self) -> str:
        return f"{self.kind} {self.value:g}"


@dataclass(frozen=True)
class ServerAnswer:
    """One answer within a trial. Times in seconds; `sent` counts from the trial's begin, the others from `sent`.

    Attributes:
        text_hash: of the text, by which answers are compared.
        num_tokens: of the answer, as `counted` says: "server", or "tokenizer" where the server does not count.
        first, seconds, pieces, finish_reason, num_accepted: as in `Streamed`.
        failure: set instead of an answer.
    """

    dataset: str
    question_id: str
    turn: int
    num_prompt_tokens: int
    sent: float
    first: float = 0.0
    seconds: float = 0.0
    num_tokens: int = 0
    counted: str = "server"
    pieces: int = 0
    text_hash: str = ""
    finish_reason: str | None = None
    num_accepted: int | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Trial:
    """All questions, asked of one server under one load; one line of trials.jsonl.

    Attributes:
        seconds: from the first request to the end of the last answer.
        counters: what vLLM counted of its drafts meanwhile (`server.COUNTERS`); empty where a server does not say.
    """

    run: str
    server: str
    load: str
    round: int
    seconds: float
    answers: list[ServerAnswer] = field(default_factory=list)
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, int]:
        return self.server, self.load, self.round


#: Reads what `dataclasses.asdict` made a line of.
TRIAL = TypeAdapter(Trial)


def read_trials(path: Path, run: str) -> list[Trial]:
    """The trials of a file that `run` began; none where there is no file. A torn last line (a killed run) is dropped.

    Raises:
        FileExistsError: the file is of another run.
        ValueError: a line that is no trial; the message names file and line.
    """
    if not path.exists():
        return []
    drop_torn_line(path)
    found = []
    for number, row in read_rows(path):
        try:
            found.append(TRIAL.validate_python(row))
        except ValidationError as error:
            raise ValueError(f"{path}:{number}: not a trial: {error.errors()[0]['msg']}") from None
        if found[-1].run != run:
            raise FileExistsError(f"{path} holds another run: give another folder, or replace it by force=true")
    return found


def plan(servers: Sequence[str], loads: Sequence[Load], rounds: int) -> list[tuple[str, Load, int]]:
    """The trials in order: within a round and load all servers in turn, each time another first."""
    return [
        (servers[(place + turn) % len(servers)], load, number)
        for number in range(rounds)
        for place, load in enumerate(loads, number)
        for turn in range(len(servers))
    ]


@dataclass
class Bench:
    """What is asked of which servers.

    Attributes:
        servers: the first is what the others are compared with.
        asked: the questions, in order; each trial asks all.
        count: from a text to its tokens, for servers that do not count.
        warmup: questions that each server answers before anything is measured.
    """

    run: str
    servers: Sequence[Server]
    asked: Sequence[Asked]
    loads: Sequence[Load]
    rounds: int
    max_tokens: int
    count: Any
    warmup: int = 1
    server_model: str | None = None

    def measure(self, path: Path) -> list[Trial]:
        """Run what the file of trials does not have, and add each trial as it ends; all trials, in order.

        Raises:
            FileExistsError: the file is of another run, or another process writes there.
            Unreachable: a server that is not there, or no longer.
            ValueError: one that does not answer the warm-up; one line.
        """
        keys = [(server, str(load), number) for server, load, number in self._plan]
        with ExitStack() as held:
            held.callback(one_writer(path.parent).release)
            known = {trial.key: trial for trial in read_trials(path, self.run)}
            done = sum(key in known for key in keys)
            progress = held.enter_context(tqdm(total=len(keys), initial=done, unit="trial"))
            file = held.enter_context(path.open("a", encoding="utf-8"))
            ready: set[str] = set()
            for (name, load, number), key in zip(self._plan, keys, strict=True):
                if key not in known:
                    server = next(server for server in self.servers if server.name == name)
                    trial = asyncio.run(self._trial(server, load, number, name in ready))
                    ready.add(name)
                    known[key] = trial
                    file.write(json.dumps(asdict(trial), separators=(",", ":")) + "\n")
                    file.flush()
                    progress.update()
        return [known[key] for key in keys]

    @property
    def _plan(self) -> list[tuple[str, Load, int]]:
        return plan([server.name for server in self.servers], self.loads, self.rounds)

    async def _trial(self, server: Server, load: Load, number: int, is_ready: bool) -> Trial:
        async with server.opened() as client:
            if not is_ready:
                await server.look_up(client, self.server_model)
                for asked in self.asked[: self.warmup]:
                    told = await server.ask(client, asked.prompt, self.max_tokens)
                    if isinstance(told, Failure):
                        raise ValueError(f"server {server.name}: the first answer failed: {told.kind}: {told.message}")
            before = await server.counters(client)
            began = perf_counter()
            answers = await self._under(client, server, load, number, began)
            seconds = perf_counter() - began
            after = await server.counters(client)
        counted = {name: value - before.get(name, 0.0) for name, value in after.items()}
        return Trial(self.run, server.name, str(load), number, seconds, answers, counted)

    async def _under(
        self, client: httpx2.AsyncClient, server: Server, load: Load, number: int, began: float
    ) -> list[ServerAnswer]:
        """All questions under a load, in their order."""
        gate = asyncio.Semaphore(int(load.value) if load.kind == "concurrency" else len(self.asked))
        waits = np.zeros(len(self.asked))
        if load.kind == "rate":  # the same times for every server
            waits = np.random.default_rng(number).exponential(1 / load.value, len(self.asked)).cumsum()

        async def one(asked: Asked, wait: float) -> ServerAnswer:
            await asyncio.sleep(max(0.0, wait - (perf_counter() - began)))
            async with gate:
                sent = perf_counter() - began
                told = await server.ask(client, asked.prompt, self.max_tokens)
            about = (asked.dataset, asked.question_id, asked.turn, asked.num_prompt_tokens, sent)
            return self._answer(about, told)

        tasks = [asyncio.create_task(one(asked, wait)) for asked, wait in zip(self.asked, waits, strict=True)]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    def _answer(self, about: tuple[str, str, int, int, float], told: Streamed | Failure) -> ServerAnswer:
        if isinstance(told, Failure):
            return ServerAnswer(*about, failure=told)
        count, counted = told.num_tokens, "server"
        if count is None:
            count, counted = self.count(told.text), "tokenizer"
        text = content_hash(told.text)
        times = (told.first, told.seconds, count, counted, told.pieces)
        return ServerAnswer(*about, *times, text, told.finish_reason, told.num_accepted)
