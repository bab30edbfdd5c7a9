"""The index: what is encoded once, what is found, and what an interrupted build goes on with."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

pytest.importorskip("faiss")
pytest.importorskip("datasets")

from ngram_trie.data.answers import has_answer
from ngram_trie.data.retrieval import index
from ngram_trie.data.retrieval.index import Approximate, Exact
from ngram_trie.methods import ConfigError
from ngram_trie.store.files import CONFIGS

ROWS, DIM, SHARD, CHUNK, FACTORY = 700, 16, 100, 32, "IVF8,PQ4x4"
INDEX = "index.faiss"


class Numbers:
    """A corpus of number words."""

    def __len__(self) -> int:
        return ROWS

    def contents(self, start: int, stop: int) -> list[str]:
        return [f"passage {row}" for row in range(start, stop)]


class Hashing:
    """An encoder: the vector is drawn by the text; after `calls` calls it is interrupted."""

    def __init__(self, calls: int = sys.maxsize) -> None:
        self.calls = calls

    def encode_passages(self, texts: list[str]) -> np.ndarray:
        if self.calls == 0:
            raise KeyboardInterrupt
        self.calls -= 1
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts]
        drawn = np.stack([np.random.default_rng(seed).standard_normal(DIM, np.float32) for seed in seeds])
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def build(folder: Path, encoder: Hashing | None = None) -> Any:
    """Encode and index, as scripts.build_index does."""
    vectors = index.encoded(Numbers(), encoder or Hashing(), folder, SHARD, CHUNK)
    index.build(vectors, FACTORY, 500, 3, folder / INDEX)
    return vectors


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    build(folder)
    return folder


def true_vectors() -> np.ndarray:
    """(ROWS, DIM), as they are stored, without the code under test."""
    return Hashing().encode_passages(Numbers().contents(0, ROWS)).astype(np.float16).astype(np.float32)


def queries() -> np.ndarray:
    return Hashing().encode_passages([f"question {number}" for number in range(20)])


def test_a_build_that_ended_while_encoding_goes_on_at_the_missing_shard(tmp_path: Path, built: Path) -> None:
    """In the middle of the third shard."""
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, Hashing(10))
    assert len(list(tmp_path.glob("0*.arrow"))) == 2 and not (tmp_path / INDEX).exists()
    encoder = Hashing()
    build(tmp_path, encoder)
    assert sys.maxsize - encoder.calls == 1 + 5 * 4  # one for the dimensions, then four chunks of each of five shards
    found = [Approximate(folder / INDEX, 8).search(queries(), 10) for folder in (tmp_path, built)]
    np.testing.assert_array_equal(*found)


def test_a_finished_build_encodes_nothing(built: Path) -> None:
    encoder = Hashing()
    before = (built / INDEX).stat().st_mtime_ns
    build(built, encoder)
    assert sys.maxsize - encoder.calls == 1 and (built / INDEX).stat().st_mtime_ns == before


def test_a_folder_of_other_settings_is_refused(tmp_path: Path) -> None:
    index.claim(tmp_path, {"corpus": "a", "shard_size": 1})
    index.claim(tmp_path, {"corpus": "a", "shard_size": 1})
    with pytest.raises(FileExistsError, match=r"shard_size 1 there, 2 here.*another folder=FOLDER"):
        index.claim(tmp_path, {"corpus": "a", "shard_size": 2})


def test_exact_search_is_brute_force(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "BLOCK", 64)
    exact = ((queries()[:, None] - true_vectors()[None]) ** 2).sum(-1)
    found = Exact(build(built)).search(queries(), 10)
    np.testing.assert_array_equal(found, np.argsort(exact, axis=1)[:, :10])


def test_all_lists_probed_hold_each_row_once_and_mostly_the_nearest_ones(built: Path) -> None:
    every = Approximate(built / INDEX, 8).search(queries(), ROWS)
    assert all(sorted(row) == list(range(ROWS)) for row in every.tolist())
    exact = np.argsort(((queries()[:, None] - true_vectors()[None]) ** 2).sum(-1), axis=1)
    shared = [len(set(mine[:50]) & set(true[:50])) for mine, true in zip(every.tolist(), exact.tolist(), strict=True)]
    assert np.mean(shared) > 20  # by chance 3.6


def test_few_lists_probed_find_fewer_and_never_a_wrong_row(built: Path) -> None:
    found = Approximate(built / INDEX, 1).search(queries(), ROWS)
    assert (found == -1).any() and found.max() < ROWS
    for nprobe in (0, 9):
        with pytest.raises(ValueError, match=f"nprobe={nprobe}: 1 to 8"):
            Approximate(built / INDEX, nprobe)


class FakeGpu:
    """An index that FAISS holds on a GPU: the CPU's, which notes what is asked of it there."""

    def __init__(self, index: Any) -> None:
        self.index, self.done = index, set[str]()

    def train(self, vectors: np.ndarray) -> None:
        self.done.add("train")
        self.index.train(vectors)

    def add(self, vectors: np.ndarray) -> None:
        self.done.add("add")
        self.index.add(vectors)

    def search(self, queries: np.ndarray, k: int) -> Any:
        self.done.add("search")
        return self.index.search(queries, k)


@pytest.mark.parametrize("takes_it", [True, False])
def test_where_faiss_sees_a_gpu_it_trains_adds_and_searches_there(
    takes_it: bool, tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[FakeGpu] = []

    def to_gpu(resources: object, device: int, cpu: Any, options: Any) -> Any:
        if not takes_it:
            raise RuntimeError("no such index on a GPU")
        assert options.useFloat16 and device == 0 and resources == "resources"
        made.append(FakeGpu(cpu))
        return made[-1]

    for name, stand_in in {
        "get_num_gpus": lambda: 1,
        "StandardGpuResources": lambda: "resources",
        "GpuClonerOptions": type("GpuClonerOptions", (), {}),
        "index_cpu_to_gpu": to_gpu,
        "index_gpu_to_cpu": lambda gpu: gpu.index,
    }.items():
        monkeypatch.setattr(f"faiss.{name}", stand_in, raising=False)
    index._gpu_resources.cache_clear()
    build(tmp_path)
    found = Approximate(tmp_path / INDEX, 8).search(queries(), 10)
    index._gpu_resources.cache_clear()
    assert [each.done for each in made] == [{"train", "add"}, {"search"}] * takes_it
    monkeypatch.undo()
    np.testing.assert_array_equal(found, Approximate(built / INDEX, 8).search(queries(), 10))


def test_what_cannot_be_built_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no such index here; `python -m scripts.build_index` builds it"):
        Approximate(tmp_path / INDEX, 1)
    vectors = index.encoded(Numbers(), Hashing(), tmp_path, SHARD, CHUNK)
    for factory in ("IVF8,PQ5", "IVF701,PQ4", "nonsense"):
        with pytest.raises(ValueError, match=rf"^index={factory}: not over .* vectors \(") as error:
            index.build(vectors, factory, ROWS, 0, tmp_path / INDEX)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "answers", "there"),
    [
        ("The works of Mark Twain.", ["mark twain"], True),
        ("Clemens (Twain, Mark)", ["Mark Twain", "Twain Mark"], True),
        ("Mark Twains", ["Mark Twain"], False),
        ("he was in the USA", ["U.S.A."], True),
        ("Café au lait", ["cafe\u0301"], True),
        ("nothing", ["The", "!", ""], False),
    ],
)
def test_an_answer_is_found_as_whole_normalised_words(text: str, answers: list[str], there: bool) -> None:
    assert has_answer(text, answers) is there


@pytest.mark.parametrize("factory", ["Flat", "HNSW32", "PQ8"])
def test_an_index_without_lists_is_refused_before_anything_is_encoded(factory: str) -> None:
    config = OmegaConf.merge(OmegaConf.load(CONFIGS / "retrieval.yaml"), {"index": factory})
    with pytest.raises(ConfigError, match=rf"index={factory}: it has no lists to search"):
        index.parts_of(config)
