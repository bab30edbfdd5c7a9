"""Checking a Hydra command line before anything heavy starts: names, fields and values, each error one line.

Hydra says what is wrong in several lines and without the nearest names; here an override is held against what exists.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ngram_trie.config import ConfigError, check_names, check_values, choices, near
from ngram_trie.files import CONFIGS


def composed(
    overrides: Sequence[str], primary: str = "config", folder: Path | None = None, resolved: bool = True
) -> DictConfig:
    """The configuration that a command line asks for, checked; of a sweep its first cell.

    Args:
        overrides: `group=name`, `field=value`, also with several of each, `~field`, `+field=value`.
        primary: the file of configs/ to start from.
        folder: a folder of groups beside configs/ (`--config-dir`).
        resolved: check values, too, and that every reference in the configuration leads somewhere.

    Raises:
        ConfigError: one line that names the override, what is wrong with it and the nearest names.
    """
    if folder and not folder.is_dir():
        raise ConfigError(f"--config-dir {folder}: no such folder")
    folders = [CONFIGS, *([folder] if folder else [])]
    search = [f"hydra.searchpath=[file://{folder.absolute()}]"] if folder else []
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        parsed = parse(overrides, loader)
        check_names(overrides, folders)
        known = {group: list(files) for group, files in choices(folders).items()}
        chosen = [override for override in parsed if override.key_or_group.split("/")[0] in {*known, "hydra"}]
        for override in chosen:
            group = override.key_or_group
            names = known.get(group) or loader.get_group_options(group)
            if not override.is_delete() and (wrong := set(values_of(override)) - {*names, "null"}):
                raise ConfigError(f"{override.input_line}: {near(min(wrong), names)}")
        groups = [override for override in chosen if not override.key_or_group.startswith("hydra")]
        fields = [override for override in parsed if override.key_or_group.split(".")[0] != "hydra"]
        fields = [override for override in fields if override not in chosen]
        try:
            for members in itertools.product(*(values_of(override) for override in groups)):
                lines = [with_value(override, name) for override, name in zip(groups, members, strict=True)]
                config = compose(primary, [*search, *lines])
                for override in fields:
                    check_field(config, override, folders)
            config = compose(primary, [*search, *(with_value(override, values_of(override)[0]) for override in parsed)])
            if resolved and primary == "config":
                check_values(config)
                OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        except (HydraException, OmegaConfBaseException) as error:
            cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
            raise ConfigError(str(cause).strip().splitlines()[0]) from None
    return config


def parse(overrides: Sequence[str], loader: ConfigLoader | None = None) -> list[Override]:
    """The overrides as Hydra reads them.

    Raises:
        ConfigError: one is no override.
    """
    parser = OverridesParser.create(config_loader=loader)
    parsed = []
    for text in overrides:
        try:
            parsed += parser.parse_overrides([text])
        except HydraException:
            what = "no value: write FIELD=VALUE or GROUP=NAME" if "=" not in text else (
                "not readable as FIELD=VALUE; quote lists and texts for the shell: 'FIELD=[a,b]', 'FIELD=\"a text\"'"
            )  # fmt: skip
            raise ConfigError(f"{text}: {what}") from None
    return parsed


def values_of(override: Override) -> list[str]:
    """The values that it sweeps over, or its one."""
    if override.is_delete():
        return [""]
    if override.is_sweep_override():
        return [str(value) for value in override.sweep_iterator()]
    return [override.get_value_element_as_str()]


def with_value(override: Override, value: str) -> str:
    """The override as text, with one value."""
    return str(override.input_line) if override.is_delete() else f"{override.get_key_element()}={value}"


def check_field(config: DictConfig, override: Override, folders: Sequence[Path] = (CONFIGS,)) -> None:
    """Raises:
    ConfigError: `override` changes a field that is not there; one that is added (+) may be new, but not its place.
    """
    parts = override.key_or_group.split(".")
    where: Any = config
    for depth, part in enumerate(parts):
        owner = ".".join(parts[:depth])
        if isinstance(where, ListConfig):
            return
        if not isinstance(where, DictConfig):
            raise ConfigError(f"{override.input_line}: {owner} is {where} and has no settings; give the whole of it")
        if part not in where:
            if override.is_add() and depth:
                return
            names = [str(name) for name in where if name not in ("name", "_target_")]
            others = [
                f"{owner}={name}"
                for name, file in choices(folders).get(owner, {}).items()
                if part in OmegaConf.load(file)
            ]
            about = f"{owner} {where['name']}" if owner in choices(folders) and "name" in where else owner
            raise ConfigError(f"{override.input_line}: {f'{about} has ' if about else ''}no such setting; " + (
                f"there is one in {', '.join(others[:6])}" if others
                else near(part, names).replace("no such name. There", "there") if names
                else "it has none" if override.is_delete()
                else f"+{override.input_line} adds one"
            ))  # fmt: skip
        where = where[part]


def comment(path: Path) -> str:
    """What a YAML says of itself: its first comment, without what Hydra reads in it and without examples."""
    lines = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        if not line.startswith("#"):
            break
        text = line[1:].removeprefix(" ")
        if text.startswith("@package"):
            continue
        if re.match(r"\s{2,}", text):  # an example, indented
            break
        lines.append(text)
    return " ".join(lines).removesuffix(":")


def describe(path: Path) -> str:
    """The first sentence of what a YAML says of itself."""
    return re.split(r"(?<=[^.][a-z0-9)\]])\.\s+(?=[A-Z`])", comment(path))[0].removesuffix(".")
