"""A stand-in for the Hugging Face Hub, and a client of it: real loaders meet a hub where there is none.

`HubServer` speaks as much of the hub's protocol as transformers and huggingface_hub use to load models and data sets,
and serves local folders; it can refuse in the ways that the hub does. `Client` is another Python process whose
environment points there and whose caches are its own. Only tests use either.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ngram_trie.store.files import PROJECT


@dataclass
class Repository:
    """A repository of the hub.

    Attributes:
        revisions: name of a branch, tag or commit -> the folder with its files.
        answer: None serves it; "gated" serves those whose token is "good"; "unavailable" answers 503.
    """

    revisions: dict[str, Path]
    answer: str | None = None

    def commit(self, name: str) -> str:
        return name if len(name) == 40 else hashlib.sha1(name.encode()).hexdigest()

    def find(self, revision: str) -> tuple[str, Path] | None:
        """Commit and folder of a branch, tag or commit."""
        for name, folder in self.revisions.items():
            if revision in (name, self.commit(name)):
                return self.commit(name), folder
        return None


@dataclass
class HubServer:
    """A hub at `url` while it is entered as a context, again if entered again.

    Attributes:
        repositories: ("model" or "dataset", id) -> repository.
        files: path -> content of plain downloads.
        requests: "METHOD path" of all that was asked.
    """

    repositories: dict[tuple[str, str], Repository] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    port: int = 0

    def __enter__(self) -> HubServer:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                self.rfile.read(length)
                hub.requests.append(f"{self.command} {self.path}")
                status, headers, content = hub.reply(self.path, self.headers.get("Authorization", ""))
                self.send_response(status)
                for key, value in ({"Content-Length": str(len(content))} | headers).items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_HEAD = do_POST = handle_any

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.port = self._server.server_port
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reply(self, path: str, authorization: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content for a request."""
        path, query = unquote(urlsplit(path).path), urlsplit(path).query
        if path in self.files:
            return 200, {}, self.files[path]
        steps = path.strip("/").split("/")
        is_api = steps[0] == "api"
        kind = "dataset" if "datasets" in steps[:2] else "model"
        steps = steps[steps.index("datasets") + 1 :] if kind == "dataset" else steps[2 if is_api else 0 :]
        name = "/".join(steps[:2])
        action, revision, rest = (*steps[2:4], *["", ""][len(steps[2:4]) :], "/".join(steps[4:]))
        repository = self.repositories.get((kind, name))
        if repository is None:
            return refuse(404 if authorization else 401, "RepoNotFound", "Repository not found")
        if repository.answer == "unavailable":
            return refuse(503, "", "Service unavailable")
        if repository.answer == "gated" and authorization != "Bearer good" and action in ("resolve", "tree"):
            return refuse(403 if authorization else 401, "GatedRepo", f"Access to {kind} {name} is restricted.")
        found = repository.find(revision or "main")
        if found is None:
            return refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        commit, folder = found
        if not is_api:
            return self.file(commit, folder / rest)
        if action in ("", "revision"):
            siblings = [{"rfilename": str(f.relative_to(folder))} for f in folder.rglob("*") if f.is_file()]
            about = {"id": name, "sha": commit, "siblings": siblings, "private": False, "tags": [], "downloads": 0}
            return answer(about)
        if action == "tree":
            if not (folder / rest).is_dir():
                return refuse(404, "EntryNotFound", f"{rest} does not exist", commit)
            inside = (folder / rest).rglob("*") if "recursive=true" in query.lower() else (folder / rest).iterdir()
            return answer([entry(folder, path) for path in sorted(inside)])
        return refuse(404, "", "Not found")

    def file(self, commit: str, file: Path) -> tuple[int, dict[str, str], bytes]:
        if not file.is_file():
            return refuse(404, "EntryNotFound", f"{file.name} does not exist", commit)
        content = file.read_bytes()
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": commit,
            "X-Linked-Size": str(len(content)),
        }
        return 200, headers, content


def entry(folder: Path, path: Path) -> dict[str, Any]:
    """What the hub says of a file or folder."""
    if path.is_dir():
        return {"type": "directory", "path": str(path.relative_to(folder)), "oid": "0" * 40, "size": 0}
    oid = hashlib.sha1(path.read_bytes()).hexdigest()
    return {"type": "file", "path": str(path.relative_to(folder)), "oid": oid, "size": path.stat().st_size}


def answer(content: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(content).encode()


def refuse(status: int, code: str, message: str, commit: str = "") -> tuple[int, dict[str, str], bytes]:
    headers = {"X-Error-Message": message}
    headers |= {"X-Error-Code": code} if code else {}
    headers |= {"X-Repo-Commit": commit} if commit else {}
    return status, headers, json.dumps({"error": message}).encode()


class Client:
    """Another Python that loads with this project's functions from `endpoint` into caches below `home`."""

    def __init__(self, endpoint: str, home: Path) -> None:
        own = {
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(home / "hf"),
            "NGRAM_TRIE_DATA": str(home / "data"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "tests")]),
            "no_proxy": "127.0.0.1",
        }
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
        self.home = home
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(home / "client.log").open("w"),
            text=True,
            env=inherited | own,
        )

    def ask(self, what: str, *args: Any, token: str = "", **kwargs: Any) -> dict[str, Any]:
        """Load "model", "dataset" or another of `serve_requests`: what was loaded, in short, or {"error": text}.

        Args:
            token: as HF_TOKEN.
        """
        assert self._process.stdin and self._process.stdout
        request = {"what": what, "args": args, "kwargs": kwargs, "token": token}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        # Not asked to end: torch takes seconds to.
        self._process.kill()
        self._process.communicate()


def serve_requests() -> None:
    """The client's side: a request a line on stdin, an answer a line on what was stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to the log
    from unittest import mock

    from huggingface_hub.utils import _http
    from omegaconf import OmegaConf

    from ngram_trie.baselines.checkpoints import locate, read_tensors
    from ngram_trie.methods import build
    from ngram_trie.store.files import CONFIGS
    from ngram_trie.targets.load import load_model, load_tokenizer

    def model(path: str, revision: str | None = None) -> Any:
        loaded = load_model(path, device="cpu", revision=revision)
        return float(loaded.lm_head.weight.double().sum())

    def tokenizer(path: str, revision: str | None = None) -> Any:
        return load_tokenizer(path, revision)("The quick brown fox")["input_ids"]

    def dataset(name: str, **fields: Any) -> Any:
        built = build(OmegaConf.merge(OmegaConf.load(CONFIGS / "dataset" / f"{name}.yaml"), fields), f"dataset {name}")
        return [question.message for question in built.questions]

    def weights(path: str, revision: str | None = None) -> Any:
        return {key: float(value.sum()) for key, value in read_tensors(locate(path, revision)).items()}

    def configured(group: str, file: str, **fields: Any) -> Any:
        return build(OmegaConf.merge(OmegaConf.load(CONFIGS / f"{group}/{file}.yaml"), fields), group)

    def encoder(**fields: Any) -> Any:
        return configured("encoder", "bge_m3", **fields).encode_passages(["A passage."]).tolist()

    def corpus(**fields: Any) -> Any:
        passages = configured("corpus", "psgs_w100", **fields)
        return passages.contents(0, len(passages))

    def questions(**fields: Any) -> Any:
        asked = build(OmegaConf.merge(OmegaConf.load(CONFIGS / "retrieval.yaml").questions, fields), "questions")
        return [[question.id, question.question, question.answers] for question in asked]

    loaders = [model, tokenizer, dataset, weights, encoder, corpus, questions]
    # The hub's client waits half a minute, in five steps, before it gives up on a network.
    _http.time = mock.Mock(wraps=_http.time, sleep=lambda seconds: None)  # type: ignore[attr-defined]

    for line in sys.stdin:
        request = json.loads(line)
        os.environ.pop("HF_TOKEN", None)
        if request["token"]:
            os.environ["HF_TOKEN"] = request["token"]
        load = {loader.__name__: loader for loader in loaders}[request["what"]]
        try:
            result = {"loaded": load(*request["args"], **request["kwargs"])}
        except (FileNotFoundError, ValueError) as error:  # what the loaders promise to raise
            result = {"error": str(error)}
        except BaseException as error:
            result = {"error": f"UNEXPECTED {type(error).__name__}: {error}"}
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    serve_requests()
