"""A sweep: what each of its cells is called, and one table of all of them at the end.

Cells may run in other processes, so they are gathered through a file, whose path they find in the environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from ngram_trie.cli import overrides as lines
from ngram_trie.methods import ConfigError
from ngram_trie.report.blocks import JSON
from ngram_trie.store.files import PROJECT, one_writer, relative

VARIABLE = "NGRAM_TRIE_SWEEP"


def swept_of(overrides: Sequence[str]) -> list[str]:
    """The settings that have several values."""
    return [o.get_key_element().lstrip("+") for o in lines.parse(overrides) if o.is_sweep_override()]


def check_output(overrides: Sequence[str]) -> None:
    """Raises:
    ConfigError: all runs of a sweep would write into one folder, which shards alone do.
    """
    given = [line for line in overrides if line.lstrip("+").startswith("output=") and "${" not in line]
    if given and {*swept_of(overrides)} - {"shard", "output"}:
        raise ConfigError(
            f"{given[0]}: each run of a sweep has a folder of its own; leave it out, or name what differs, as in "
            f"'{given[0]}/${{method.name}}'"
        )


@contextlib.contextmanager
def sweeping(overrides: Sequence[str]) -> Iterator[None]:
    """Gather the cells that are measured meanwhile; at the end, also of an interrupted sweep, print their table.

    Args:
        overrides: of the sweep, whose settings with several values name its cells.
    """
    swept = swept_of(overrides)
    sweeps = PROJECT / "results" / "local" / "sweeps"
    for left in sweeps.glob("*/cells.jsonl"):  # of a sweep that was killed: its lock is free, and there is no table
        if not (left.parent / JSON).exists():
            with contextlib.suppress(Timeout), FileLock(left.with_name(".lock"), timeout=0):
                shutil.rmtree(left.parent)
    folder = sweeps / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}"
    lock = one_writer(folder)
    path = folder / "cells.jsonl"
    path.write_text(json.dumps(swept) + "\n", encoding="utf-8")
    os.environ[VARIABLE] = str(path)
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if found := cells(path):
            print(f"\n{summary(folder, found)}\nwritten: {relative(str(folder))}")
        lock.release()
        if not found:  # nothing was measured
            shutil.rmtree(folder)


def label() -> str:
    """What the cell that is being measured is called, by its own values of what is swept; "" outside a sweep."""
    if VARIABLE not in os.environ or not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        return ""
    swept = json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8").partition("\n")[0])
    task = HydraConfig.get().overrides.task
    return ", ".join(line for line in task if line.lstrip("+").partition("=")[0] in swept)


def finished(name: str, folder: Path) -> None:
    """Note a cell that has been measured into a folder."""
    with Path(os.environ[VARIABLE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps([name, str(folder.absolute())]) + "\n")


def cells(path: Path) -> dict[str, Path]:
    """The folders of the cells by their names, in the order of the names' values."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    return {name: Path(folder) for name, folder in found}


def summary(folder: Path, found: dict[str, Path]) -> str:
    """One table of all cells, written to `folder` and returned as text."""
    from ngram_trie.report.collect import collect
    from ngram_trie.report.derive import main_tables
    from ngram_trie.report.run_folder import RunFolder

    try:
        return main_tables(collect(folder, [RunFolder(place) for place in found.values()]))
    except ValueError as error:  # an interrupted sweep may have no cell that can be shown
        return f"no table: {error}"
