"""A stand-in for an OpenAI-compatible server: streams answers as such servers do, and fails as they do."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class OpenAIServer:
    """A server at `url` while it is entered as a context.

    Attributes:
        answer: from a request's body to the pieces of its text; of a chat a piece may be a whole delta.
        fail: number of a request (from 0) -> "429", "500", "drop", "not json", "no reason".
        key: the only key it takes; None for any.
        counts: whether it says how many tokens an answer has: as many as its text has words.
        models: what it says it serves.
        metrics: whether it says what became of its drafts, as vLLM does.
        requests: bodies of the answers asked for.
    """

    answer: Callable[[Any], list[Any]] = lambda body: ["one ", "two three ", "four"]
    fail: dict[int, str] = field(default_factory=dict)
    key: str | None = None
    counts: bool = True
    models: Any = ("stand-in",)
    metrics: bool = False
    requests: list[Any] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)

    def __enter__(self) -> OpenAIServer:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if server.key and self.headers.get("Authorization") != f"Bearer {server.key}":
                    self.reply(401, "{}")
                elif self.path == "/v1/models" and server.models is not None:
                    self.reply(200, json.dumps({"data": [{"id": name} for name in server.models]}))
                elif self.path == "/metrics" and server.metrics:
                    self.reply(200, server.counters())
                else:
                    self.reply(404 if self.path == "/metrics" else 200, "<html>")

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server._lock:
                    number = len(server.requests)
                    server.requests.append(body)
                    server.paths.append(self.path)
                self.stream(body, server.fail.get(number, ""))

            def stream(self, body: Any, failure: str) -> None:
                if failure.isdigit():
                    return self.reply(int(failure), json.dumps({"error": {"message": "too much\nto do"}}))
                self.send_response(200)
                self.end_headers()
                pieces = server.answer(body)
                for place, piece in enumerate(pieces):
                    choice: dict[str, Any] = {"index": 0, "finish_reason": None}
                    delta = piece if isinstance(piece, dict) else {"content": piece}
                    choice |= {"text": piece} if "prompt" in body else {"delta": delta}
                    self.event({"choices": [choice]})
                    if place == 1 and failure == "drop":
                        return self.wfile.flush()
                    if failure == "not json":
                        return self.write("data: {broken\n\n")
                if failure != "no reason":
                    self.event({"choices": [{"index": 0, "text": "", "delta": {}, "finish_reason": "stop"}]})
                if server.counts:
                    usage: dict[str, Any] = {"completion_tokens": len("".join(map(str, pieces)).split())}
                    drafts = {"metrics": {"speculative_decoding": {"num_accepted_draft_tokens": 3}}}
                    self.event({"choices": [], "usage": usage, **(drafts if server.metrics else {})})
                self.write(": a comment\n\ndata: [DONE]\n\n")

            def event(self, event: Any) -> None:
                self.write(f"data: {json.dumps(event)}\n\n")

            def write(self, text: str) -> None:
                self.wfile.write(text.encode())
                self.wfile.flush()

            def reply(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def counters(self) -> str:
        """As vLLM's /metrics: each answer had two drafts of three tokens, with two and one accepted."""
        told = len(self.requests)
        return (
            "# HELP vllm:spec_decode_num_drafts_total Number of drafts.\n"
            f'vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {2.0 * told}\n'
            f'vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {6.0 * told}\n'
            f'vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {3.0 * told}\n'
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} {2.0 * told}\n'
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="1"}} {1.0 * told}\n'
            'vllm:num_requests_running{engine="0"} 1.0\nvllm:num_requests_waiting{engine="0"} 2.0\n'
            f'vllm:spec_decode_num_drafts_created{{engine="0"}} 1.7e+09\n'
        )
