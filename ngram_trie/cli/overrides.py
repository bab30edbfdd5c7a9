"""Checking a Hydra command line before anything heavy starts: names, fields and values, each error one line.

Hydra says what is wrong in several lines and without the nearest names; here an override is held against what exists.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import ConfigKeyError

from ngram_trie.bench.config import checked
from ngram_trie.bench.schemas import Run
from ngram_trie.methods import ConfigError, choices, near, settings_of, text_of
from ngram_trie.store.files import CONFIGS, first_line


def composed(overrides: Sequence[str], folder: Path | None = None, is_sweep: bool = True) -> Run:
    """The run that a command line asks for, its values checked, too; arguments and errors as in `layered`."""
    return checked(layered(overrides, "config", folder, is_sweep))


def layered(
    overrides: Sequence[str], primary: str = "config", folder: Path | None = None, is_sweep: bool = True
) -> DictConfig:
    """The configuration that a command line asks for, its names checked; of a sweep its first cell.

    Args:
        overrides: `group=name`, `field=value`, also with several of each, `~field`, `+field=value`.
        primary: the file of configs/ to start from.
        folder: a folder of groups beside configs/ (`--config-dir`).
        is_sweep: whether an override may have several values.

    Raises:
        ConfigError: one line that names the override, what is wrong with it and the nearest names.
    """
    if folder and not folder.is_dir():
        raise ConfigError(f"--config-dir {folder}: no such folder")
    groups = choices([CONFIGS, *([folder] if folder else [])])
    search = [f"hydra.searchpath=[file://{folder.absolute()}]"] if folder else []
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        parsed = parse(overrides, GlobalHydra.instance().config_loader())
        check_choices(parsed, groups)
        _check_members(parsed)
        _check_once(parsed, is_sweep)
        chosen = [override for override in parsed if override.key_or_group in groups]
        # every choice of a sweep, since each has fields of its own; of fields the first value
        swept = [values_of(override)[: None if override in chosen else 1] for override in parsed]
        configs = []
        for values in itertools.product(*swept):
            lines = list(map(with_value, parsed, values))
            try:
                configs.append(compose(primary, [*search, *lines]))
            except HydraException as error:
                choices_only = [line for line, override in zip(lines, parsed, strict=True) if override in chosen]
                try:
                    base = compose(primary, [*search, *choices_only])
                except HydraException:
                    raise ConfigError(first_line(error)) from None
                raise ConfigError(unknown(error, base, overrides, groups)) from None
    return configs[0]


def _check_members(overrides: Sequence[Override]) -> None:
    """Raises:
    ConfigError: no methods, or no data sets: Hydra would keep those that there are.
    """
    for override in overrides:
        if override.key_or_group in ("methods", "datasets") and override.value() == {}:
            single = override.key_or_group.removesuffix("s")
            raise ConfigError(
                f"{override.key_or_group}={{}}: must have a {single}; give +{single}@{single}s.NAME=NAME, or leave it "
                f"out and give {single}=NAME"
            )


def _check_once(overrides: Sequence[Override], is_sweep: bool) -> None:
    """Raises:
    ConfigError: a setting has two values, of which one would be taken.
    """
    keys: set[str] = set()
    for override in overrides:
        key = str(override.get_key_element()).lstrip("+~")
        if key in keys and not override.is_delete():
            raise ConfigError(f"{key}: given twice; give one value")
        keys.add(key)
        if not is_sweep and override.is_sweep_override():
            quoted = f"\"{key}='{str(override.input_line).partition('=')[2]}'\""
            raise ConfigError(
                f"{override.input_line}: several values; -m takes one after the other, '{key}=[a,b]' is a list, and a "
                f"text with a comma stands in two kinds of quotes: {quoted}"
            )


def check_choices(overrides: Sequence[Override], groups: Mapping[str, Mapping[str, Path]]) -> None:
    """Raises:
    ConfigError: a name that its group does not have, several where one is taken, or `method` or `dataset` beside an
    experiment with its own.
    """
    # +method@methods.NAME=NAME adds one to the experiment's own
    keys = {override.key_or_group.split(".")[0] for override in overrides if override.package is None}
    for override in overrides:
        if (group := override.key_or_group) not in groups or override.is_delete():
            continue
        if group != "experiment" and any(value.startswith("[") for value in values_of(override)):
            several = (
                f"each as +{group}@{group}s.NAME=NAME" if group in ("method", "dataset") else "-m takes one by one"
            )
            raise ConfigError(f"{override.input_line}: one {group} is taken, not a list; several: {several}")
        for name in (part for value in values_of(override) for part in value.strip("[]").split(",")):  # a or [a,b]
            if name not in groups[group]:
                raise ConfigError(f"{group}={name}: {near(name, list(groups[group]))}")
            if group == "experiment":
                text = text_of(groups[group][name])
                for single in sorted(keys & {"method", "dataset"}):
                    if f"@{single}s." in text:
                        raise ConfigError(
                            f"{single}: experiment {name} has its own {single}s; "
                            f"change them by {single}s.NAME.FIELD=VALUE, add one by +{single}@{single}s.NAME=NAME"
                        )


def unknown(
    error: HydraException, config: DictConfig, overrides: Sequence[str], groups: Mapping[str, Mapping[str, Path]]
) -> str:
    """What Hydra says of an override in one line, with the names that there are.

    Args:
        config: what is composed without the fields.
    """
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:  # of Hydra's own groups
        group, _, name = error.missing_cfg_file.rpartition("/")
        return f"{group}={name}: {near(name, error.options or [])}"
    named = re.search(r"Could not \w+ (?:from config\. )?'(\S+)'", str(error))
    if not named:
        return first_line(error)
    path = named[1].split(".")
    line = next((line for line in overrides if line.lstrip("~+").startswith(named[1])), named[1])
    owner: Any = config
    depth = 0
    if isinstance(error.__cause__, ConfigKeyError):  # of a value with fields, one of these
        path = str(error.__cause__.full_key).split(".")
    while isinstance(owner, DictConfig) and depth < len(path) and path[depth] in owner:
        owner, depth = owner[path[depth]], depth + 1
    where, part = ".".join(path[:depth]), path[min(depth, len(path) - 1)]
    if not isinstance(owner, DictConfig):
        return f"{line}: {where} is {owner} and has no settings; give {where}=VALUE"
    others = [f"{where}={name}" for name, file in groups.get(where, {}).items() if part in settings_of(file)]
    about = f"{where} {owner['name']}" if where in groups and "name" in owner else where
    names = [str(name) for name in owner if name not in ("name", "_target_")]
    there = (
        f"there is one in {', '.join(others[:6])}" if others
        else near(part, names).replace("no such name. There", "there") if names
        else "it has none" if line.startswith("~")
        else f"+{line} adds one"
    )  # fmt: skip
    return f"{line}: {f'{about} has ' if about else ''}no such setting; {there}"


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
