"""Reading the configuration: the project's paths, unknown names with their nearest neighbours, building from YAML."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, get_args

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from ngram_trie.files import CONFIGS, PROJECT, relative

OmegaConf.register_new_resolver("project", lambda path: str(PROJECT / path), replace=True)


class ConfigError(ValueError):
    """The configuration is wrong; the message is one line that says what and what to do."""


Kind = Literal["paragraph", "passages"]


@dataclass(frozen=True)
class NoiseSettings:
    """How contexts are made noisy: `noise=` of a run.

    Attributes:
        kinds: "paragraph", unrelated text behind what tries are built from, as in the paper's released code;
            "passages", unrelated passages in the context.
        share: of a context with "passages", how much is noise; at least 0, below 1.
        seed: which passages, and where they go.

    Raises:
        ValueError: a value that is not allowed.
    """

    kinds: Sequence[Kind]
    share: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        if unknown := [kind for kind in self.kinds if kind not in get_args(Kind)]:
            raise ValueError(f"noise.kinds: {unknown[0]!r} is none of {', '.join(get_args(Kind))}")
        if not isinstance(self.share, int | float) or not 0 <= self.share < 1:
            raise ValueError(f"noise.share={self.share!r}: must be a number of at least 0 and below 1")


def choices(folders: Sequence[Path] = (CONFIGS,)) -> dict[str, dict[str, Path]]:
    """The groups of choices, and in each of them name -> file."""
    groups: dict[str, dict[str, Path]] = {}
    for file in sorted(path for folder in folders for path in folder.glob("*/*.yaml")):
        groups.setdefault(file.parent.name, {})[file.stem] = file
    return groups


def check_names(overrides: Sequence[str], folders: Sequence[Path] = (CONFIGS,)) -> None:
    """Check the `group=name` overrides of a command line against what exists, before Hydra composes.

    Raises:
        ConfigError: an unknown name, with the nearest ones and the list; or `method` or `dataset` beside an experiment,
            which has its own.
    """
    keys = {override.partition("=")[0].partition(".")[0] for override in overrides}
    groups = choices(folders)
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        group = key.partition("@")[0].strip("/")
        if group in groups and "(" not in value:
            for name in filter(None, value.split(",")):
                if name not in ("null", *groups[group]):
                    raise ConfigError(f"{group}={name}: {near(name, list(groups[group]))}")
                if group == "experiment" and name != "null":
                    text = groups[group][name].read_text(encoding="utf-8")
                    for single in keys & {"method", "dataset"}:
                        if f"@{single}s." in text:
                            raise ConfigError(
                                f"{single}: experiment {name} has its own {single}s; "
                                f"change them by {single}s.NAME.FIELD=VALUE"
                            )


def near(name: str, known: Sequence[str]) -> str:
    """Words for an unknown name: the nearest ones, and all there are."""
    matches = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    guess = f"did you mean {' or '.join(matches)}? " if matches else "no such name. "
    return f"{guess}There are: {', '.join(known)}"


def make_method(name: str, fields: Mapping[str, Any] | None = None) -> Any:
    """The method that `method=name` stands for, with `fields` in place of what configs/method says.

    Raises:
        ConfigError: an unknown name or field, with the nearest ones; a wrong value; a field that has to be given.
    """
    known = choices()["method"]
    if name not in known:
        raise ConfigError(f"method={name}: {near(name, list(known))}")
    config: Any = OmegaConf.load(known[name])
    allowed = [str(field) for field in config if field not in ("name", "_target_")]
    for field in fields or ():
        if field not in allowed:
            raise ConfigError(f"method {name}: {field}: {near(field, allowed)}")
    whole = OmegaConf.create({
        "method": OmegaConf.merge(config, dict(fields or {})),
        "cost": OmegaConf.load(CONFIGS / "cost" / "gpu_like.yaml"),
    })  # fmt: skip
    for field in allowed:
        try:
            whole.method[field]
        except InterpolationResolutionError:  # what a run knows and a library does not, such as the model's name
            raise ConfigError(f"method {name}: give {field}") from None
    return build(whole.method, f"method {name}")


def grid_cells(method: str, grid: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, Any]]:
    """Name of each cell, "ngram_trie[n=8,prefix_len=2]", and the values of its fields; the last field turns fastest.

    Raises:
        ValueError: a field without values, or with a value twice.
    """
    for field, values in grid.items():
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise ValueError(f"grid.{field}={values}: must be a list of values")
        if len(set(values)) < len(values):
            raise ValueError(f"grid.{field}={list(values)}: a value is there twice")
    combinations = (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
    return {f"{method}[{','.join(f'{k}={v}' for k, v in cell.items())}]": cell for cell in combinations}


def named(config: DictConfig, single: str, several: str) -> dict[str, Any]:
    """The configured methods or datasets by name: those of an experiment, the cells of a grid, else the single one."""
    if config[several]:
        return dict(config[several].items())
    if single == "method" and config.grid:
        for field in config.grid:
            if field not in config.method:
                known = [str(name) for name in config.method if name not in ("name", "_target_")]
                raise ConfigError(
                    f"grid.{field}: not a field of method {config.method.name}; {near(str(field), known)}"
                )
        cells = grid_cells(config.method.name, OmegaConf.to_container(config.grid, resolve=True))  # type: ignore[arg-type]
        return {name: OmegaConf.merge(config.method, fields, {"name": name}) for name, fields in cells.items()}
    return {config[single].name: config[single]}


def build_all(config: DictConfig, group: str) -> dict[str, Any]:
    """All configured members of `group` ("dataset" or "method") by name, built; for a live run vanilla, the
    denominator, is always among the methods.
    """
    configs = named(config, group, f"{group}s")
    if group == "method" and "vanilla" not in configs and config.engine.name != "replay":
        configs = {"vanilla": OmegaConf.load(CONFIGS / "method" / "vanilla.yaml")} | configs
    return {name: build(part, f"{group} {name}") for name, part in configs.items()}


def noise_settings(config: DictConfig) -> NoiseSettings | None:
    """How the run's contexts are made noisy, if they are.

    Raises:
        ConfigError: an unknown field or a wrong value.
    """
    if not config.noise:
        return None
    try:
        return NoiseSettings(**config.noise)
    except TypeError:
        known = [field.name for field in fields(NoiseSettings)]
        raise ConfigError(f"noise={config.noise}: give {', '.join(known)}, the first at least") from None


def check_values(config: DictConfig) -> None:
    """Check the fields that no class of their own checks.

    Raises:
        ConfigError: field, value and what is allowed.
    """
    optional = ("engine.num_threads", "engine.num_jobs", "model.context_limit")
    for field in ("measure.repeats", "measure.max_new_tokens", "engine.max_draft", *optional):
        value = OmegaConf.select(config, field)
        if not (value is None and field in optional) and (type(value) is not int or value < 1):
            raise ConfigError(f"{field}={value}: must be an integer of at least 1")
    unused = ("engine.verify", "engine.backend")  # of a replay
    for field, allowed in (
        ("model.dtype", ("float32", "bfloat16", "float16")),
        ("model.attention", ("sdpa", "eager")),
        ("measure.truncation", ("fail", "end", "middle")),
        ("engine.name", ("live", "replay", "forced")),
        ("engine.verify", ("tree", "rows")),
        ("engine.backend", ("auto", "stock", "static")),
        ("model.weights", ("pretrained", "random")),
        ("force", (True, False)),
    ):
        value = OmegaConf.select(config, field)
        if value not in allowed and not (field in unused and config.engine.name == "replay"):
            raise ConfigError(f"{field}={value}: must be one of {', '.join(map(str, allowed))}")
    if config.engine.name != "replay" and config.engine.verify == "rows" and config.engine.backend == "static":
        raise ConfigError("engine.backend=static verifies trees; engine.verify=rows needs engine.backend=stock or auto")
    if config.engine.name != "live" and not config.engine.traces:
        raise ConfigError(
            "engine.traces: give a file of recorded answers; a live run writes traces.jsonl to its folder"
        )
    for field, what in (
        ("methods", "experiments fill it; one alone is method=NAME"),
        ("datasets", "experiments fill it; one alone is dataset=NAME"),
        ("grid", "lists of values by field: 'grid={n: [8, 13]}'"),
        ("noise", "'noise={kinds: [paragraph, passages], share: 0.3}'"),
    ):
        if not isinstance(config[field] or {}, Mapping | DictConfig):
            raise ConfigError(f"{field}={config[field]}: {what}")
    if config.grid and config.methods:
        raise ConfigError("grid: it varies the one method; an experiment with methods of its own has none")


def build(config: DictConfig | ListConfig, where: str) -> Any:
    """Instantiate what `_target_` names with the other fields.

    Raises:
        ConfigError: a field is unknown or has a wrong value.
    """
    fields: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    if not where.startswith("dataset"):  # a dataset is told its name, the others have no use for it
        fields.pop("name", None)
    try:
        return construct(fields)
    except Exception as error:  # whatever the class raises
        raise ConfigError(f"{where}: {error}") from error


def imported(target: str) -> str:
    """The import name of a `_target_`. Configurations and manifests name the project's folders baselines/ and data/ as
    they stand in a checkout; they are imported as parts of the package.
    """
    return f"ngram_trie.{target}" if target.partition(".")[0] in ("baselines", "data") else target


def construct(value: Any) -> Any:
    """Whatever `_target_` names within a configuration, called with the other fields; the innermost first."""
    if isinstance(value, list):
        return [construct(part) for part in value]
    if not isinstance(value, dict):
        return value
    fields = {name: construct(part) for name, part in value.items()}
    target = fields.pop("_target_", None)
    return fields if target is None else resolve_name(imported(target))(**fields)


def resolve(config: DictConfig) -> dict[str, Any]:
    """What decides the results: the resolved config without where they go; paths relative to the project."""
    # A replay has neither a model nor data sets, and live seconds are measured, not derived from a cost curve.
    unused = {
        "live": ["cost"],
        "replay": ["model", "dataset", "datasets", "measure"],
        "forced": ["cost", "dataset", "datasets"],
    }[config.engine.name]
    resolved: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    for name in ("output", "force", *unused):
        del resolved[name]
    for single, several in (("dataset", "datasets"), ("method", "methods")):
        if resolved.get(several):
            resolved.pop(single, None)
    if "traces" in resolved["engine"]:  # what they are is said by their hash, not by where they lie
        resolved["engine"]["traces"] = Path(resolved["engine"]["traces"]).name
    return relative(resolved)


def default_folder(config: DictConfig, run_id: str) -> Path:
    """Where a run goes that was not told: named after its model or traces, its data sets and methods."""
    if config.engine.name == "replay":
        about = ["replay", Path(config.engine.traces).stem]
    elif config.engine.name == "forced":
        about = ["forced", config.model.name, Path(config.engine.traces).stem]
    else:
        about = [config.model.name, "+".join(named(config, "dataset", "datasets"))]
    method = config.method.name if config.grid else "+".join(named(config, "method", "methods"))
    return PROJECT / "results" / "local" / "runs" / "-".join([*about, method, run_id[:8]])
