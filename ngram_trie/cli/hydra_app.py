"""Command lines of many settings, by Hydra: overrides checked beforehand, help made from the configs."""

from __future__ import annotations

import argparse
import functools
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from ngram_trie.bench.config import checked
from ngram_trie.bench.schemas import Run, ServerRun
from ngram_trie.cli import shorthand
from ngram_trie.cli.app import RESUMES, end, one_line_errors, started_as
from ngram_trie.cli.effects import check_effects
from ngram_trie.cli.overrides import layered
from ngram_trie.cli.sweep import check_output, sweeping
from ngram_trie.methods import bases, choices, near
from ngram_trie.store.files import CONFIGS


def hydra_app(
    task: Callable[[Any], Any],
    about: str | None,
    primary: str = "config",
    interrupted: str = RESUMES,
    also: tuple[type[BaseException], ...] = (),
    prog: str = "",
    measures: bool = False,
) -> None:
    """Check the command line, and print help, run the one configuration, or hand a sweep over to Hydra.

    Args:
        task: does what one configuration asks for. It gets that as its schema reads it, or without a schema as Hydra
            composes it. A function of its module, since launchers pickle it.
        about: the script's text: what it does, then examples.
        primary: the file of configs/ to start from.
        interrupted, also: as in `one_line_errors`.
        prog: what the command is called; by default as it was started.
        measures: refuse settings that decide nothing of a measurement.
    """
    options = hydra_options(sys.argv[1:], primary == "config")
    with one_line_errors():
        names: Mapping[str, str] = {}
        if primary == "config":
            written = shorthand.written_out(options.overrides, shorthand.values(options))
            options.overrides, names = list(written), written if measures else {}
        if options.help:
            name = prog or started_as()
            print(help_text(name, about or "", primary, options.overrides, options.config_dir, measures))
            return
        config = layered(options.overrides, primary, options.config_dir, options.multirun)
        if options.cfg:
            print(OmegaConf.to_yaml(config, resolve=options.resolve), end="")
            return
        asked = typed(config, primary)
        if names:
            check_effects(options.overrides, names, options.config_dir)
        if options.multirun and measures:
            check_output(options.overrides)
    if not options.multirun:  # nothing is left for Hydra to do
        with one_line_errors(interrupted, also):
            task(asked)
        return
    folder = ["--config-dir", str(options.config_dir)] if options.config_dir else []
    sys.argv[1:] = ["--multirun", *folder, *options.overrides]

    @functools.wraps(task)
    def guarded(config: DictConfig) -> None:
        with one_line_errors(interrupted, also):
            task(typed(config, primary))

    os.environ["HYDRA_FULL_ERROR"] = "1"  # its own errors come here, too
    with one_line_errors(interrupted, (HydraException, *also)), sweeping(options.overrides):
        hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=primary)(guarded)()


def typed(config: DictConfig, primary: str) -> Run | ServerRun | DictConfig:
    """What a task gets of a composed configuration."""
    if primary == "config":
        return checked(config)
    return checked(config, ServerRun) if primary == "server" else config


class Parser(argparse.ArgumentParser):
    """One whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        where, _, what = message.removeprefix("argument ").partition(": ")
        end(f"{where}: {what.replace('expected one argument', 'give a value') or 'wrong'}")


def hydra_options(arguments: Sequence[str], is_run: bool = False) -> argparse.Namespace:
    """Flags and overrides of a Hydra script, in any order; of one that measures, also its words and options
    (`shorthand`).
    """
    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-c", "--cfg", nargs="?", const="job", choices=["job"])
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("-cd", "--config-dir", type=Path)
    if is_run:
        shorthand.add_options(parser)
    # overrides may stand between flags, and one may begin with ~ or +
    flags, rest = parser.parse_known_args(list(arguments))
    if unknown := [part for part in rest if part.startswith("-")]:
        known = ["--help", "--multirun", "--cfg", "--resolve", "--config-dir"]
        known += [*shorthand.OPTIONS, *shorthand.FLAGS] if is_run else []
        end(f"{unknown[0]}: no such option; {near(unknown[0].partition('=')[0], known)}")
    flags.overrides = rest
    return flags


def help_text(
    name: str,
    about: str,
    primary: str,
    overrides: Sequence[str] = (),
    folder: Path | None = None,
    measures: bool = True,
) -> str:
    """Help for a Hydra script: the names of all groups; of those that are given, what their files say.

    Raises:
        ConfigError: a wrong override.
    """
    layered(overrides, primary, folder)
    groups = choices([CONFIGS, *([folder] if folder else [])])
    given = (override.lstrip("+").partition("=") for override in overrides)
    files = [groups[group][member] for group, _, member in given if member in groups.get(group, {})]
    if overrides:
        return "\n".join(map(whole_text, files)) or "no choice among these; see --help"
    is_run = primary == "config"
    usages = [f"usage: {name} MODEL DATASET [--methods NAMES] ..."] * is_run
    usages.append(f"{'       ' if is_run else 'usage: '}{name} [-m] [GROUP=NAME ...] [FIELD=VALUE ...]")
    parts = [inspect.cleandoc(about), "\n".join(usages), *([option_text(measures)] * is_run), FLAGS.strip()]
    for group, (default, what) in group_defaults(primary).items():
        names = textwrap.fill(", ".join(groups[group]), 98, initial_indent="  ", subsequent_indent="  ")
        parts.append(f"{group}=NAME: {what} (default: {default})\n{names}")
    example = {"config": "method=blend", "server": "dataset=docs_rag"}.get(primary, "encoder=bge_m3")
    return "\n\n".join([*parts, f"Settings of one choice: {name} {example} --help. Of all: {name} --cfg job"])


def whole_text(file: Path) -> str:
    """What the file of a choice says, and behind it what it takes over from others, with their comments."""
    text = file.read_text(encoding="utf-8")
    for base in bases(OmegaConf.load(file).get("defaults", ()), file):  # type: ignore[arg-type]
        fields = re.findall(r"^((?:#.*\n)*(\w+):.*\n(?: .*\n)*)", whole_text(base), re.MULTILINE)
        text += "".join(entry for entry, name in fields if not re.search(rf"^{name}:", text, re.MULTILINE))
    return re.sub(r"^defaults: .*\n", "", text, flags=re.MULTILINE)


FLAGS = """
flags:
  -m, --multirun       sweep: every combination of comma-separated values
  -c, --cfg job        print the whole configuration and run nothing
  -cd, --config-dir F  a folder of groups of your own beside configs/, such as
                       F/method/NAME.yaml (docs/extending.md)
  -h, --help           this text; with choices on the command line, their settings
"""


def option_text(measures: bool = True) -> str:
    """The words and options of a measurement, or of a command that takes no flags of one."""
    lines = [
        "MODEL: a name below, a folder, a GGUF file, or a hub id OWNER/NAME; smollm2_135m and tiny need no network",
        "DATASET: names below with commas, or a JSONL file of prompts; docs_rag, rag and the like need no network",
    ]
    for name, option in (shorthand.OPTIONS | (shorthand.FLAGS if measures else {})).items():
        lines.append(f"  {name}".ljust(20) + option.help)
    return "\n".join(lines)


def group_defaults(primary: str) -> dict[str, tuple[str, str]]:
    """The groups of a primary configuration: which member is taken unless another is named, and what they are for."""
    text = (CONFIGS / f"{primary}.yaml").read_text(encoding="utf-8")
    lines = re.findall(r"^  - (?:optional )?(\w+): (\w+) # (.*)$", text, re.MULTILINE)
    return {group: ("none" if name == "null" else name, what) for group, name, what in lines}
