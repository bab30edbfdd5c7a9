"""Measurements that are no answers, such as a server under a load: a line of JSON each, beside a manifest of what they
were measured with. As with records an interruption loses at most the line under way, one process writes at a time, and
each line ends with a checksum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngram_trie.files import drop_torn_line, one_writer
from ngram_trie.records import RunManifest, sealed, unsealed

MANIFEST = "manifest.json"


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; a torn last one (a killed run) is left out.

    Raises:
        ValueError: any other line that is none; the message names file, line and reason.
    """
    rows: list[dict[str, Any]] = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                break
            try:
                row = json.loads(unsealed(line[:-1].decode())[0])
                if not isinstance(row, dict):
                    raise ValueError(f"a {type(row).__name__}, not an object")
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from None
            rows.append(row)
    return rows


class Journal:
    """Appends to a file what is measured; what was written before an interruption is in `rows`.

    Args:
        path: the file, beside which the manifest goes.
        manifest: what is measured.
        force: throw away what the folder holds of another run.

    Raises:
        FileExistsError: the folder holds another run, or another process writes there.
        ValueError: a line that is none.
    """

    def __init__(self, path: Path, manifest: RunManifest, force: bool = False) -> None:
        self.path, about = path, path.with_name(MANIFEST)
        self._lock = one_writer(path.parent)
        try:
            if force:
                path.unlink(missing_ok=True)
                about.unlink(missing_ok=True)
            instead = "give another folder, or replace it by force=true"
            if about.exists() and (found := RunManifest.read(about).run) != manifest.run:
                raise FileExistsError(
                    f"{path.parent} holds another run ({found} there, {manifest.run} here): {instead}"
                )
            if not about.exists():
                if path.exists():
                    raise FileExistsError(f"{path}: no manifest says of which run: {instead}")
                manifest.write(about)
            if path.exists():
                drop_torn_line(path)
            self.rows = read_journal(path) if path.exists() else []
            self._file = path.open("a", encoding="utf-8")
        except BaseException:
            self._lock.release()
            raise

    def add(self, row: Mapping[str, Any]) -> None:
        self._file.write(sealed(json.dumps(row, separators=(",", ":"))) + "\n")
        self._file.flush()
        self.rows.append(dict(row))

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._file.close()
        finally:
            self._lock.release()
