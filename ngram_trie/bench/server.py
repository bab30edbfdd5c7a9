"""A client of OpenAI-compatible servers: one streamed answer with its times, and what vLLM counts of its drafts.

The key is read from OPENAI_API_KEY, and never from a configuration, so that no manifest and no shell history holds it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2

from ngram_trie.bench.records import Failure
from ngram_trie.store.files import first_line

Endpoint = Literal["completions", "chat"]
KEY = "OPENAI_API_KEY"
PATHS = {"completions": "completions", "chat": "chat/completions"}
#: vLLM's counters of drafts (Prometheus, at /metrics beside /v1), by what they are called here.
COUNTERS = {
    "vllm:spec_decode_num_drafts_total": "drafts",
    "vllm:spec_decode_num_draft_tokens_total": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted_tokens",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total": "accepted_at",
}


class Unreachable(ConnectionError):
    """Nobody answers at a server's address, or not as such a server does; one line."""


@dataclass(frozen=True)
class Streamed:
    """One answer as it came in; times in seconds since the request was sent.

    Attributes:
        text: the whole answer; of one with more than text (reasoning, a refusal, calls of tools) all of it, as JSON.
        num_tokens: as the server counts them; None where it does not say.
        first, seconds: when the first piece of any kind came, and the end of the stream.
        pieces: how many parts the answer came in; with drafts a part holds several tokens.
        finish_reason: "stop", "length", or what else the server says.
        num_accepted: drafted tokens that were accepted, of vLLM with --per-request-spec-decode-metrics; those behind
            the answer's end count too. None where the server does not say.
    """

    text: str
    num_tokens: int | None
    first: float
    seconds: float
    pieces: int
    finish_reason: str | None
    num_accepted: int | None = None


class Server:
    """An OpenAI-compatible server.

    Args:
        name: what it is called in records and tables.
        url: with its /v1, such as http://127.0.0.1:8000/v1.
        endpoint: "completions", which is sent token ids or a text; "chat", which is sent messages.
        timeout: seconds without a byte after which an answer is given up.

    Raises:
        ValueError: not an address, or one that holds a password.
    """

    def __init__(self, name: str, url: str, endpoint: Endpoint = "completions", timeout: float = 300.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"servers.{name}={url}: must be an address such as http://127.0.0.1:8000/v1")
        if parts.username or parts.password:
            raise ValueError(f"servers.{name}: an address without a password; the key is read from {KEY}")
        self.name, self.url, self.endpoint, self.timeout = name, url.rstrip("/"), endpoint, timeout
        self.model = ""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[httpx2.AsyncClient]:
        """A client with as many connections as are asked for."""
        key = os.environ.get(KEY)
        async with httpx2.AsyncClient(
            timeout=self.timeout,
            limits=httpx2.Limits(max_connections=None),
            headers={"Authorization": f"Bearer {key}"} if key else {},
        ) as client:
            yield client

    async def look_up(self, client: httpx2.AsyncClient, model: str | None = None) -> None:
        """Ask which model it serves, or check that it serves `model`; `self.model` is set.

        Raises:
            Unreachable: nobody answers, or somebody else.
            ValueError: it does not serve `model`.
        """
        try:
            response = await client.get(f"{self.url}/models")
            response.raise_for_status()
            known = [str(each["id"]) for each in response.json()["data"]]
        except httpx2.HTTPStatusError as error:
            status = error.response.status_code
            remedy = f"; set {KEY}" if status in (401, 403) else ""
            raise Unreachable(f"server {self.name}: {self.url}/models answers HTTP {status}{remedy}") from None
        except httpx2.HTTPError as error:
            raise Unreachable(f"server {self.name}: nobody answers at {self.url} ({first_line(error)})") from None
        except (ValueError, KeyError, TypeError):
            raise Unreachable(
                f"server {self.name}: {self.url}/models is no list of models; does the address end in /v1?"
            ) from None
        if model is not None and model not in known:
            raise ValueError(f"server_model={model}: server {self.name} has {', '.join(known) or 'no model'}")
        if model is None and len(known) != 1:
            raise ValueError(f"server_model: server {self.name} has {', '.join(known) or 'no model'}; name one")
        self.model = model or known[0]

    async def ask(
        self,
        client: httpx2.AsyncClient,
        prompt: Sequence[int] | Sequence[Mapping[str, str]],
        max_tokens: int,
        **options: Any,
    ) -> Streamed | Failure:
        """One answer, streamed; greedy, unless `options` say otherwise.

        Args:
            prompt: token ids, or messages of a chat.
            options: fields of the request, such as temperature and seed.

        Raises:
            Unreachable: nobody answers at all; what a server refuses or breaks off is a Failure.
        """
        body: dict[str, Any] = {
            "prompt" if self.endpoint == "completions" else "messages": prompt,
            "model": self.model, "max_tokens": max_tokens, "temperature": 0,
            "stream": True, "stream_options": {"include_usage": True}, **options,
        }  # fmt: skip
        sent = perf_counter()
        first, usage, reason, drafts = 0.0, None, None, None
        parts: dict[str, str] = {}
        pieces = 0
        try:
            async with client.stream("POST", f"{self.url}/{PATHS[self.endpoint]}", json=body) as response:
                if response.status_code != 200:
                    said = (await response.aread()).decode("utf-8", "replace")
                    return Failure(f"http {response.status_code}", _message(said))
                async for line in response.aiter_lines():
                    if not line.startswith("data:"):
                        continue
                    data = line.removeprefix("data:").strip()
                    if data == "[DONE]":
                        break
                    event = json.loads(data)
                    if "error" in event:
                        return Failure("server_error", _message(data))
                    usage = event.get("usage") or usage
                    drafts = (event.get("metrics") or {}).get("speculative_decoding") or drafts
                    for choice in event.get("choices", []):
                        added = {kind: piece for kind, piece in _pieces(choice) if piece}
                        if added and not parts:
                            first = perf_counter() - sent
                        pieces += bool(added)
                        parts |= {kind: parts.get(kind, "") + piece for kind, piece in added.items()}
                        reason = choice.get("finish_reason") or reason
        except httpx2.ConnectError as error:
            raise Unreachable(f"server {self.name}: nobody answers at {self.url} ({first_line(error)})") from None
        except httpx2.TimeoutException:
            return Failure("timeout", f"no byte in {self.timeout:g} s")
        except httpx2.HTTPError as error:
            return Failure("disconnected", first_line(error))
        except (ValueError, AttributeError, TypeError):
            return Failure("not_json", "an event of the stream is not what the protocol has")
        seconds = perf_counter() - sent
        if reason is None:
            return Failure("cut_short", f"the stream ended after {pieces} pieces without a reason")
        count = usage.get("completion_tokens") if isinstance(usage, dict) else None
        accepted = drafts.get("num_accepted_draft_tokens") if isinstance(drafts, dict) else None
        text = parts.get("text", "") if parts.keys() <= {"text"} else json.dumps(parts, ensure_ascii=False)
        return Streamed(text, count, first or seconds, seconds, pieces, reason, accepted)

    async def counters(self, client: httpx2.AsyncClient, names: Mapping[str, str] = COUNTERS) -> dict[str, float]:
        """What it has counted so far, of drafts unless `names` say otherwise ("accepted_at" by position); empty where
        it does not say.
        """
        try:
            response = await client.get(f"{self.url.removesuffix('/v1')}/metrics")
        except httpx2.HTTPError:
            return {}
        return read_counters(response.text, names) if response.status_code == 200 else {}


def read_counters(text: str, names: Mapping[str, str] = COUNTERS) -> dict[str, float]:
    """vLLM's counters in what Prometheus reads, summed over engines: {"drafts": 3, "accepted_at 0": 2, ...}."""
    found: dict[str, float] = {}
    for name, labels, value in re.findall(r"^([\w:]+)(?:\{(.*)\})? ([0-9.eE+]+)", text, re.MULTILINE):
        if name in names:
            position = re.search(r'position="(\d+)"', labels)
            called = names[name] + (f" {position[1]}" if position else "")
            found[called] = found.get(called, 0.0) + float(value)
    return found


def _pieces(choice: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """What an event adds to an answer, by kind. Ids of calls are left out: they are drawn anew for each answer."""
    delta = choice.get("delta") or {}
    yield "reasoning", delta.get("reasoning") or delta.get("reasoning_content")  # vLLM's name, and its older one
    yield "text", choice.get("text") or delta.get("content")
    yield "refusal", delta.get("refusal")
    for call in delta.get("tool_calls") or []:
        function = call.get("function") or {}
        yield f"call {call.get('index', 0)}", (function.get("name") or "") + (function.get("arguments") or "")


def _message(said: str) -> str:
    """What an error says, in one short line."""
    try:
        error = json.loads(said)["error"]
        said = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(str(said).split())[:200]
