"""What numba compiled is kept in the user's folder, and made anew where it is damaged, foreign or out of date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ngram_trie.store import compiled
from ngram_trie.store.files import PROJECT
from ngram_trie.tree import grow

#: Says how often something was compiled, and what it gave.
ASK = """
import numpy as np
from numba.core import event
from ngram_trie.tree import _depths
with event.install_recorder("numba:compile") as seen:
    depths = _depths(np.array([-1, 0, 1])).tolist()
print(len(seen.buffer), depths)
"""


def asked(folder: Path) -> tuple[bool, str]:
    """Whether something was compiled in a new process, and what it said of it."""
    told = subprocess.run(
        [sys.executable, "-c", ASK], cwd=PROJECT, capture_output=True, text=True, env={"NGRAM_TRIE_CACHE": str(folder)}
    )
    count, _, answer = told.stdout.partition(" ")
    assert answer == "[0, 1, 2]\n", told.stderr
    return count != "0", told.stderr


def test_compiled_once_and_again_where_the_file_is_damaged_or_of_other_sources(tmp_path: Path) -> None:
    assert asked(tmp_path)[0] and not asked(tmp_path)[0]
    (file,) = (tmp_path / "compiled").glob("*/*")
    whole = file.read_bytes()
    flipped = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]
    for damaged in (b"", b"something else", whole[: len(whole) // 2], flipped, b"0" * 64 + whole[64:]):
        file.write_bytes(damaged)
        assert asked(tmp_path)[0]
        assert file.read_bytes()[:130] == whole[:130] and not asked(tmp_path)[0]


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    is_compiled, said = asked(tmp_path / "file")
    assert is_compiled and "NGRAM_TRIE_CACHE" in said and said.count("\n") == 1


def test_a_change_of_a_source_that_is_called_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """`blend.prediction` compiles functions of `blend.ppm` into its own."""
    read, changed = Path.read_bytes, ""
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"#" * (path.name == changed))
    stamps = {}
    for changed in ("", "ppm.py", "prediction.py", "suffix_decoding.py", "drafter.py"):
        compiled._stamp.cache_clear()
        stamps[changed] = compiled._stamp("ngram_trie.blend.prediction")
    compiled._stamp.cache_clear()
    assert stamps["suffix_decoding.py"] == stamps["drafter.py"] == stamps[""]
    assert len(set(stamps.values())) == 3


def test_python_does_not_call_an_inner_function() -> None:
    with pytest.raises(TypeError, match="grow: only compiled functions call this"):
        grow(np.zeros(2, np.int64), np.zeros(2, np.int64), 1, 0, 5)
