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
    """Check the `group=name` overrides of a command line against what exists, before Hydra composes.

    Raises:
        ConfigError: an unknown name, with the nearest ones and the list; or `method` or `dataset` beside an experiment,
            which has its own.
    """
    keys = {override.partition("=")[0].partition(".")[0] for override in overrides}
    experiments = [override for override in overrides if override.startswith("experiment=")]
    if set(experiments) - {"experiment=null"} and (both := keys & {"method", "dataset"}):
        name = both.pop()
        raise ConfigError(f"{name}: an experiment has its own {name}s; change them by {name}s.NAME.FIELD=VALUE")
    groups = {
        folder.name: sorted(file.stem for file in folder.glob("*.yaml"))
        for folder in CONFIGS.iterdir()
        if folder.is_dir()
    }
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        group = key.partition("@")[0].strip("/")
        if group in groups and "(" not in value:
            for name in filter(None, value.split(",")):
                if name not in ("null", *groups[group]):
                    raise ConfigError(f"{group}={name}: {near(name, groups[group])}")


def near(name: str, known: Sequence[str]) -> str:
    """Words for an unknown name: the nearest ones, and all there are."""
    matches = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    guess = f"did you mean {' or '.join(matches)}? " if matches else "no such name. "
    return f"{guess}There are: {', '.join(known)}"


def named(config: DictConfig, single: str, several: str) -> dict[str, Any]:
    """The configured methods or datasets by name: those of an experiment, else the single one."""
    if config[several]:
        return dict(config[several].items())
    return {config[single].name: config[single]}


def build_all(config: DictConfig, group: str) -> dict[str, Any]:
    """All configured members of `group` ("dataset" or "method") by name, built; vanilla is always among the methods."""
    configs = named(config, group, f"{group}s")
    if group == "method" and "vanilla" not in configs:
        configs = {"vanilla": OmegaConf.load(CONFIGS / "method" / "vanilla.yaml")} | configs
    return {name: build(part, f"{group} {name}") for name, part in configs.items()}


def check_values(config: DictConfig) -> None:
    """Check the fields that no class of their own checks.

    Raises:
        ConfigError: field, value and what is allowed.
    """
    optional = ("engine.num_threads", "model.context_limit")
    for field in ("measure.repeats", "measure.max_new_tokens", "engine.max_draft", *optional):
        value = OmegaConf.select(config, field)
        if not (value is None and field in optional) and (not isinstance(value, int) or value < 1):
            raise ConfigError(f"{field}={value}: must be an integer of at least 1")
    for field, allowed in (
        ("model.dtype", ("float32", "bfloat16", "float16")),
        ("model.attention", ("sdpa", "eager")),
        ("engine.name", ("live",)),
    ):
        value = OmegaConf.select(config, field)
        if value not in allowed:
            raise ConfigError(f"{field}={value}: must be one of {', '.join(allowed)}")


def build(config: DictConfig | ListConfig, where: str) -> Any:
    """Instantiate what `_target_` names with the other fields.

    Raises:
        ConfigError: a field is unknown or has a wrong value.
    """
    fields: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    if not where.startswith("dataset"):  # a dataset is told its name, a method has no use for it
        fields.pop("name")
    try:
        return instantiate(fields)
    except Exception as error:  # Hydra wraps whatever the class raised
        cause = error.__cause__ or error
        raise ConfigError(f"{where}: {cause}") from error


def resolve(config: DictConfig) -> dict[str, Any]:
    """What decides the results: the resolved config without where they go; paths relative to the project."""
    resolved: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    for name in ("output", "force"):
        del resolved[name]
    for single, several in (("dataset", "datasets"), ("method", "methods")):
        if resolved[several]:
            del resolved[single]
    path = Path(resolved["model"]["path"])
    if path.is_relative_to(PROJECT):
        resolved["model"]["path"] = str(path.relative_to(PROJECT))
    return resolved


def default_folder(config: DictConfig, run_id: str) -> Path:
    dataset = "+".join(named(config, "dataset", "datasets"))
    method = "+".join(named(config, "method", "methods"))
    return PROJECT / "results" / "local" / "runs" / f"{config.model.name}-{dataset}-{method}-{run_id[:8]}"
