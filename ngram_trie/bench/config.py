"""A run's configuration: checked against its schema, budgets applied, and what of it decides the results."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from pydantic import TypeAdapter, ValidationError

from ngram_trie.bench.schemas import Run
from ngram_trie.data.noise import NoiseSettings
from ngram_trie.drafter import Traits
from ngram_trie.methods import ConfigError, build, class_of, fixed_size, near, sizes
from ngram_trie.store.files import CONFIGS, PROJECT, placeless, relative

T = TypeVar("T")


#: By which engines and budgets are told apart; no field has such a name.
SCHEMAS = ("live", "replay", "teacher_forced", "published", "equal", "auto")


def grid_cells(method: str, grid: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, Any]]:
    """Name of each cell, "ngram_trie[n=8,prefix_len=2]", and the values of its fields; the last field turns fastest.

    Raises:
        ValueError: a field without values, or with a value twice.
    """
    for field, values in grid.items():
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise ValueError(f"grid.{field}={values}: must be a list of values")
        if any(isinstance(value, list | dict) for value in values):
            raise ValueError(f"grid.{field}={list(values)}: must be plain values, no lists in it")
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
        whole = OmegaConf.to_container(
            config.method, resolve=True
        )  # a copy of it is made in no time, thousands of times
        return {name: OmegaConf.create({**whole, **fields, "name": name}) for name, fields in cells.items()}  # type: ignore[dict-item]
    return {config[single].name: config[single]}


def apply_budget(config: DictConfig) -> None:
    """Give every configured method the size that `budget` asks for and the `shape`, in place. A method with a field
    `budget: published` keeps its own size, and so does one that has no size, such as vanilla, or under auto one that
    does not score its nodes; one with a field `shape` has that. Applying it again changes nothing.
    """
    # the cells of a grid are made of the one method, and have sizes of their own
    methods = {config.method.name: config.method} if config.grid else named(config, "method", "methods")
    for method in methods.values():
        if config.shape != "tree" and "shape" not in method:
            OmegaConf.update(method, "shape", config.shape, force_add=True)
    for method in methods.values():
        for field, value in sizes_under_budget(config, method).items():
            OmegaConf.update(method, field, value, force_add=True)


def sizes_under_budget(config: DictConfig, method: DictConfig) -> dict[str, Any]:
    """The fields, with their values, that the run's `budget` gives one of its methods in place of the method's own."""
    rule = config.budget
    if rule.rule == "published" or method.get("budget") or not sizes(method, 1):
        return {}
    if rule.rule == "equal":
        return fixed_size(method, rule.num_nodes)
    if not getattr(class_of(method), "traits", Traits()).scores_nodes:
        return {}
    cost = {"cost": OmegaConf.to_container(config.cost, resolve=True)} if config.engine.name == "replay" else {}
    return sizes(method, rule.max_nodes) | {"budget": {"adaptive": True, **cost}}


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
    return validated(NoiseSettings, config.noise, "noise") if config.noise else None


def check_values(config: DictConfig) -> None:
    """Check a run's configuration against its schema.

    Raises:
        ConfigError: field, value and what is allowed.
    """
    validated(Run, config)


def validated(schema: type[T], config: DictConfig, where: str = "") -> T:
    """The configuration as its schema reads it.

    Args:
        where: the field that holds it; empty for all of a run's.

    Raises:
        ConfigError: the first wrong field, its value, and what is allowed.
    """
    try:
        return TypeAdapter(schema).validate_python(OmegaConf.to_container(config, resolve=True, throw_on_missing=True))
    except ValidationError as error:
        errors = error.errors(include_url=False)
    first = errors[0]
    # behind `engine` and `budget` stands which of their schemas was taken; behind a value of several types, which type
    same = [each for each in errors if each["loc"][:-1] == first["loc"][:-1] and each["input"] is first["input"]]
    is_union = len(same) > 1 and first["loc"][-1] in ("bool", "float", "int", "str")
    parts = [str(part) for part in first["loc"][: -1 if is_union else None] if part not in SCHEMAS]
    field = ".".join(filter(None, [where, *parts]))
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        owner = field.rpartition(".")[0]
        there = NoiseSettings.__dataclass_fields__ if owner == "noise" else OmegaConf.select(config, owner or "")
        names = near(parts[-1], [name for name in there if name != parts[-1]])
        raise ConfigError(f"{field}: no such setting; {names.replace('no such name. There', 'there')}")
    said = " or ".join(each["msg"].removeprefix("Input should be ") for each in same) if is_union else first["msg"]
    what = f"must be {said}" if is_union else said.replace("Input should be", "must be").removeprefix("Value error, ")
    what = re.sub(r" or (an )?instance of \w+", "", what)
    what = "must be given" if first["type"].startswith("missing") else what
    if first["type"] == "string_type" and isinstance(first["input"], int | float):
        what = f"must be text: write it in quotes, '{field}=\"{first['input']}\"'"
    given = first["input"]
    value = "" if not parts or given is None or isinstance(given, Mapping) else f"={given}"
    raise ConfigError(": ".join(filter(None, [f"{field}{value}", what])))


#: What an engine does not read: a replay has neither a model nor data sets, and live seconds are measured, not derived
#: from a cost curve.
UNUSED = {
    "live": ("cost",),
    "replay": ("model", "dataset", "datasets", "measure"),
    "teacher_forced": ("cost", "dataset", "datasets"),
}
#: What decides where results go and what is shown, not what they are.
BESIDE = ("output", "shard", "force", "samples", "dry_run")


def resolve(config: DictConfig) -> dict[str, Any]:
    """What decides the results: the resolved config without where they go; paths relative to the project."""
    resolved: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    for name in (*BESIDE, *UNUSED[config.engine.name]):
        del resolved[name]
    if resolved["shape"] == "tree":  # so it was before there was another
        del resolved["shape"]
    for single, several in (("dataset", "datasets"), ("method", "methods")):
        if resolved.get(several):
            resolved.pop(single, None)
    if "traces" in resolved["engine"]:  # what they are is said by their hash, not by where they lie
        resolved["engine"]["traces"] = Path(resolved["engine"]["traces"]).name
    return placeless(relative(resolved))


def default_folder(config: DictConfig, run_id: str) -> Path:
    """The folder of a run without `output`: named after its model or traces, its data sets and methods."""
    if config.engine.name == "replay":
        about = ["replay", Path(config.engine.traces).stem]
    elif config.engine.name == "teacher_forced":
        about = ["teacher_forced", config.model.name, Path(config.engine.traces).stem]
    else:
        about = [config.model.name, "+".join(named(config, "dataset", "datasets"))]
    method = config.method.name if config.grid else "+".join(named(config, "method", "methods"))
    return PROJECT / "results" / "local" / "runs" / "-".join([*about, method, run_id[:8]])
