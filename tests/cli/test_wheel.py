"""What `pip install .` puts into an environment: one package with everything that it reads, and the command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ngram_trie.store.files import PROJECT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the checkout, since building leaves files beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    names = ["ngram_trie", "baselines", "configs", "data", "pyproject.toml", "README.md", "LICENSE"]
    for name in [*names, "results/paper", "results/speed"]:
        copy = shutil.copy if (PROJECT / name).is_file() else shutil.copytree
        (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        ignored = {} if copy is shutil.copy else {"symlinks": True, "ignore": shutil.ignore_patterns("__pycache__")}
        copy(PROJECT / name, folder / "clone" / name, **ignored)  # type: ignore[operator]
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*command, str(folder / "clone")], check=True, timeout=300)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_a_wheel_holds_one_package_with_everything_that_it_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"ngram_trie"}
    for pattern in (
        *("baselines/*.py", "configs/**/*.yaml", "results/paper/*.csv", "results/speed/tiny-epyc/curve.json"),
        *("data/*.py", "data/tiny/**/*", "data/architectures/*/*", "data/templates/*", "ngram_trie/**/*.py"),
        *("ngram_trie/report/templates/*", "results/speed/tiny-epyc/curve.json"),
    ):
        files = [path.relative_to(PROJECT) for path in PROJECT.glob(pattern) if path.is_file()]
        files = [
            Path(*path.parts[path.parts[0] == "ngram_trie" :]) for path in files if "__pycache__" not in path.parts
        ]
        assert files and {f"ngram_trie/{path}" for path in files} <= names, pattern


@pytest.mark.slow
def test_an_installed_command_runs_in_any_folder_and_writes_there(wheel: Path, tmp_path: Path) -> None:
    installed, folder = tmp_path / "installed", tmp_path / "work"
    folder.mkdir()
    zipfile.ZipFile(wheel).extractall(installed)
    environment = os.environ | {"PYTHONPATH": str(installed)}
    start = "import sys; sys.argv[0] = 'ngram-trie'; from ngram_trie.cli.main import main; main()"

    def command(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-c", start, *arguments],
            cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "doctor" in command() and "ngram-trie run dataset=rag" in command("run", "--help")
    small = ["dataset.limit=1", "measure.repeats=1", "measure.max_new_tokens=4"]
    assert "pld" in command("run", "dataset=rag", "method=pld", *small)
    (run,) = (folder / "results" / "local" / "runs").iterdir()
    replayed = ["engine=replay", f"engine.traces={run / 'traces.jsonl'}", "cost=measured", "output=replayed"]
    assert "pld" in command("run", "method=pld", *replayed)
    assert "pld" in command("derive", str(run))
    assert not (installed / "ngram_trie" / "results" / "local").exists()


DRAFT = """
import numpy as np
from ngram_trie.methods import make_drafter
from ngram_trie.prompt import Prompt
import ngram_trie.integrations.llama_cpp, ngram_trie.integrations.vllm
drafter = make_drafter("blend", num_draft=4)
drafter.start(Prompt(np.array([1, 2, 3, 4, 1, 2])))
print(drafter.propose(4).tokens.tolist()[:3])
"""
ANSWER = """
from transformers import LlamaConfig, LlamaForCausalLM
from ngram_trie import speculative_generate
sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes))
print(len(speculative_generate(model, [1, 2, 3], max_new_tokens=5, eos_token_id=None)[0]))
"""
COMMAND = "import sys; sys.argv[1:] = ['run', '--help']; from ngram_trie.cli.main import main; main()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "works", "prints", "fails", "says"),
    [
        ("", DRAFT, "[2, 3, 4]", "from ngram_trie import Speculator", "pip install 'ngram-trie[hf]'"),
        ("[hf]", ANSWER, "5", COMMAND, "pip install 'ngram-trie[bench]'"),
        ("[bench]", COMMAND, "usage: ngram-trie run", "", ""),
    ],
)
def test_each_extra_alone(
    wheel: Path, tmp_path: Path, extra: str, works: str, prints: str, fails: str, says: str
) -> None:
    """In a fresh environment, from a package index."""
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--constraint", PROJECT / "constraints.txt"]
    if extra:  # the CPU build where it can be had, as `make setup` does
        index = "https://download.pytorch.org/whl/cpu"
        subprocess.run([*pip, "--no-deps", "--retries", "1", "--extra-index-url", index, "torch"], check=True)
    if subprocess.run([*pip, f"{wheel}{extra}"], check=False).returncode:
        pytest.skip("no package index can be reached")

    def run(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert prints in run(works).stdout
    assert not fails or says in run(fails).stderr
