"""Methods by their names in configs/method: what there is, and objects of it."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_args

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from ngram_trie.budget.adaptive import AdaptiveDrafter
from ngram_trie.budget.rule import ChainDrafter
from ngram_trie.drafter import Drafter, Shape, Traits, check_choice, check_int
from ngram_trie.store.files import CONFIGS, first_line, place, relative

OmegaConf.register_new_resolver("project", lambda path: str(place(path)), replace=True)
#: What a model or data set of one's own is called: its file or folder.
OmegaConf.register_new_resolver(
    "stem",
    lambda path: (
        re.sub(r"\.(gguf|jsonl(\.gz)?)$", "", Path(path).absolute().name, flags=re.IGNORECASE) if path else "own"
    ),
    replace=True,
)

#: A name of configs/method, the name with fields ({"name": "ngram_trie", "n": 8}), or a drafter.
DrafterLike = str | Mapping[str, Any] | Drafter
#: Chains of a fixed length are taken from trees of at least this many nodes.
CHAIN_TREE = 64


class ConfigError(ValueError):
    """The configuration is wrong; the message is one line that says what and what to do."""


def choices(folders: Sequence[Path] = (CONFIGS,)) -> dict[str, dict[str, Path]]:
    """The groups of choices, and in each of them name -> file."""
    groups: dict[str, dict[str, Path]] = {}
    for file in sorted(path for folder in folders for path in folder.glob("*/*.yaml")):
        groups.setdefault(file.parent.name, {})[file.stem] = file
    return groups


def settings_of(file: Path) -> Any:
    """The fields of a member of a group, those of the members that its `defaults` name included, as Hydra has them."""
    own: Any = OmegaConf.load(file)
    parts = [settings_of(base) for base in bases(own.pop("defaults", ()), file)]
    return OmegaConf.merge(*parts, own)


def bases(names: Sequence[Any], file: Path) -> list[Path]:
    """The files of its own group that `defaults` of a member name: beside it, or in configs/."""
    beside = [file.with_name(f"{name}.yaml") for name in names if isinstance(name, str) and name != "_self_"]
    return [base if base.exists() else CONFIGS / file.parent.name / base.name for base in beside]


def text_of(file: Path) -> str:
    """What an experiment says, and what those say that its `defaults` include."""
    included = bases(OmegaConf.load(file).get("defaults", ()), file)  # type: ignore[arg-type]
    return "".join([file.read_text(encoding="utf-8"), *map(text_of, included)])


@functools.cache
def _synthetic_models() -> frozenset[str]:
    loaded = map(settings_of, choices()["model"].values())
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
        num_nodes: most nodes of a draft, which the method spends as with `budget=equal`.

    Raises:
        ConfigError: an unknown name or field, with the nearest ones; a wrong value; a field that has to be given.
    """
    known = choices()["method"]
    if name not in known:
        raise ConfigError(f"method={name}: {near(name, list(known))}")
    config = settings_of(known[name])
    shape = config.get("shape", shape)
    allowed = [str(field) for field in config if field not in ("name", "_target_", "shape")]
    for field in fields or ():
        if field not in allowed:
            raise ConfigError(f"method {name}: {field}: {near(field, allowed)}")
    whole = OmegaConf.create({"method": OmegaConf.merge(config, dict(fields or {}))})
    try:
        method: Any = OmegaConf.to_container(whole.method, resolve=True)
    except InterpolationResolutionError as error:  # what a run knows and a library does not, such as the model's name
        raise ConfigError(f"method {name}: give {error.key}") from None
    if shape != "tree":
        method["shape"] = shape
    if num_nodes is not None:
        try:
            check_int("num_draft", num_nodes, 1)
        except ValueError as error:
            raise ConfigError(f"method {name}: {error}") from None
        size = fixed_size(method, num_nodes)
        if twice := size.keys() & (fields or {}).keys():
            raise ConfigError(f"method {name}: num_draft sets {', '.join(sorted(twice))}: give the one or the other")
        if not size and shape == "tree" and issubclass(class_of(method), Drafter):
            raise ConfigError(f"method {name}: num_draft: its drafts have no size to choose")
        method |= size
    return build(method, f"method {name}")


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
        return ChainDrafter(drafter) if shape == "chain" and not drafter.traits.drafts_chains else drafter
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
    if own := method.traits.own_model:
        raise ValueError(f"method {name} drafts for a model of its own, {relative(own)}, and for no other")
    for part, how in method.parts().items():
        if not part.exists() and str(part) not in method.weights():  # those of a hub id are fetched by `bind`
            raise FileNotFoundError(f"method {name}: {relative(str(part))} is not there; {how}")
    return method


def check_reads_tokens(drafter: Drafter, name: object, engine: str) -> None:
    """
    Raises:
        ConfigError: a drafter that needs more than tokens, which is all that `engine` hands over.
    """
    needs = drafter.traits.reads if drafter.traits.reads != "tokens" else "a model of its own"
    if not drafter.traits.needs_tokens_alone:
        raise ConfigError(f"method {name} reads {needs}, and {engine} hands over tokens alone: give blend")


def sizes(method: Mapping[Any, Any], num_nodes: int) -> dict[str, Any]:
    """The fields of a method's configuration, with their values, that give it drafts of at most this many nodes."""
    return {name: value for name, value in class_of(method).sized(num_nodes).items() if name in method}


def fixed_size(method: Mapping[Any, Any], num_nodes: int) -> dict[str, Any]:
    """The fields that give a method this many nodes: its own size, or, of chains cut from trees, the chain's."""
    if method.get("shape") == "chain" and _is_cut(class_of(method)):
        return sizes(method, max(num_nodes, CHAIN_TREE)) | {"budget": {"num_nodes": num_nodes}}
    return sizes(method, num_nodes)


def class_of(method: Mapping[Any, Any]) -> Any:
    """The class that a method's configuration names."""
    return named_by(method["_target_"])


def _is_cut(method: Any) -> bool:
    """Whether `shape=chain` cuts the drafts of a method, or of a class of them."""
    return not getattr(method, "traits", Traits(drafts_chains=True)).drafts_chains


def build(config: Mapping[Any, Any], where: str) -> Any:
    """Instantiate what `_target_` names with the other fields.

    Raises:
        ConfigError: a field is unknown or has a wrong value.
    """
    fields: Any = OmegaConf.to_container(config, resolve=True) if isinstance(config, DictConfig) else dict(config)
    if not where.startswith("dataset"):  # a dataset is told its name, the others have no use for it
        fields.pop("name", None)
    budget, shape = fields.pop("budget", None), fields.pop("shape", "tree")
    size = construct(budget) if isinstance(budget, dict) else {}
    try:
        check_choice("shape", shape, get_args(Shape))
        if where.startswith("method") and not hasattr(named_by(fields["_target_"]), "sized"):
            raise ConfigError(f"_target_={fields['_target_']}: neither a Drafter nor a Decoder")
        built = construct(fields)
        is_adaptive, cost = size.pop("adaptive", False), size.pop("cost", None)
        built = ChainDrafter(built, **size) if shape == "chain" and _is_cut(built) else built
        return AdaptiveDrafter(built, cost=cost) if is_adaptive else built
    except Exception as error:  # whatever the class raises
        raise ConfigError(f"{where}: {error}") from error


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


def imported(target: str) -> str:
    """The import name of a `_target_`. Configurations and manifests name the project's folders baselines/ and data/ as
    they stand in a checkout; they are imported as parts of the package.
    """
    return f"ngram_trie.{target}" if target.partition(".")[0] in ("baselines", "data") else target
