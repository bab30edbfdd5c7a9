"""A stand-in for the model hub on loopback, which real clients (transformers, datasets, huggingface_hub) load from.

It serves local folders under real names: metadata, trees, files with redirects for large ones, ranges. It refuses as
the hub does: gated repositories, wrong tokens, 503, connections that are cut. Plain downloads of other hosts are there,
too: `NGRAM_TRIE_MIRROR` points to `HubServer.url`, and a path begins with the host.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

#: Files of these kinds lie in large file storage: the hub answers with a redirect to another address.
LARGE = (".bin", ".safetensors", ".pt", ".parquet", ".model")
#: Tokens: of someone who has accepted every licence, and of someone who has not.
GOOD, OTHER = "good", "other"


@dataclass
class Repository:
    """A repository of the hub.

    Attributes:
        revisions: branch, tag or commit -> the folder with its files.
        answer: None serves it to all; "gated" to those with the token GOOD; "unavailable" answers 503.
    """

    revisions: dict[str, Path]
    answer: str | None = None

    def find(self, revision: str) -> tuple[str, Path] | None:
        """Commit and folder of a branch, tag or commit; "main" is the first one where none has that name."""
        if revision == "main" and "main" not in self.revisions:
            revision = next(iter(self.revisions))
        commits = {
            name if len(name) == 40 else hashlib.sha1(name.encode()).hexdigest(): name for name in self.revisions
        }
        for commit, name in commits.items():
            if revision in (name, commit):
                return commit, self.revisions[name]
        return None


@dataclass
class Reply:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""


@dataclass
class HubServer:
    """A hub at `url` while it is entered as a context.

    Attributes:
        repositories: ("model" or "dataset", id) -> repository.
        files: path, host first -> file of a plain download.
        cuts: end of a path -> how often its answer still breaks off in the middle.
        down: whether every request is answered by 503.
        requests: "METHOD path" of all requests.
    """

    repositories: dict[tuple[str, str], Repository] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    cuts: dict[str, int] = field(default_factory=dict)
    down: bool = False
    requests: list[str] = field(default_factory=list)

    def __enter__(self) -> HubServer:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                hub.requests.append(f"{self.command} {self.path}")
                reply = hub.reply(self.path, self.headers.get("Authorization", "").removeprefix("Bearer "))
                wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
                size = len(reply.content)
                if wanted and reply.status == 200:
                    first = int(wanted[1])
                    reply.status, reply.content = 206, reply.content[first:]
                    reply.headers["Content-Range"] = f"bytes {first}-{size - 1}/{size}"
                self.send_response(reply.status)
                for key, value in ({"Content-Length": str(len(reply.content))} | reply.headers).items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command == "HEAD":
                    return
                if reply.status in (200, 206) and (cut := hub.cut(self.path)):
                    hub.cuts[cut] -= 1
                    self.wfile.write(reply.content[: len(reply.content) // 2])
                    self.close_connection = True
                    return
                self.wfile.write(reply.content)

            do_GET = do_HEAD = do_POST = handle_any

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def connect(self, monkeypatch: pytest.MonkeyPatch, home: Path, token: str = "") -> None:
        """Let this process's clients ask this hub, with caches below `home`."""
        changes = {
            "ENDPOINT": self.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": f"{self.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_HUB_OFFLINE": False,
        }
        for name, value in changes.items():
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
        monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
        monkeypatch.setenv("NGRAM_TRIE_MIRROR", self.url)
        monkeypatch.setenv("NGRAM_TRIE_DATA", str(home / "plain"))
        monkeypatch.setenv("HF_TOKEN", token)

    def cut(self, path: str) -> str | None:
        return next((end for end, times in self.cuts.items() if times and path.endswith(end)), None)

    def downloads(self) -> list[str]:
        """The paths of files whose content was asked for."""
        return [line.split()[1] for line in self.requests if line.startswith("GET ") and "/api/" not in line]

    def reply(self, address: str, token: str) -> Reply:
        """The answer to a request."""
        path, query = unquote(urlsplit(address).path).strip("/"), urlsplit(address).query
        if self.down:
            return refuse(503, "", "Service Unavailable")
        if path in self.files:
            return Reply(200, {}, self.files[path].read_bytes())
        if path.startswith("large/"):
            return Reply(200, {}, Path(f"/{path.removeprefix('large/')}").read_bytes())
        is_api, path = path.startswith("api/"), path.removeprefix("api/")
        kind = "dataset" if path.startswith("datasets/") else "model"
        parts = path.removeprefix("datasets/").removeprefix("models/").split("/")
        name, (action, revision), rest = "/".join(parts[:2]), (*parts[2:4], "", "")[:2], "/".join(parts[4:])
        repository = self.repositories.get((kind, name))
        if token not in ("", GOOD, OTHER):
            return refuse(401, "", "Invalid credentials in Authorization header")
        if repository is None:
            return refuse(404 if token else 401, "RepoNotFound", "Repository not found")
        if repository.answer == "unavailable":
            return refuse(503, "", "Service Unavailable")
        if repository.answer == "gated" and token != GOOD and action == "resolve":
            return refuse(403 if token else 401, "GatedRepo", f"Access to {kind} {name} is restricted.")
        found = repository.find(revision or "main")
        if found is None:
            return refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        commit, folder = found
        if not is_api:
            return self.file(commit, folder / rest)
        if action in ("", "revision"):
            siblings = [{"rfilename": about["path"], "size": about["size"]} for about in entries(folder, folder)]
            gated = "manual" if repository.answer == "gated" else False
            about = {"id": name, "sha": commit, "siblings": siblings, "private": False, "gated": gated, "tags": []}
            return as_json(about | {"downloads": 0, "likes": 0})
        if action == "tree" and (folder / rest).is_dir():
            is_deep = "recursive=true" in query.lower()
            return as_json([*entries(folder, folder / rest, is_deep)])
        return refuse(404, "EntryNotFound", f"{rest} does not exist", commit)

    def file(self, commit: str, file: Path) -> Reply:
        if not file.is_file():
            return refuse(404, "EntryNotFound", f"{file.name} does not exist", commit)
        content = file.read_bytes()
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": commit}
        if file.suffix not in LARGE:
            return Reply(200, headers, content)
        # Another host, as the storage of large files is.
        linked = {"X-Linked-Size": str(len(content)), "X-Linked-ETag": headers["ETag"]}
        return Reply(302, headers | linked | {"Location": f"{self.url.replace('127.0.0.1', 'localhost')}/large{file}"})


def entries(root: Path, folder: Path, is_deep: bool = True) -> Iterator[dict[str, Any]]:
    """What a tree lists of the files in a folder."""
    for path in sorted(folder.rglob("*") if is_deep else folder.iterdir()):
        about = {"path": str(path.relative_to(root)), "size": path.stat().st_size, "oid": "0" * 40}
        if path.is_file():
            yield about | {"type": "file"}
        elif not is_deep:
            yield about | {"type": "directory", "size": 0}


def as_json(content: Any) -> Reply:
    return Reply(200, {"Content-Type": "application/json"}, json.dumps(content).encode())


def refuse(status: int, code: str, message: str, commit: str = "") -> Reply:
    headers = {"X-Error-Message": message}
    headers |= {"X-Error-Code": code} if code else {}
    headers |= {"X-Repo-Commit": commit} if commit else {}
    return Reply(status, headers, json.dumps({"error": message}).encode())
