"""What numba compiled is kept in the user's folder, and made anew where it is damaged, foreign or out of date."""

from __future__ import annotations

import ctypes
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numba.core import event

from ngram_trie.blend import prediction
from ngram_trie.store import compiled, inlining
from ngram_trie.tree import _depths, grow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("NGRAM_TRIE_CACHE", str(tmp_path / "cache"))
    inlining._folder.cache_clear()
    yield tmp_path / "cache"
    inlining._folder.cache_clear()


def is_compiled() -> bool:
    """Whether a process that begins now would compile a function, whose answers are right either way."""
    with event.install_recorder("numba:compile") as seen:
        assert compiled.compiled(_depths.py_func)(np.array([-1, 0, 1])).tolist() == [0, 1, 2]
    return bool(seen.buffer)


def test_compiled_once_and_again_where_the_file_is_damaged_or_of_other_sources(folder: Path) -> None:
    assert not compiled.is_kept(compiled.compiled(_depths.py_func))
    assert is_compiled() and not is_compiled()
    (file,) = folder.glob("compiled/*/*")
    assert compiled.is_kept(compiled.compiled(_depths.py_func))
    whole = file.read_bytes()
    flipped = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]
    for damaged in (b"", b"something else", whole[: len(whole) // 2], flipped, b"0" * 64 + whole[64:]):
        file.write_bytes(damaged)
        assert is_compiled() and not is_compiled()
        assert file.read_bytes()[:64] == whole[:64]


def test_no_two_processes_name_their_functions_alike() -> None:
    """numba keeps constants by a function's name: of code that two processes have kept, one would find the other's."""
    code = "from ngram_trie.store import inlining as i; print(next(i.FunctionIdentity._unique_ids))"
    one, other = (subprocess.check_output([sys.executable, "-c", code]) for _ in range(2))
    assert one != other


def test_code_with_addresses_of_its_process_is_not_kept(folder: Path) -> None:
    labs = ctypes.CDLL(None).labs
    labs.argtypes, labs.restype = [ctypes.c_long], ctypes.c_long
    assert compiled.compiled(lambda number: labs(number))(-3) == 3
    assert not list(folder.glob("compiled/*/*"))


def test_a_folder_that_cannot_be_written_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.write_text("")
    inlining._say.cache_clear()
    assert is_compiled() and is_compiled()
    said = capsys.readouterr().err.splitlines()
    assert len([line for line in said if "set NGRAM_TRIE_CACHE" in line]) == 1


def test_a_change_of_a_source_that_is_called_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """`blend.prediction` compiles functions of `blend.ppm` into its own."""
    read, changed = Path.read_bytes, ""
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"#" * (path.name == changed))
    stamps = {}
    for changed in ("", "ppm.py", "prediction.py", "suffix_decoding.py", "drafter.py"):
        inlining._stamp.cache_clear()
        stamps[changed] = inlining._stamp(prediction.__name__)
    inlining._stamp.cache_clear()
    assert stamps["suffix_decoding.py"] == stamps["drafter.py"] == stamps[""]
    assert len(set(stamps.values())) == 3


def test_python_does_not_call_an_inner_function() -> None:
    with pytest.raises(TypeError, match="grow: only compiled functions call this"):
        grow(np.zeros(2, np.int64), np.zeros(2, np.int64), 1, 0, 5)


@pytest.mark.slow
def test_another_release_of_numba_that_lacks_a_part_breaks_nothing(tmp_path: Path) -> None:
    """Each part that is used is taken away; then drafts are made, and products, by plain numba."""
    source = inspect.getsource(inlining)
    parts = re.findall(r"^from (numba\.core\.\w+) import", source, re.MULTILINE)
    assert len(parts) == 9
    program = """
import importlib, sys
import numba.core.registry
from ngram_trie.store import compiled
kept = dict(sys.modules)
for part in sys.argv[1:]:
    sys.modules |= kept
    del sys.modules["ngram_trie.store.inlining"]
    vars(sys.modules["ngram_trie.store"]).pop("inlining", None)
    sys.modules[part] = None
    assert importlib.reload(compiled).inlining is None, part
sys.modules |= kept  # numba itself needs them
import numpy as np, torch
from ngram_trie.targets import small_gemm
from ngram_trie.trie import NgramTrie
from ngram_trie.methods import make_drafter
from ngram_trie.prompt import Prompt
assert compiled.inlining is None
for name in ("ngram_trie", "blend"):
    drafter = make_drafter(name)
    drafter.start(Prompt(np.array([5, 6, 7, 8, 9, 5, 6, 7])))
    drafter.observe([5])
    print(name, *(drafter.propose(8).tokens[:3]))
weights, rows = torch.randn(40, 24), torch.randn(3, 24)
panels = small_gemm.packed(weights).numpy()
none, sizes = np.empty(0, np.float32), (40, small_gemm.threads_and_kernel(1))
found = small_gemm.product(rows.numpy(), panels, none, np.empty((0, 0), np.float32), *sizes)
assert np.allclose(found, rows @ weights.T, atol=1e-4)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, *parts],
        env=os.environ | {"NGRAM_TRIE_CACHE": str(tmp_path)}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert ran.stdout.splitlines() == ["ngram_trie 5 6 7", "blend 5 6 7"], ran.stderr[-2000:]
