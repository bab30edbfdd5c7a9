"""A finished run's folder: every alteration of a file that tables are derived from is refused, with the file's name."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.runs import small_replay

from ngram_trie.bench import quality
from ngram_trie.bench.cost import assumed_curve
from ngram_trie.bench.measure import measure, open_run
from ngram_trie.bench.records import INPUTS, RECORDS, SUMS, is_sealed, seal
from ngram_trie.bench.replay import Replay
from ngram_trie.bench.traces import write_traces
from ngram_trie.cli import commands
from ngram_trie.cli.app import invoke
from ngram_trie.report import derive
from ngram_trie.report.collect import collect
from ngram_trie.report.run_folder import RunFolder

CONFIG = {"engine": {"name": "replay", "traces": "t.jsonl"}, "methods": {"none": {"n": 8}}, "paper_tables": []}
Damage = Callable[[Path], object]

#: What a run writes; its records are compressed only to be kept.
WRITTEN = [name for name in INPUTS if name != f"{RECORDS}.gz"]


def engine() -> Replay:
    return small_replay(6, CONFIG)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all of INPUTS, its tables derived."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    with open_run(folder, engine()) as writer:
        measure(engine(), writer)
        assumed_curve().keep(folder)
        write_traces(folder / "traces.jsonl", list(engine().items.values()))
        run = RunFolder(folder, writer.records.values())
        row = dict.fromkeys(quality.KEYS, "q1") | dict.fromkeys(quality.MEASURES, 0.5)
        run.keep_scores(pd.DataFrame([row]))
        seal(folder)
        derive.write(run)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def flipped(at: float) -> Damage:
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(at * (len(content) - 1))] ^= 1
        path.write_bytes(content)

    return damage


def without_line(at: int) -> Damage:
    def damage(path: Path) -> None:
        lines = path.read_bytes().splitlines(keepends=True)
        del lines[at]
        path.write_bytes(b"".join(lines))

    return damage


def set_to(**changes: Any) -> Damage:
    """Fields of a manifest, "config.engine.name" as config__engine__name."""

    def damage(path: Path) -> None:
        content = json.loads(path.read_text())
        for name, value in changes.items():
            *above, last = name.split("__")
            place = content
            for part in above:
                place = place[part]
            place[last] = value
        path.write_text(json.dumps(content, indent=1) + "\n")

    return damage


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


ANY_FILE: dict[str, Damage] = {
    **{f"bit flipped at {at:.0%}": flipped(at) for at in (0, 0.5, 1)},
    "a line lost": without_line(1),
    "last byte lost": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "a line more": lambda path: path.write_bytes(path.read_bytes() + b"{}\n"),
    "gone": lambda path: path.unlink(),
    "a folder": as_folder,
    "a link": as_link,
}
MANIFEST_ONLY: dict[str, Damage] = {
    "a list": lambda path: path.write_text("[]"),
    "engine live": set_to(config__engine__name="live"),
    "device": set_to(device="NVIDIA H100"),
    "method": set_to(config__methods__none__n=99),
}
CASES = [(name, what, damage) for name in WRITTEN for what, damage in ANY_FILE.items()]
CASES += [("manifest.json", what, damage) for what, damage in MANIFEST_ONLY.items()]
CASES += [
    (SUMS, "another file's name", lambda path: path.write_text(path.read_text().replace("curve", "../curve"))),
    (SUMS, "not text", lambda path: path.write_bytes(bytes(range(256)))),
    ("quality.csv", "unnamed", lambda path: without_line(2)(path.with_name(SUMS))),
]


@pytest.mark.parametrize(("name", "damage"), [(n, d) for n, _, d in CASES], ids=[f"{n}, {w}" for n, w, _ in CASES])
def test_a_finished_run_that_was_altered_is_refused_by_name(folder: Path, name: str, damage: Damage) -> None:
    before = (folder / "table.csv").read_bytes()
    damage(folder / name)
    for use in (lambda: derive.write(folder), lambda: open_run(folder, engine()), lambda: RunFolder(folder).scores):
        with pytest.raises(ValueError, match=name) as error:
            use()
        assert "\n" not in str(error.value)
    with pytest.raises(SystemExit) as ended:
        invoke(commands.derive, [str(folder)])
    assert name in str(ended.value) and "unforeseen" not in str(ended.value)
    assert (folder / "table.csv").read_bytes() == before


def test_a_finished_run_is_opened_again_and_sha256sum_reads_its_digests(folder: Path) -> None:
    with open_run(folder, engine()) as writer:
        assert len(writer.records) == 6
    derive.write(folder)
    done = subprocess.run(["sha256sum", "--strict", "-c", SUMS], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.count("OK") == len(WRITTEN)


def test_a_run_that_has_not_ended_is_interim(folder: Path) -> None:
    (folder / SUMS).unlink()
    without_line(2)(folder / "records.jsonl")
    derive.write(folder)
    assert "Interim: 5 of 6 answers are there" in (folder / "table.md").read_text()
    assert not is_sealed(folder)


def test_a_run_does_not_go_on_behind_another_configuration(folder: Path) -> None:
    (folder / SUMS).unlink()
    set_to(config__methods__none__n=99)(folder / "manifest.json")
    with pytest.raises(ValueError, match=r"manifest\.json: changed: its config"):
        open_run(folder, engine())


WRONG = {
    "[]": lambda path: path.write_text("[]"),
    "half": lambda path: path.write_bytes(path.read_bytes()[:99]),
    "a list as config": set_to(config=[]),
    "no engine": set_to(config__engine=None),
    "versions": set_to(versions=5),
}


@pytest.mark.parametrize("damage", WRONG.values(), ids=list(WRONG))
def test_a_manifest_of_another_shape_is_one_line(folder: Path, damage: Damage) -> None:
    (folder / SUMS).unlink()
    damage(folder / "manifest.json")
    with pytest.raises(ValueError, match=r"manifest\.json") as error:
        derive.write(folder)
    assert "\n" not in str(error.value)


def test_nothing_is_written_outside_a_folder(folder: Path, tmp_path: Path) -> None:
    """By the name of a manifest's engine, or through links."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "table.md").write_text("precious")
    shared = tmp_path / "shared"
    for number in range(4):
        run = Path(shutil.copytree(folder, shared / str(number)))
        set_to(config__engine__name="../victim" if number % 2 else "replay")(run / "manifest.json")
        (run / SUMS).unlink()
    with pytest.raises(ValueError, match=r"1/manifest\.json: config\.engine\.name"):
        collect(shared)
    (folder / "table.csv").unlink()
    (folder / "table.csv").symlink_to(victim / "table.md")
    with pytest.raises(ValueError, match=r"table\.csv: a link"):
        derive.write(folder)
    (folder / "table.csv").unlink()
    (folder / "table4").symlink_to(victim)
    with pytest.raises(ValueError, match="table4: a link"):
        derive.write(folder)
    assert (victim / "table.md").read_text() == "precious" and len(list(victim.iterdir())) == 1
