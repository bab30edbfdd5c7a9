"""The road to the paper's tables, walked: `make reproduce-table1 PROFILE=paper` from nothing to the table, against a
hub on loopback that has every repository under its real name and in its real layout, with tiny random weights.

What this stands for, and what it cannot: docs/limits.md.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from support.hub_repositories import SHAREGPT, Layout
from support.hub_server import Repository
from support.tiny import SHAPE
from support.tiny_gguf import TOKENS, write_gguf
from transformers import AutoModelForCausalLM, LlamaConfig

from ngram_trie.bench.records import read_records
from ngram_trie.cli.overrides import composed
from ngram_trie.store.files import PROJECT

pytestmark = pytest.mark.slow
#: The rows of the paper's Table 1, and who shares REST's datastore.
ROWS = {"vanilla", "sps", "medusa", "space", "hydra", "lookahead", "rest", "pld", "ngram_trie", "sam_static"}
SETS = {"spec_bench_summarization", "spec_bench_rag", "triviaqa", "hagrid"}
#: Short answers, in single precision, in which they must be the same.
SMALL = ["model.dtype=float32", "measure.max_new_tokens=8", "datasets.triviaqa.limit=2"]


def limits(count: int) -> list[str]:
    """So many prompts of each data set but TriviaQA."""
    return [f"datasets.{name}.limit={count}" for name in sorted(SETS - {"triviaqa"})]


@dataclass
class Walker:
    """A copy of the project, with caches and results of its own, and the hub that it asks."""

    root: Path
    layout: Layout

    @property
    def local(self) -> Path:
        return self.root / "clone" / "results" / "local"

    def start(self, table: str, model: str, settings: list[str], **env: str) -> subprocess.Popen[bytes]:
        own = {
            "HF_ENDPOINT": self.layout.hub.url,
            "HF_HOME": str(self.root / "hf"),
            "NGRAM_TRIE_MIRROR": self.layout.hub.url,
            "NGRAM_TRIE_DATA": str(self.root / "plain"),
            "PYTHONPATH": str(self.root / "clone"),
            "MODEL": model,
            **(env or {"PROFILE": "paper", "ANYWAY": "1"}),
        }
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "CI"))}
        own_settings = [] if env else [*self.layout.settings, *SMALL]  # of the road
        command = [sys.executable, "-m", "scripts.reproduce", table, *own_settings, *settings]
        log = (self.root / "log.txt").open("ab")
        return subprocess.Popen(
            command, cwd=self.root / "clone", env=inherited | own, stdout=log, stderr=log, start_new_session=True
        )

    def walk(self, table: str, model: str, settings: list[str], **env: str) -> tuple[int, str]:
        """Status, and what was printed."""
        status = self.start(table, model, settings, **env).wait(timeout=600)
        return status, (self.root / "log.txt").read_text(errors="replace")


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walker]:
    root = tmp_path_factory.mktemp("road")
    clone = root / "clone"
    (clone / "results").mkdir(parents=True)
    for name in ("ngram_trie", "baselines", "data", "configs", "scripts", "pyproject.toml", "results/paper"):
        (clone / name).symlink_to(PROJECT / name)
    (clone / "results" / "speed").symlink_to(PROJECT / "results" / "speed")
    layout = Layout(root)
    with layout.hub:
        yield Walker(root, layout)


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def killed_after(process: subprocess.Popen[bytes], file: Path, count: int) -> list[str]:
    """Kill the command and all that it started once a file has so many lines; returns them."""
    deadline = time.monotonic() + 300
    while len(lines_of(file)) < count:
        assert process.poll() is None, "it ended before"
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return lines_of(file)


def paper_rows() -> list[str]:
    """One prompt of each, and not the methods that the paper has no row for."""
    methods = composed(["experiment=table1_vicuna_7b", "model=vicuna_7b"]).methods
    return [*limits(1), *(f"~methods.{name}" for name in methods if name not in ROWS)]


def test_table_1_of_vicuna_from_nothing(walker: Walker) -> None:
    table = walker.local / "paper" / "vicuna-7b-v1.3" / "table1"
    known = killed_after(walker.start("table1", "vicuna_7b", paper_rows()), table / "parts/first/records.jsonl", 5)
    hub = walker.layout.hub
    for name in ("AntMan/vicuna-v1.3-7b-space", "ankner/hydra-vicuna-7b-v1.3"):  # no commit is pinned, and main moves
        repository = hub.repositories["model", name]
        moved = shutil.copytree(repository.revisions["main"], walker.root / "moved" / name)
        (moved / "README.md").write_text("A newer commit.\n")
        repository.revisions = {"main": moved}
    (walker.root / "log.txt").unlink()
    status, text = walker.walk("table1", "vicuna_7b", paper_rows())
    assert status == 0, text[-3000:]
    assert lines_of(table / "parts/first/records.jsonl")[: len(known) - 1] == known[:-1]  # the last one may be torn

    rows = pd.read_csv(table / "table.csv")
    rows = rows[rows.protocol == "corrected"].set_index(["method", "dataset"])
    assert set(rows.index) >= {(method, dataset) for method in ROWS for dataset in (*SETS, "all")}
    assert rows.speedup.notna().all() and (rows.num_failures == 0).all()
    assert rows.loc[("space", "all"), "baseline"] == "space_vanilla"
    records = list(read_records(table / "records.jsonl"))
    verdicts = {record.lossless.verdict for record in records if record.lossless}
    assert verdicts == {"identical"} and not any(record.failure for record in records)
    # REST and its store's other reader stand beside a vanilla that took turns with them
    assert {record.session for record in records if record.method in ("rest", "sam_static")} == {1}
    assert {record.session for record in records if record.method == "vanilla"} == {0, 1}
    assert (table / "SHA256SUMS").exists() and "Interim" not in (table / "table.md").read_text()
    readings = pd.read_csv(table / "readings.csv")
    assert {"published", "measured"} <= set(readings.source)

    fetched = hub.downloads()
    edition = [path for path in fetched if SHAREGPT in path and path.endswith(".json")]
    assert edition and not any("Wasteland" in path for path in edition)
    for line in hub.requests:  # no service is asked to convert weights, and no other host for what the mirror has
        assert "/commits/" not in line and "/discussions" not in line
    assert any("dl.fbaipublicfiles.com/dpr" in path for path in fetched)
    assert "max_length" not in text and "Traceback" not in text
    assert "encode, shard 2 of 3" in text and "== 5 of 8" in text


def test_table_4_with_a_method_that_fails(walker: Walker) -> None:
    before, is_there = len(walker.layout.hub.requests), (walker.local / "triviaqa" / "recall.csv").exists()
    hydra = "ankner/hydra-vicuna-7b-v1.3"  # of another model's shape
    settings = [
        *limits(2),
        "+method@methods.hydra=hydra",
        f"methods.hydra.heads={hydra}",
        "methods.hydra.tree=published",
    ]
    status, text = walker.walk("table4", "qwen2_7b_instruct", [*settings, "~methods.suffix"])
    assert status == 1, text[-3000:]
    table = walker.local / "paper" / "qwen2-7b-instruct" / "table4"
    records = list(read_records(table / "records.jsonl"))
    failed = {record.method for record in records if record.failure}
    assert failed == {"hydra"} and {record.dataset for record in records} == SETS
    assert {record.noise_kind for record in records} == {"", "paragraph", "passages"}
    assert all(record.lossless.verdict == "identical" for record in records if record.lossless)
    page = (table / "table.md").read_text()
    assert "Not run: hydra: " in page and "do not fit the target model" in page
    rows: Any = json.loads((table / "table.json").read_text())
    assert "hydra" in json.dumps(rows["measured"]) and (table / "table4" / "table.md").exists()
    if is_there:  # the test above has found TriviaQA's passages: they are not looked for again
        assert not any("bge" in line or "psgs_w100" in line for line in walker.layout.hub.requests[before:])


def test_the_small_table_1_of_a_file_on_the_hub(walker: Walker, tmp_path: Path) -> None:
    """`make reproduce-table1 MODEL=OWNER/NAME/FILE.gguf`."""
    config = LlamaConfig(**SHAPE | {"vocab_size": len(TOKENS), "max_position_embeddings": 8192})
    torch.manual_seed(0)
    write_gguf(tmp_path / "some.gguf", AutoModelForCausalLM.from_config(config))
    walker.layout.hub.repositories["model", "owner/name-GGUF"] = Repository({"main": tmp_path})
    sets = [name for name in composed(["experiment=table1_small"]).datasets if name != "docs_rag"]
    settings = ["datasets.docs_rag.limit=1", *(f"~datasets.{name}" for name in sets), "measure.max_new_tokens=8"]
    status, text = walker.walk("table1", "owner/name-GGUF/some.gguf", settings, PROFILE="small")
    assert status == 0, text[-3000:]
    records = list(read_records(walker.local / "some" / "table1" / "records.jsonl"))
    assert {"vanilla", "hf_generate", "library"} < {record.method for record in records}
    assert not any(record.failure for record in records)
