"""What was asked for on a command line is what the methods get, or the line is refused by the setting's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ngram_trie.bench.config import budgeted, build_all, default_folder, resolve
from ngram_trie.cli import hydra_app, shorthand
from ngram_trie.cli.effects import check_effects
from ngram_trie.cli.overrides import composed, parse, values_of, with_value
from ngram_trie.drafter import layers
from ngram_trie.methods import ConfigError, choices

REPLAY = ["engine=replay", "engine.traces=answers.jsonl"]


def checked(words: list[str], folder: Path | None = None) -> tuple[list[str], bool]:
    """The overrides of a command line that passes, and whether it is a sweep; see `hydra_app.hydra_app`."""
    options = hydra_app.hydra_options(words, is_run=True)
    written = shorthand.written_out(options.overrides, shorthand.values(options))
    composed(list(written), folder, options.multirun)
    check_effects(list(written), written, folder)
    return list(written), options.multirun


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "method=pld method.num_draft=16 budget=equal",
            "method.num_draft=16: budget=equal makes it 32; to keep 16 add",
        ),
        (
            "method=blend method.num_draft=16 budget=auto",
            "method.num_draft=16: budget=auto makes it 64; to keep 16 add",
        ),
        ("-m method=pld method.num_draft=4,8 budget=equal8", "method.num_draft=4,8: budget=equal makes it 8"),
        ("tiny rag method.num_draft=16", "method.num_draft=16: the methods are ngram_trie, pld, blend: set"),
        ("tiny rag,open_qa dataset.limit=2", "dataset.limit=2: the datasets are rag, open_qa: set datasets.NAME"),
        ("experiment=table1_small methods.pld.num_draft=4", "methods.pld.num_draft=4: budget=auto makes it 64"),
        ("method=pld method.num_draft=2,4", "method.num_draft=2,4: several values; -m takes one after the other"),
        ("tiny rag method=pld method.num_draft=2,4", "method.num_draft=2,4: several values"),
        ("method.n=8 method.n=9", "method.n: given twice"),
        ("tiny rag --limit 3 dataset.limit=4", "--limit 3 and dataset.limit: they are one setting"),
        ("tiny rag --budget auto budget=equal", "--budget auto and budget: they are one setting"),
        ("cost=measured", "cost=measured: engine=live reads no cost"),
        (
            "engine=teacher_forced engine.traces=F --max-new-tokens 4",
            "--max-new-tokens 4: engine=teacher_forced reads no measure.max_new_tokens; leave it out",
        ),
        ("engine=replay engine.traces=F measure.repeats=2", "measure.repeats=2: engine=replay reads no measure"),
        ("tiny rag engine=replay engine.traces=F", "tiny: engine=replay reads no model"),
        ("engine=replay engine.traces=F --max-new-tokens 4", "--max-new-tokens 4: engine=replay reads no measure"),
    ],
)
def test_a_setting_that_decides_nothing_is_refused_by_its_name(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        checked(line.split())
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "sizes"),
    [
        ("tiny rag method=pld method.num_draft=16", {"pld": 16}),
        ("tiny rag --methods pld method.num_draft=16", {"pld": 16}),
        ("tiny rag --methods pld,blend methods.pld.num_draft=3 --device cpu", {"pld": 3, "blend": 8}),
        (
            "tiny rag --methods suffix_warm,blend_warm methods.blend_warm.num_draft=3 --device cpu",
            {"suffix_warm": 8, "blend_warm": 3},
        ),
        ("method=pld method.num_draft=16 budget=equal +method.budget=published", {"pld": 16}),
        ("method=pld method.num_draft=32 budget=equal", {"pld": 32}),
        ("tiny rag --num-nodes 5", {"ngram_trie": 5, "pld": 5, "blend": 5}),
    ],
)
def test_a_size_that_is_asked_for_is_measured(line: str, sizes: dict[str, int]) -> None:
    built = build_all(budgeted(composed(checked(line.split())[0])), "method")
    assert {name: method.num_draft for name, method in built.items() if name != "vanilla"} == sizes


def test_a_file_may_have_an_equals_sign_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model=a").mkdir()
    (tmp_path / "n=1.jsonl").write_text('{"prompt": "why?"}\n')
    monkeypatch.chdir(tmp_path)
    config = composed(checked(["model=a", "n=1.jsonl", "--device", "cpu"])[0])
    assert (config.model.path, config.dataset.path) == (str(tmp_path / "model=a"), str(tmp_path / "n=1.jsonl"))


METHODS = [
    "ngram_trie", "pld", "llma", "blend", "blend_warm", "suffix", "suffix_warm", "racer", "lookahead", "sam",
    "predictor", "vanilla",
]  # fmt: skip
#: Fields and values; not each is of each method.
FIELDS = st.tuples(
    st.sampled_from(["num_draft", "k", "n", "prefix_len", "window", "escape", "alpha", "max_depth"]),
    st.integers(2, 20).map(str) | st.lists(st.integers(2, 20).map(str), min_size=2, max_size=2).map(",".join),
)
BUDGETS = ["budget=equal", "budget=equal8", "budget=auto", "budget=published", "budget.num_nodes=12", "shape=chain"]
OTHERS = [
    "measure.repeats=2", "measure.max_new_tokens=9", "cost=measured", "dataset.limit=2", "engine.max_draft=16",
    "samples=true", "output=somewhere", "dataset=open_qa", "model.context_limit=300", "noise={kinds: [paragraph]}",
    *REPLAY,
]  # fmt: skip
SHORT = ["--limit=3", "--num-nodes=7", "--budget=auto", "--budget=equal", "--repeats=2", "--max-new-tokens=5"]


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Command lines of all forms: words and options, overrides, a sweep, an experiment."""
    form = draw(st.sampled_from(["short", "long", "sweep", "experiment"]))
    names = draw(st.lists(st.sampled_from(METHODS), min_size=1, max_size=3, unique=True))
    words, owners = [], ["method"]
    if form == "short":
        words += ["tiny", draw(st.sampled_from(["rag", "open_qa", "rag,open_qa"]))]
        words += draw(st.lists(st.sampled_from(SHORT), max_size=2, unique=True))
        if draw(st.booleans()):
            words += ["--methods", ",".join(names)]
            owners += [f"methods.{name}" for name in names]
    elif form == "experiment":
        words += [f"experiment={draw(st.sampled_from(['table1_small', 'num_draft', 'categories']))}"]
        owners = [f"methods.{name}" for name in names]
    else:
        words += ["-m"] * (form == "sweep") + [f"method={names[0]}"]
    for field, value in draw(st.lists(FIELDS, max_size=2, unique_by=lambda pair: pair[0])):
        words.append(f"{draw(st.sampled_from(owners))}.{field}={value}")
    return words + draw(st.lists(st.sampled_from(BUDGETS + OTHERS), max_size=3, unique=True))


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(words=command_lines())
def test_what_was_asked_for_is_what_the_methods_get(words: list[str]) -> None:
    """Of a random command line: it is refused, by a word that stands in it, or each setting is found where it belongs:
    in the configuration, in the objects that are built of it, and in the run's identity.
    """
    try:
        lines, is_sweep = checked(words)
    except ConfigError as error:
        asked = [part for word in words for part in (word, *word.lstrip("-").replace("=", ",").split(","))]
        named = str(error).split(":")[0]
        assert any((part and part in named) or named.startswith(part.partition(".")[0]) for part in asked), str(error)
        return
    parsed = parse(lines)
    assert is_sweep or not any(override.is_sweep_override() for override in parsed)
    for last in (0, -1):
        check_cell([with_value(override, values_of(override)[last]) for override in parsed], words)


def check_cell(lines: list[str], words: list[str]) -> None:
    config = budgeted(composed(lines))
    identity = resolve(config)
    try:
        built = {} if "model.path" in words else build_all(config, "method")
    except ConfigError:  # a value that the method does not take, or a part that is not there, is said as it is built
        return
    for line in lines:
        key = line.lstrip("+").partition("=")[0]
        if key in choices() or "@" in key or key == "methods":
            continue
        wanted = parse([line])[0].value()
        assert select(config.plain, key) == wanted, line
        owner, *path = key.split(".")
        if owner in ("method", "methods"):
            name, field = (path[0], path[1]) if owner == "methods" else (config.method.name, path[0])
            assert select(identity, key) == wanted, f"{line}: the manifest says {select(identity, key)}"
            if field != "budget":
                assert getattr(layers(built[name])[-1], field) == wanted, f"{line} of {words}"
    default_folder(config, "0" * 16)


def select(config: dict[str, Any], key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        found = found[part]
    return found
