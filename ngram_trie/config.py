"""Reads the configuration: answers unknown names with the nearest ones, and builds objects from YAML."""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar, get_args

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError
from pydantic import TypeAdapter, ValidationError

from ngram_trie.adaptive import Adaptive
from ngram_trie.budget import Budgeted, Chained
from ngram_trie.drafter import Drafter, Shape, check_choice
from ngram_trie.files import CONFIGS, PROJECT, first_line, place, placeless, relative
from ngram_trie.schemas import Constants, NoiseSettings, Run

OmegaConf.register_new_resolver("project", lambda path: str(place(path)), replace=True)
#: What a model or data set of one's own is called: its file or folder.
OmegaConf.register_new_resolver(
    "stem",
    lambda path: Path(path).absolute().name.removesuffix(".gguf").removesuffix(".jsonl") if path else "own",
    replace=True,
)

T = TypeVar("T")

#: A name of configs/method, the name with fields ({"name": "ngram_trie", "n": 8}), or a drafter.
DrafterLike = str | Mapping[str, Any] | Drafter

#: Chains of a fixed length are taken from trees of at least this many nodes.
CHAIN_TREE = 64

#: By which engines and budgets are told apart; no field has such a name.
SCHEMAS = ("live", "replay", "forced", "published", "equal", "auto", "learned")


class ConfigError(ValueError):
    """The configuration is wrong; the message is one line that says what and what to do."""


def choices(folders: Sequence[Path] = (CONFIGS,)) -> dict[str, dict[str, Path]]:
    """The groups of choices, and in each of them name -> file."""
    groups: dict[str, dict[str, Path]] = {}
    for file in sorted(path for folder in folders for path in folder.glob("*/*.yaml")):
        groups.setdefault(file.parent.name, {})[file.stem] = file
    return groups


@functools.cache
def _synthetic_models() -> frozenset[str]:
    loaded = (OmegaConf.load(file) for file in choices()["model"].values())
    return frozenset(str(model.name) for model in loaded if OmegaConf.select(model, "synthetic"))


def is_synthetic(model: str) -> bool:
    """Whether a model, by its name in records and titles, is one of those whose configuration says `synthetic: true`:
    trained on text of the project's own making, and asked about such text. Its tables say so and name no winner.
    """
    return re.split("[ ,]", model)[0] in _synthetic_models()


def near(name: str, known: Sequence[str]) -> str:
    """Words for an unknown name: the nearest ones, and all there are."""
    matches = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    guess = f"did you mean {' or '.join(matches)}? " if matches else "no such name. "
    return f"{guess}There are: {', '.join(known)}"


def make_method(
    name: str, fields: Mapping[str, Any] | None = None, shape: Shape = "tree", num_nodes: int | None = None
) -> Any:
    """The method that `method=name` stands for, with `fields` in place of what configs/method says.

    Args:
        shape: "chain" for drafts that are chains.
        num_nodes: most nodes of a tree, its `num_draft`, or of a chain.

    Raises:
        ConfigError: an unknown name or field, with the nearest ones; a wrong value; a field that has to be given.
    """
    known = choices()["method"]
    if name not in known:
        raise ConfigError(f"method={name}: {near(name, list(known))}")
    config: Any = OmegaConf.load(known[name])
    shape = config.get("shape", shape)
    if num_nodes is not None and shape == "tree":
        fields = {**(fields or {}), "num_draft": num_nodes}
    allowed = [str(field) for field in config if field not in ("name", "_target_", "shape")]
    for field in fields or ():
        if field not in allowed:
            raise ConfigError(f"method {name}: {field}: {near(field, allowed)}")
    whole = OmegaConf.create({"method": OmegaConf.merge(config, dict(fields or {}))})
    if shape != "tree":
        OmegaConf.update(whole.method, "shape", shape, force_add=True)
        if num_nodes is not None:
            give_size(whole, whole.method, {"num_nodes": num_nodes}, 0)
    for field in allowed:
        try:
            whole.method[field]
        except InterpolationResolutionError:  # what a run knows and a library does not, such as the model's name
            raise ConfigError(f"method {name}: give {field}") from None
    return build(whole.method, f"method {name}")


def make_drafter(drafter: DrafterLike, num_draft: int | None = None, shape: Shape = "tree") -> Drafter:
    """The drafter meant by a name, by a name with fields, or by itself; of `shape` "chain" it drafts chains.

    Raises:
        ValueError: an unknown name or field, a wrong value, a method that is no drafter for any model.
        FileNotFoundError: something that it needs is not there; the message says how to get it.
    """
    check_choice("shape", shape, get_args(Shape))
    if isinstance(drafter, Drafter):
        if num_draft is not None:
            raise ValueError("num_draft: this drafter is an object and has its own; give the one or the other")
        return Chained(drafter) if shape == "chain" and not drafter.drafts_chains else drafter
    if not isinstance(drafter, str | Mapping):
        raise ValueError(
            f"drafter: a {type(drafter).__name__} is neither a name, a name with fields, nor a Drafter object"
        )
    fields: dict[str, Any] = {"name": drafter} if isinstance(drafter, str) else dict(drafter)
    if "name" not in fields:
        raise ValueError(f"drafter={fields}: give its name, as in {{'name': 'ngram_trie', 'n': 8}}")
    name = fields.pop("name")
    method = make_method(name, fields, shape, num_draft)
    if not isinstance(method, Drafter):
        raise ValueError(f"method {name} has a decoding loop of its own; give a drafter, such as 'blend'")
    if method.own_model:
        raise ValueError(f"method {name} drafts for a model of its own, {relative(method.own_model)}, and for no other")
    for part, how in method.parts().items():
        if not part.exists():
            raise FileNotFoundError(f"method {name}: {relative(str(part))} is not there; {how}")
    return method


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
        return {name: OmegaConf.merge(config.method, fields, {"name": name}) for name, fields in cells.items()}
    return {config[single].name: config[single]}


def apply_budget(config: DictConfig) -> None:
    """Give every configured method the size that `budget` asks for and the `shape`, in place. A method with a field
    `budget: published` keeps its own size, and so does one that has no size, such as vanilla; one with a field `shape`
    has that. Applying it again changes nothing.

    Raises:
        ConfigError: no constants for a method, or no file of them.
    """
    rule = config.budget
    # the cells of a grid are made of the one method, and have sizes of their own
    methods = {config.method.name: config.method} if config.grid else named(config, "method", "methods")
    for method in methods.values():
        if config.shape != "tree" and "shape" not in method:
            OmegaConf.update(method, "shape", config.shape, force_add=True)
    if rule.rule == "published":
        return
    if rule.rule == "learned":
        for method in methods.values():
            if not method.get("budget") and getattr(class_of(method), "scores_nodes", False):
                OmegaConf.update(method, "budget", {"learned": True}, force_add=True)
        return
    constants = read_constants(rule.constants, costs(config)) if rule.rule == "auto" else {}
    for name, method in methods.items():
        if method.get("budget") or not sizes(method, 1):
            continue
        whose = rule.get("like", {}).get(name, name)
        if rule.rule == "auto" and whose not in constants:
            raise ConfigError(
                f"budget=auto: {relative(rule.constants)} has no constants for {name}: `make fit-budgets` chooses "
                f"them; or give +budget.like.{name}=OTHER, or +methods.{name}.budget=published"
            )
        chosen = constants[whose] if rule.rule == "auto" else {"num_nodes": rule.num_nodes}
        give_size(config, method, chosen, rule.get("max_nodes", 0))


def give_size(config: DictConfig, method: DictConfig, constants: Mapping[str, float], max_nodes: int) -> None:
    """Give a method a fixed number of nodes, `num_nodes`, or the size rule with its constants, up to `max_nodes`."""
    if "num_nodes" in constants and method.get("shape") == "chain" and _is_cut(class_of(method)):
        num_nodes = int(constants["num_nodes"])
        fields = sizes(method, max(num_nodes, CHAIN_TREE)) | {"budget": {"num_nodes": num_nodes}}
    elif "num_nodes" in constants:
        fields = sizes(method, int(constants["num_nodes"]))
    else:
        fields = sizes(method, max_nodes)
        fields["budget"] = {
            "max_draft": max_nodes,
            "cost": OmegaConf.to_container(config.cost, resolve=True),
            **constants,
        }
    for field, value in fields.items():
        OmegaConf.update(method, field, value, force_add=True)


def sizes(method: DictConfig, num_nodes: int) -> dict[str, Any]:
    """The fields of a method's configuration, with their values, that give it drafts of at most this many nodes."""
    return {name: value for name, value in class_of(method).sized(num_nodes).items() if name in method}


def class_of(method: DictConfig) -> Any:
    """The class that a method's configuration names."""
    return named_by(method._target_)


def _is_cut(method: Any) -> bool:
    """Whether `shape=chain` cuts the drafts of a method, or of a class of them: not where they are chains, and not
    those of an outside loop.
    """
    return not getattr(method, "drafts_chains", True)


def costs(config: DictConfig) -> Any:
    """What steps cost, as the configuration says it, paths relative to the project."""
    return relative(OmegaConf.to_container(config.cost, resolve=True))


def read_constants(path: str, under: Any) -> Mapping[str, Mapping[str, float]]:
    """By method, what `scripts.fit_budgets` chose: power, discount and caution, or num_nodes.

    Raises:
        ConfigError: no such file, or one that was chosen under other costs than `under`.
    """
    where = f"budget.constants={relative(path)}"
    if not Path(path).exists():
        raise ConfigError(f"{where}: no such file; `make fit-budgets TRACES=FILE` writes one")
    try:
        found = Constants.model_validate_json(Path(path).read_text(encoding="utf-8")).model_dump()
    except (OSError, ValueError):
        raise ConfigError(f"{where}: not a file that `make fit-budgets` has written") from None
    if found["cost"] != under:
        raise ConfigError(
            f"{where}: chosen under cost {found['cost']}, not {under}: choose them again, or give that cost"
        )
    constants: Mapping[str, Mapping[str, float]] = found["methods"]
    return constants


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


def build(config: DictConfig | ListConfig, where: str) -> Any:
    """Instantiate what `_target_` names with the other fields.

    Raises:
        ConfigError: a field is unknown or has a wrong value.
    """
    fields: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    if not where.startswith("dataset"):  # a dataset is told its name, the others have no use for it
        fields.pop("name", None)
    budget, shape = fields.pop("budget", None), fields.pop("shape", "tree")
    size = construct(budget) if isinstance(budget, dict) else {}
    try:
        check_choice("shape", shape, get_args(Shape))
        if where.startswith("method") and not hasattr(named_by(fields["_target_"]), "sized"):
            raise ConfigError(f"_target_={fields['_target_']}: neither a Drafter nor a Decoder")
        built = construct(fields)
        if "cost" in size:
            return Budgeted(built, shape=shape, **size)
        learned = size.pop("learned", False)
        built = Chained(built, **size) if shape == "chain" and _is_cut(built) else built
        return Adaptive(built) if learned else built
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
    return fields if target is None else named_by(target)(**fields)


def named_by(target: str) -> Any:
    """The class, or the function of this project, that a `_target_` names.

    Raises:
        ConfigError: there is none.
    """
    try:
        found = resolve_name(imported(target))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"_target_={target}: {first_line(error)}; give MODULE.CLASS") from None
    is_ours = inspect.isroutine(found) and (found.__module__ or "").startswith("ngram_trie.")
    if not inspect.isclass(found) and not is_ours:
        raise ConfigError(f"_target_={target}: neither a class nor a function of this project")
    return found


def resolve(config: DictConfig) -> dict[str, Any]:
    """What decides the results: the resolved config without where they go; paths relative to the project."""
    # A replay has neither a model nor data sets, and live seconds are measured, not derived from a cost curve.
    unused = {
        "live": ["cost"],
        "replay": ["model", "dataset", "datasets", "measure"],
        "forced": ["cost", "dataset", "datasets"],
    }[config.engine.name]
    resolved: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    for name in ("output", "force", "repair", "samples", "log", "dry_run", "likely", *unused):
        del resolved[name]
    if resolved["shape"] == "tree":  # so it was before there was another
        del resolved["shape"]
    if not resolved["budget"].get("like", True):
        del resolved["budget"]["like"]
    for single, several in (("dataset", "datasets"), ("method", "methods")):
        if resolved.get(several):
            resolved.pop(single, None)
    if "traces" in resolved["engine"]:  # what they are is said by their hash, not by where they lie
        resolved["engine"]["traces"] = Path(resolved["engine"]["traces"]).name
    return placeless(relative(resolved))


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
