"""A run's configuration: checked against its schema, budgets applied, and what of it decides the results."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError

from ngram_trie.bench.schemas import Equal, Published, Replay, Run, ServerRun
from ngram_trie.data.noise import NoiseSettings
from ngram_trie.drafter import Traits
from ngram_trie.methods import ConfigError, build, class_of, fixed_size, near, sizes
from ngram_trie.store.files import CONFIGS, PROJECT, first_line, placeless, relative

T = TypeVar("T", bound=BaseModel)


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


def named(plain: Mapping[str, Any], group: str) -> dict[str, dict[str, Any]]:
    """The methods or data sets ("method", "dataset") by name: an experiment's, the cells of a grid, or the one."""
    one = plain[group]
    if group == "dataset":  # an answer knows its set by the name, whatever the set's key is
        return {part.get("name", key): part for key, part in (plain["datasets"] or {"": one}).items()}
    if plain[f"{group}s"]:
        return dict(plain[f"{group}s"])
    if group == "method" and plain["grid"]:
        for field in plain["grid"]:
            if field not in one:
                known = [name for name in one if name not in ("name", "_target_")]
                raise ConfigError(f"grid.{field}: not a field of method {one['name']}; {near(field, known)}")
        cells = grid_cells(one["name"], plain["grid"])
        return {name: {**one, **fields, "name": name} for name, fields in cells.items()}
    return {one["name"]: one}


def budgeted(run: Run) -> Run:
    """The run with its methods in the size that `budget` asks for and in the `shape`. A method with a field
    `budget: published` keeps its own size, and so does one that has no size, such as vanilla, or under auto without
    num_nodes one that does not score its nodes; one with a field `shape` has that. Of a run that is so already, the
    same.
    """
    if run.methods:
        return changed(run, methods={name: _sized(run, method) for name, method in run.plain["methods"].items()})
    return changed(run, method=_sized(run, run.plain["method"]))  # cells of a grid are made of it


def _sized(run: Run, method: dict[str, Any]) -> dict[str, Any]:
    rule, own = run.budget, method if run.shape == "tree" else {**method, "shape": method.get("shape", run.shape)}
    if isinstance(rule, Published) or own.get("budget") or not sizes(own, 1):
        return own
    if isinstance(rule, Equal) or not getattr(class_of(own), "traits", Traits()).scores_nodes:
        return own if rule.num_nodes is None else own | fixed_size(own, rule.num_nodes)
    cost = {"cost": run.plain["cost"]} if isinstance(run.engine, Replay) else {}
    return own | sizes(own, rule.max_nodes) | {"budget": {"adaptive": True, **cost}}


def build_all(run: Run | ServerRun, group: str) -> dict[str, Any]:
    """All configured members of `group` ("dataset" or "method") by name, built; for a live run vanilla, the
    denominator, is always among the methods.
    """
    configs: dict[str, Any] = named(run.plain, group)
    if group == "method" and "vanilla" not in configs and run.plain["engine"]["name"] != "replay":
        configs = {"vanilla": OmegaConf.load(CONFIGS / "method" / "vanilla.yaml")} | configs
    return {name: build(part, f"{group} {name}") for name, part in configs.items()}


def changed(run: Run, **fields: Mapping[str, Any]) -> Run:
    """The run with other fields in its groups, as in `changed(run, model={"device": "cpu"})`."""
    return checked({**run.plain, **{group: {**run.plain[group], **values} for group, values in fields.items()}})


def checked(config: Mapping[Any, Any], schema: type[T] = Run) -> T:  # type: ignore[assignment]
    """A composed configuration, or a plain one, as its schema reads it.

    Raises:
        ConfigError: the first wrong field, its value, and what is allowed; or a reference that leads nowhere.
    """
    plain: Any = config
    try:
        if isinstance(config, DictConfig):
            plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        return schema.model_validate(plain)
    except OmegaConfBaseException as error:
        raise ConfigError(first_line(error)) from None
    except ValidationError as error:
        errors = error.errors(include_url=False)
    first = errors[0]
    # behind `engine` and `budget` stands which of their schemas was taken; behind a value of several types, which type
    same = [each for each in errors if each["loc"][:-1] == first["loc"][:-1] and each["input"] is first["input"]]
    is_union = len(same) > 1 and first["loc"][-1] in ("bool", "float", "int", "str")
    parts = [str(part) for part in first["loc"][: -1 if is_union else None] if part not in SCHEMAS]
    field = ".".join(parts)
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        there = NoiseSettings.__dataclass_fields__ if parts[0] == "noise" else reduce(getitem, parts[:-1], plain)
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


#: What an engine does not read: a replay has neither a model nor data sets, answers that are forced end where they were
#: recorded to end, and live seconds are measured, not derived from a cost curve.
UNUSED = {
    "live": ("cost",),
    "replay": ("model", "dataset", "datasets", "measure"),
    "teacher_forced": (
        "cost", "dataset", "datasets", "measure.max_new_tokens", "measure.share_prefill", "measure.truncation",
    ),
}  # fmt: skip
#: Letters of each part of a folder's name, which the run's id tells from others: file systems take 255 in all.
MOST_NAMED = 60
#: What decides where results go and what is shown, not what they are.
BESIDE = ("output", "shard", "force", "samples", "dry_run")


def check_beside(run: Run, command: str) -> None:
    """
    Raises:
        ConfigError: a setting of `BESIDE` that only `run` takes was given to another command.
    """
    for name in BESIDE[1:]:
        if getattr(run, name):
            raise ConfigError(f"{name}: {command} does not take it; leave it out")


def resolve(run: Run) -> dict[str, Any]:
    """What decides the results: the plain config without where they go; paths relative to the project."""
    unread = (*BESIDE, *UNUSED[run.engine.name])
    resolved = {name: value for name, value in run.plain.items() if name not in unread}
    if resolved["shape"] == "tree":  # so it was before there was another
        del resolved["shape"]
    for group in ("dataset", "method"):
        if resolved.get(f"{group}s"):
            resolved.pop(group, None)
    if traces := resolved["engine"].get("traces"):  # what they are is said by their hash, not by where they lie
        resolved["engine"] = resolved["engine"] | {"traces": Path(traces).name}
    return placeless(relative(resolved))


def default_folder(run: Run, run_id: str) -> Path:
    """The folder of a run without `output`: named after its model or traces, its data sets and methods."""
    engine = run.engine
    kind, model = (engine.name if engine.name != "live" else "", run.model.name if engine.name != "replay" else "")
    asked = "+".join(named(run.plain, "dataset")) if engine.name == "live" else Path(engine.traces).stem
    method = run.method.name if run.grid else "+".join(named(run.plain, "method"))
    parts = [part[:MOST_NAMED] for part in (kind, model, asked, method, run_id[:8]) if part]
    return PROJECT / "results" / "local" / "runs" / "-".join(parts)
