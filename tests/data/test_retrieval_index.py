"""Vectors, index, estimates and recall: what a kill leaves behind, agreement with brute force, counts by hand."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import faiss
import numpy as np
import pandas as pd
import pytest

from ngram_trie.cli.app import invoke
from ngram_trie.data.retrieval import estimate, index, scaling, vectors
from ngram_trie.data.retrieval.estimate import Estimate
from ngram_trie.data.retrieval.index import Flat, IndexSettings, IvfPq, sample_rows
from ngram_trie.data.retrieval.recall import first_hit
from ngram_trie.data.retrieval.vectors import VectorStore
from ngram_trie.files import PROJECT
from ngram_trie.quality import has_answer, normalize
from scripts import bench_index

ROWS, DIM, SHARD, CHUNK = 700, 16, 100, 32
SETTINGS = IndexSettings(nlist=8, m=4, bits=4, train_size=500, seed=3)
REMEDY = "give another folder"


class Numbers:
    """A corpus of number words."""

    def __len__(self) -> int:
        return ROWS

    def contents(self, start: int, stop: int) -> list[str]:
        return [f"passage {row}" for row in range(start, stop)]


class Hashing:
    """An encoder: the vector is drawn by the text; after `calls` calls it does what `then` says."""

    def __init__(self, calls: int = sys.maxsize, then=None) -> None:
        self.calls, self.then = calls, then

    def encode_passages(self, texts: list[str]) -> np.ndarray:
        if self.calls == 0:
            self.then()
        self.calls -= 1
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts]
        drawn = np.stack([np.random.default_rng(seed).standard_normal(DIM, np.float32) for seed in seeds])
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def build(folder: Path, encoder: Hashing | None = None, progress=lambda _: None) -> VectorStore:
    """Encode and index, as scripts.build_index does."""
    header = {"corpus": "numbers", "passages": ROWS, "dim": DIM, "shard_size": SHARD}
    vectors.claim(folder / "vectors", header, REMEDY)
    store = VectorStore(folder / "vectors", ROWS, DIM, SHARD)
    vectors.encode(Numbers(), encoder or Hashing(), store, CHUNK, lambda _: None)
    index.build(store, SETTINGS, folder / "ivfpq", progress)
    return store


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    build(folder)
    return folder


def all_vectors(folder: Path) -> np.ndarray:
    """(ROWS, DIM) float32, read without the code under test."""
    return np.concatenate([np.load(path) for path in sorted((folder / "vectors").glob("*.npy"))]).astype(np.float32)


def queries() -> np.ndarray:
    return Hashing().encode_passages([f"question {number}" for number in range(20)])


def assert_same(folder: Path, built: Path) -> None:
    """Byte-identical vectors and lists, the same files, the same results."""
    for part in ("vectors", "ivfpq"):
        assert sorted(p.name for p in (folder / part).iterdir()) == sorted(p.name for p in (built / part).iterdir())
    for path in [*(built / "vectors").glob("*.npy"), built / "ivfpq" / "lists.ivfdata"]:
        assert (folder / path.relative_to(built)).read_bytes() == path.read_bytes(), path.name
    for mine, other in zip(*(IvfPq(f / "ivfpq", 4).search(queries(), 10) for f in (folder, built)), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_build_killed_while_encoding_goes_on_to_the_same_bytes(tmp_path: Path, built: Path) -> None:
    """SIGKILL in the middle of the third shard, in a process of its own."""
    code = (
        "import os, signal, sys; from pathlib import Path; import test_retrieval_index as t\n"
        "t.build(Path(sys.argv[1]), t.Hashing(9, lambda: os.kill(os.getpid(), signal.SIGKILL)))"
    )
    paths = {"PYTHONPATH": f"{PROJECT / 'tests' / 'data'}:{PROJECT / 'tests'}:{PROJECT}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=paths, capture_output=True)
    assert done.returncode == -9, done.stderr.decode()
    left = sorted(path.name for path in (tmp_path / "vectors").iterdir())
    assert left == ["00000.npy", "00001.npy", "00002.npy.tmp", "header.json"]
    build(tmp_path)
    assert_same(tmp_path, built)


@pytest.mark.parametrize("step", ["train", "add 3/7", "merge"])
def test_a_build_cut_short_while_indexing_goes_on(tmp_path: Path, built: Path, step: str) -> None:
    def stop(reached: str) -> None:
        if reached == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, progress=stop)
    build(tmp_path, Hashing(0, lambda: pytest.fail("encoded again")))
    assert_same(tmp_path, built)


def test_a_torn_shard_is_written_again_and_a_finished_build_does_nothing(tmp_path: Path, built: Path) -> None:
    shutil.copytree(built / "vectors", tmp_path / "vectors")
    torn = tmp_path / "vectors" / "00004.npy"
    torn.write_bytes(torn.read_bytes()[:1000])
    assert VectorStore(tmp_path / "vectors", ROWS, DIM, SHARD).missing() == [4]
    with pytest.raises(FileNotFoundError, match="1 of 7 shards are missing"):
        VectorStore.open(tmp_path / "vectors")
    build(tmp_path)
    assert_same(tmp_path, built)
    steps: list[str] = []
    build(tmp_path, Hashing(0, lambda: pytest.fail("encoded again")), steps.append)
    assert steps == []


def test_an_encoder_that_returns_too_few_vectors_leaves_no_shard(tmp_path: Path) -> None:
    (tmp_path / "vectors").mkdir()
    store = VectorStore(tmp_path / "vectors", ROWS, DIM, SHARD)
    with pytest.raises(ValueError, match="shard 0: 60 vectors for 100 rows"):
        store.write(0, iter([np.zeros((60, DIM))]))
    assert store.missing() == list(range(7))


def test_a_folder_of_another_corpus_or_index_is_refused(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileExistsError, match=r"corpus numbers there, words here.*give another folder"):
        other = {"corpus": "words", "passages": ROWS, "dim": DIM, "shard_size": SHARD}
        vectors.claim(built / "vectors", other, REMEDY)
    with pytest.raises(FileExistsError, match=r"nlist 8 there, 16 here.*delete .*ivfpq to index the vectors anew"):
        store = VectorStore.open(built / "vectors")
        index.build(store, IndexSettings(16, 4, 4, 500, 3), built / "ivfpq", lambda _: None)
    with pytest.raises(FileExistsError, match=r"vectors \w+ there, other here"):
        monkeypatch.setattr(store, "identity", lambda: "other")
        index.build(store, SETTINGS, built / "ivfpq", lambda _: None)


def test_gpus_are_taken_where_faiss_sees_some(tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """k-means and the assignment are handed over; what comes of it is the same. (There is no GPU in this test.)"""
    moved = []
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2, raising=False)
    monkeypatch.setattr(
        faiss, "index_cpu_to_all_gpus", lambda index: moved.append(index) or faiss.clone_index(index), raising=False
    )
    build(tmp_path)
    assert [index.ntotal for index in moved] == [0, SETTINGS.nlist]
    assert_same(tmp_path, built)


def test_flat_search_is_brute_force(built: Path) -> None:
    rows = all_vectors(built)
    assert rows.shape == (ROWS, DIM)
    exact = ((queries()[:, None] - rows[None]) ** 2).sum(-1)
    distances, found = Flat(VectorStore.open(built / "vectors")).search(queries(), 10)
    np.testing.assert_array_equal(found, np.argsort(exact, axis=1)[:, :10])
    np.testing.assert_allclose(distances, np.sort(exact, axis=1)[:, :10], atol=1e-5)


def test_all_lists_probed_ivfpq_is_brute_force_over_what_it_stored(built: Path) -> None:
    """Its distances are those to the vectors as PQ stored them; so is the order, and it holds each row once."""
    searcher = IvfPq(built / "ivfpq", SETTINGS.nlist)
    searcher.index.make_direct_map()
    stored = searcher.index.reconstruct_n(0, ROWS)
    exact = ((queries()[:, None] - stored[None]) ** 2).sum(-1)
    distances, found = searcher.search(queries(), ROWS)
    assert all(sorted(row) == list(range(ROWS)) for row in found.tolist())
    np.testing.assert_allclose(distances, np.sort(exact, axis=1), atol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(exact, found, 1), distances, atol=1e-4)
    # and what is stored is nearer to its own vector than to others
    rows = all_vectors(built)
    assert ((stored - rows) ** 2).sum(1).mean() < 0.5 * ((stored - np.roll(rows, 1, 0)) ** 2).sum(1).mean()


def test_few_lists_probed_find_fewer_and_never_a_wrong_row(built: Path) -> None:
    found = IvfPq(built / "ivfpq", 1).search(queries(), ROWS)[1]
    assert (found == -1).any() and found.max() < ROWS
    for nprobe in (0, 9):
        with pytest.raises(ValueError, match=f"nprobe={nprobe}: 1 to 8"):
            IvfPq(built / "ivfpq", nprobe)


def test_a_missing_index_says_what_builds_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no index here; `python -m scripts.build_index` builds it"):
        IvfPq(tmp_path, 1)


def test_the_sample_is_random_seeded_and_not_the_first_rows(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sample_rows(10_000, 1_000, 0)
    assert len(set(rows.tolist())) == 1_000 and (np.diff(rows) > 0).all() and rows.max() < 10_000
    assert 4_500 < rows.mean() < 5_500 and len(set(rows.tolist()) & set(range(1_000))) < 200
    np.testing.assert_array_equal(rows, sample_rows(10_000, 1_000, 0))
    assert set(rows.tolist()) != set(sample_rows(10_000, 1_000, 1).tolist())
    np.testing.assert_array_equal(sample_rows(5, 9, 0), np.arange(5))
    taken: list[np.ndarray] = []
    store = VectorStore.open(built / "vectors")
    take = store.take
    monkeypatch.setattr(store, "take", lambda rows: taken.append(rows) or take(rows))
    index.train(store, SETTINGS)
    np.testing.assert_array_equal(taken[0], sample_rows(ROWS, 500, 3))
    np.testing.assert_array_equal(take(taken[0]), all_vectors(built)[taken[0]])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nlist": 0}, "index.nlist=0: must be an integer of at least 1"),
        ({"m": 1.5}, "index.m=1.5: must be an integer"),
        ({"bits": 16}, "index.bits=16: 4 to 12"),
        ({"m": 5}, "index.m=5: must divide the 16 dimensions"),
        ({"m": 4, "nlist": 701}, "index.nlist=701: needs at least 701 passages to learn from; there are 700"),
        ({"m": 4, "nlist": 8, "train_size": 100}, "index.bits=8: needs at least 256 passages.*there are 100"),
    ],
)
def test_wrong_settings_are_named(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IndexSettings(**settings).check(ROWS, DIM)


def test_the_paper_s_index_by_hand() -> None:
    paper = Estimate(21_015_324, 1024, 100_000, IndexSettings())
    assert paper.vectors == 21_015_324 * 2_048 == 43_039_383_552
    assert paper.lists == 21_015_324 * 72
    assert paper.trained == (4_096 + 256) * 4_096
    assert paper.index == paper.lists + paper.trained == 1_530_929_120
    assert paper.parts == paper.lists + 211 * paper.trained
    assert paper.table == 4_096 * 64 * 256 * 4
    assert paper.training_memory > (262_144 + 65_536) * 4_096
    assert paper.merging_memory == 60_000_000 + 212 * paper.trained + 2 * paper.table + 2 * paper.lists
    assert paper.memory < 8e9 and paper.disk < 60e9
    assert Estimate(100, 1024, 10, IndexSettings(nlist=65_536, m=128)).table == 0


def test_estimates_are_what_lies_on_disk(built: Path) -> None:
    expected = Estimate(ROWS, DIM, SHARD, SETTINGS)
    sizes = {path.name: path.stat().st_size for path in built.rglob("*") if path.is_file()}
    assert sum(size for name, size in sizes.items() if name.endswith(".npy")) == expected.vectors + 7 * 128
    assert sizes["lists.ivfdata"] == expected.lists
    assert 0 <= sizes["trained.faiss"] - expected.trained < 1_000


def test_the_probe_asks_for_passages_from_all_over() -> None:
    asked: list[str] = []
    encoder = Hashing()
    encoder_asked = SimpleNamespace(encode_passages=lambda texts: asked.extend(texts) or encoder.encode_passages(texts))
    rate, dim = estimate.probe(Numbers(), encoder_asked, 80)
    assert dim == DIM and rate > 0
    assert len(asked) == 8 + 10 and asked[-1] == f"passage {ROWS - 1}"


def test_too_little_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2_500_000))
    estimate.check_disk(tmp_path / "not" / "yet", 2_000_000)
    with pytest.raises(OSError, match=r"43 GB of disk needed, 2.5 MB free; give another folder=FOLDER") as error:
        estimate.check_disk(tmp_path / "not" / "yet", 43_000_000_000)
    assert "\n" not in str(error.value)


def test_sizes_and_durations_in_words() -> None:
    assert [estimate.size(n) for n in (12, 1_500, 43.04e9, 1.2e12)] == ["12 B", "1.5 kB", "43 GB", "1.2 TB"]
    words = ["90 seconds", "10 minutes", "6 hours", "4 days"]
    assert [estimate.duration(s) for s in (90, 600, 21_600, 345_600)] == words


def test_the_benchmark_measures_each_phase_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ["--rows", "300", "--dim", "16", "--nlist", "4", "--m", "4", "--train-size", "256", "--shard-size", "200"]
    command = [str(tmp_path / "out"), "--scratch", str(tmp_path / "scratch"), *sizes, "--threads", "1"]
    invoke(bench_index.main, command)
    table = pd.read_csv(tmp_path / "out" / "scaling.csv")
    measured, arithmetic = table[table.kind == "measured"], table[table.kind == "arithmetic"]
    assert list(measured.phase) == list(scaling.PHASES) and (measured.peak_memory_mb > 10).all()
    assert arithmetic.disk_mb.iloc[0] == round(scaling.TARGET * 16 * 2 / 1e6)
    assert not (tmp_path / "scratch" / "bench-300").exists()
    monkeypatch.setattr(scaling, "rows_of", lambda *_: pytest.fail("measured again"))
    invoke(bench_index.main, command)
    assert pd.read_csv(tmp_path / "out" / "scaling.csv").equals(table)


@pytest.mark.parametrize(
    ("text", "answers", "there"),
    [
        ("The works of Mark Twain.", ["mark twain"], True),
        ("Clemens (Twain, Mark)", ["Mark Twain", "Twain Mark"], True),
        ("Mark Twains", ["Mark Twain"], False),
        ("an unmarked twain", ["Mark Twain"], False),
        ("he was in the USA", ["U.S.A."], True),
        ("The Beatles", ["A Beatles"], True),
        ("Café au lait", ["cafe\u0301"], True),
        ("nothing", ["The", "!", ""], False),
        ("two words apart here", ["two apart"], False),
        ("Nineteen  eighty\nfour", ["eighty four"], True),
        ("anything", [], False),
    ],
)
def test_an_answer_is_found_as_whole_normalised_words(text: str, answers: list[str], there: bool) -> None:
    assert has_answer(text, answers) is there


def test_places_by_hand() -> None:
    assert normalize("The  Quick, brown-fox; a dog!") == "quick brownfox dog"
    assert first_hit(["no", "yes: Paris", "Paris"], ["Lyon", "paris"]) == 2
    assert first_hit(["no", "none"], ["paris"]) is None


@pytest.mark.parametrize("name", ["index.faiss", "lists.ivfdata"])
def test_a_changed_index_is_refused(built: Path, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(built / "ivfpq", tmp_path / "ivfpq")
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}: was changed since it was built"):
        IvfPq(folder, 1)
