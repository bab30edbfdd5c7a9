"""What was asked for is what is done: a setting of the command line that decides nothing of what is measured is refused
by its name, with the reason.

A setting passes if it stands, with its value, in what decides the run; or if the run would be another one without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override

from ngram_trie.bench.config import BESIDE, UNUSED, budgeted, resolve
from ngram_trie.bench.schemas import Run
from ngram_trie.cli.overrides import composed, parse, values_of, with_value
from ngram_trie.methods import ConfigError


def check_effects(lines: Sequence[str], names: Mapping[str, str], folder: Path | None = None) -> None:
    """Check that every setting decides something.

    Args:
        lines: overrides, as in `composed`, which have passed there.
        names: those of them that are checked, with how they were written on the command line.
        folder: as in `composed`.

    Raises:
        ConfigError: a setting that decides nothing, with the reason.
    """
    parsed = parse(lines)
    first = [with_value(override, values_of(override)[0]) for override in parsed]
    for place, (line, override) in enumerate(zip(lines, parsed, strict=True)):
        if line not in names or override.key_or_group.startswith("hydra"):
            continue
        others = [*first[:place], *first[place + 1 :]]
        for value in values_of(override):
            asked = with_value(override, value)
            run = composed([*first[:place], asked, *first[place + 1 :]], folder)
            if not _stands(run, override, asked) and not _decides(run, override, others, folder):
                raise ConfigError(f"{names[line]}: {_why(run, override, value)}")


def _at(plain: Any, key: str) -> Any:
    """The value of a setting; of one that is missing this function, which no setting has as its value."""
    for part in key.split("."):
        plain = plain.get(part, _at) if isinstance(plain, dict) else _at
    return plain


def _stands(run: Run, override: Override, asked: str) -> bool:
    """Whether what decides the run has the value that was asked for."""
    found = _at(_measured(run), override.key_or_group)
    return not override.is_delete() and bool(found == parse([asked])[0].value())


def _decides(run: Run, override: Override, others: Sequence[str], folder: Path | None) -> bool:
    """Whether the run would be another one without a setting."""
    try:
        without = composed(others, folder)
    except ConfigError:  # it cannot be left out
        return True
    is_unread = bool({override.key_or_group, override.key_or_group.split(".")[0]} & {*UNUSED[run.engine.name]})
    if run == without and not is_unread:  # it is so anyway
        return True
    return _measured(run) != _measured(without)


def _measured(run: Run) -> dict[str, Any]:
    """What decides a run, and what becomes of it."""
    found = resolve(budgeted(run)) | {name: run.plain[name] for name in BESIDE}
    for group, _, field in (name.partition(".") for name in UNUSED[run.engine.name]):
        if field:
            found[group] = {name: value for name, value in found[group].items() if name != field}
    return found


def _why(run: Run, override: Override, value: str) -> str:
    engine, rule = run.engine.name, run.budget.rule
    head, *rest = override.key_or_group.split(".")
    if head in ("method", "dataset") and override.package is None and (several := run.plain[f"{head}s"]):
        return f"the {head}s are {', '.join(several)}: set {head}s.NAME.FIELD=VALUE"
    for name in {head, override.key_or_group} & {*UNUSED[engine]}:
        return f"engine={engine} reads no {name}; leave it out"
    owner, field = (head, rest) if head == "method" else (f"{head}.{rest[0]}", rest[1:]) if rest else (head, rest)
    if head in ("method", "methods") and field:
        size, own = (_at(each.plain, override.key_or_group) for each in (budgeted(run), run))
        if size != own:
            return f"budget={rule} makes it {size}; to keep {own} add +{owner}.budget=published, or give no budget"
    return "nothing that is measured depends on it; leave it out"
