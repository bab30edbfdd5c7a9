"""What was built before and was changed on the disk is not used."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ngram_trie.baselines.datastore import Datastore, build_datastore
from ngram_trie.store.ngram_tables import NgramTables


def datastore(folder: Path) -> Callable[[Path], object]:
    build_datastore([[1, 2, 3], [2, 3, 4, 5]], folder)
    return Datastore


def ngram_tables(folder: Path) -> Callable[[Path], object]:
    tokens, shares = np.array([[1, 2], [2, 0], [0, 1]]), np.full((3, 2), 0.5, np.float32)
    NgramTables("", False, np.array([[0, 1, 2]] * 2), tokens, tokens[:, :, None], shares).write(folder)
    return NgramTables.open


@pytest.mark.parametrize("build", [datastore, ngram_tables])
def test_every_changed_byte_is_noticed(build: Callable[[Path], Callable[[Path], object]], tmp_path: Path) -> None:
    read = build(tmp_path)
    read(tmp_path)
    for path in sorted(tmp_path.glob("*.bin")):
        whole = path.read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 16)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            os.utime(path, ns=(place, place))  # two writes may be too near for the clock
            with pytest.raises(ValueError, match="damaged or of another format") as error:
                read(tmp_path)
            assert str(tmp_path) in str(error.value)
        path.write_bytes(whole)
    read(tmp_path)
