"""Reading the configuration: the project's paths, unknown names with their nearest neighbours, building from YAML."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf

PROJECT = Path(__file__).parents[1]
CONFIGS = PROJECT / "configs"

OmegaConf.register_new_resolver("project", lambda path: str(PROJECT / path), replace=True)


class ConfigError(ValueError):
    """The configuration is wrong; the message is one line that says what and what to do."""


def check_names(overrides: Sequence[str]) -> None:
    """Check `group=name` and `field=value` overrides of a command line against what exists, before Hydra composes.

    Raises:
        ConfigError: an unknown group member; the message gives the nearest names and the list.
    """
    groups = {
        folder.name: sorted(file.stem for file in folder.glob("*.yaml"))
        for folder in CONFIGS.iterdir()
        if folder.is_dir()
    }
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        group = key.partition("@")[0].strip("/")
        if group in groups:
            for name in filter(None, value.split(",")):
                if name not in ("null", *groups[group]):
                    raise ConfigError(f"{group}={name}: {near(name, groups[group])}")


def near(name: str, known: Sequence[str]) -> str:
    """Words for an unknown name: the nearest ones, and all there are."""
    matches = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    guess = f"did you mean {' or '.join(matches)}? " if matches else "no such name. "
    return f"{guess}There are: {', '.join(known)}"


def named(config: DictConfig, single: str, several: str) -> dict[str, DictConfig]:
    """The configured methods or datasets by name: those of an experiment, else the single one."""
    if config[several]:
        return dict(config[several].items())
    return {config[single].name: config[single]}


def build(config: DictConfig | ListConfig, where: str) -> Any:
    """Instantiate what `_target_` names with the other fields.

    Raises:
        ConfigError: a field is unknown or has a wrong value.
    """
    fields = OmegaConf.to_container(config, resolve=True)
    assert isinstance(fields, dict)
    if fields["_target_"].startswith("data."):
        arguments = fields
    else:
        arguments = {key: value for key, value in fields.items() if key != "name"}
    try:
        return instantiate(arguments)
    except Exception as error:  # Hydra wraps whatever the class raised
        cause = error.__cause__ or error
        raise ConfigError(f"{where}: {cause}") from error
