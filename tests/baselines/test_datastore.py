import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny import tiny_target
from transformers import Gemma3Config

from ngram_trie.baselines.datastore import BORDER, Datastore, build_datastore, suffix_array
from ngram_trie.bench.traces import Trace
from ngram_trie.cli.app import invoke
from ngram_trie.data import bundled, world
from ngram_trie.prompt import Prompt
from scripts import build_datastore as script

TINY_MODEL = ["--tokenizer", str(bundled.MODEL)]


def texts(folder: Path) -> list[str]:
    """The documents of a datastore that the tiny tokenizer was used for."""
    from transformers import AutoTokenizer

    tokens = Datastore(folder).tokens
    borders = np.flatnonzero(tokens == BORDER)
    documents = [part[part != BORDER].tolist() for part in np.split(tokens, borders + 1)[:-1]]
    return [AutoTokenizer.from_pretrained(bundled.MODEL).decode(ids) for ids in documents]


@given(st.lists(st.integers(-1, 2) | st.sampled_from([65_533, 65_534, 65_535, 2**31 - 1]), min_size=1, max_size=80))
def test_the_suffix_array_is_sorted(tokens: list[int]) -> None:
    order = suffix_array(np.array(tokens, np.int32)).tolist()
    assert order == sorted(range(len(tokens)), key=lambda start: (tokens[start : start + 16], start))


def test_documents_are_kept_apart_and_the_header_tells_contents_apart(tmp_path: Path) -> None:
    assert build_datastore([[1, 2], [], [100_000]], tmp_path) == 5
    store = Datastore(tmp_path)
    assert store.tokens.tolist() == [1, 2, BORDER, 100_000, BORDER]
    build_datastore([[1, 2], [], [100_001]], tmp_path)
    assert Datastore(tmp_path).digest != store.digest
    assert store.tokens.tolist() == [1, 2, BORDER, 100_000, BORDER]  # what is mapped stays


def test_a_build_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no tokens"):
        build_datastore([[]], tmp_path / "new")
    build_datastore([[7]], tmp_path / "old")
    with pytest.raises(ValueError, match="document 1: token ids"):
        build_datastore([[1], [-1]], tmp_path / "old")
    assert Datastore(tmp_path / "old").tokens.tolist() == [7, BORDER]
    assert list((tmp_path / "new").iterdir()) == []
    assert sorted(file.name for file in (tmp_path / "old").iterdir()) == ["header.json", "suffixes.bin", "tokens.bin"]


def test_it_is_mapped(tmp_path: Path) -> None:
    build_datastore([[1, 2, 3]], tmp_path)
    store = Datastore(tmp_path)
    assert isinstance(store.tokens.base, np.memmap) and isinstance(store.suffixes.base, np.memmap)


def test_the_script_builds_from_recorded_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, folder = tmp_path / "traces.jsonl", tmp_path / "store"
    traces = [
        Trace("m", Prompt(np.array([1]), {}, "d", str(number)), output) for number, output in enumerate(([5, 6], [7]))
    ]
    source.write_text("".join(trace.to_json() + "\n" for trace in traces))
    invoke(script.main, [str(source), "--output", str(folder)])
    assert "5 tokens" in capsys.readouterr().out
    assert Datastore(folder).tokens.tolist() == [5, 6, BORDER, 7, BORDER]
    invoke(script.main, [str(source), "--output", str(folder), "--tokens", "1"])
    assert Datastore(folder).tokens.tolist() == [5, BORDER]


def test_the_tiny_models_text_is_the_same_every_time_and_holds_no_held_out_subject(tmp_path: Path) -> None:
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        invoke(script.main, ["--output", str(tmp_path / name), "--tokens", "6000", "--seed", seed])
    stores = [Datastore(tmp_path / name) for name in "abc"]
    assert stores[0].digest == stores[1].digest != stores[2].digest
    assert sum(stores[0].tokens != BORDER) == 6000
    answers = texts(tmp_path / "a")
    assert all(answer.endswith("</s>") and answer.count("</s>") == 1 for answer in answers[:-1])
    rng = world.random.Random(2)
    drawn = [world.draw_subject(rng, world.is_held_out) for _ in range(2000)]
    held_out = {subject.name for subject in drawn if subject.kind != "scientist"}  # people's names are values elsewhere
    assert len(held_out) > 50 and not any(name in answer for name in held_out for answer in answers)


# The public layouts: ShareGPT_Vicuna_unfiltered, ultrachat, ultrachat_200k, and plain texts.
TURNS = ["A bridge?", "A bridge."]
LAYOUTS: dict[str, dict[str, Any]] = {
    "sharegpt": {"id": "x_0", "conversations": [{"from": who, "value": v} for who, v in zip(["human", "gpt"], TURNS)]},  # noqa: B905
    "ultrachat": {"id": "0", "data": TURNS},
    "ultrachat_200k": {
        "prompt": "A bridge?",
        "prompt_id": "f",
        "messages": [{"content": v, "role": who} for v, who in zip(TURNS, ["user", "assistant"])],  # noqa: B905
    },
    "texts": {"text": "A bridge?\nA bridge."},
}


@pytest.mark.parametrize(
    ("layout", "kind"),
    [("sharegpt", "file.json"), ("ultrachat", "file.jsonl"), ("ultrachat_200k", "folder"), ("texts", "file.jsonl")],
)
def test_datasets_by_their_public_layouts(tmp_path: Path, layout: str, kind: str) -> None:
    rows = [LAYOUTS[layout]] * 2
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "in").mkdir()
    if kind == "file.json":
        (tmp_path / "in" / kind).write_text(json.dumps(rows))
    elif kind == "folder":
        pd.DataFrame(rows).to_parquet(tmp_path / "in" / "train-00000-of-00001.parquet")
    else:
        (tmp_path / "in" / "file.jsonl").write_text(lines)
    name = str(tmp_path / "in" if kind == "folder" else tmp_path / "in" / kind)
    invoke(script.main, [name, *TINY_MODEL, "--output", str(tmp_path / "out")])
    assert texts(tmp_path / "out") == (["A bridge?\nA bridge."] if layout == "texts" else TURNS) * 2


JSON_TEXT, TEXT = json.dumps({"text": "hello"}), "hello"
NO_FIELD = "a.jsonl:1: no field 'text' or 'conversations' or 'messages' or 'data' (--field)"


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.jsonl", "{}\n", ["SOURCE"], NO_FIELD),
        ("a.jsonl", JSON_TEXT, ["SOURCE"], "a.jsonl:1: a text needs --tokenizer"),
        ("a.jsonl", "{", ["SOURCE"], "a.jsonl:1: "),
        ("a.jsonl", "\n", ["SOURCE"], "no tokens"),
        ("a.txt", TEXT, ["SOURCE", "--dataset", "b"], "not both"),
        ("a.txt", TEXT, TINY_MODEL, "--tokenizer: needs --dataset or SOURCE"),
        ("a.txt", TEXT, ["SOURCE", *TINY_MODEL, "--split", "test"], "--split: needs --dataset"),
        (
            "a.json",
            None,
            ["--dataset", "SOURCE", *TINY_MODEL],
            "is the hub reachable, and the id right? A file or folder is given as SOURCE",
        ),
    ],
)
def test_the_script_names_what_is_wrong_in_one_line(
    tmp_path: Path, name: str, content: str | None, options: list[str], message: str
) -> None:
    if "--dataset" in options:
        pytest.importorskip("datasets")
    if content is not None:
        (tmp_path / name).write_text(content)
    arguments = [str(tmp_path / name) if option == "SOURCE" else option for option in options]
    with pytest.raises(SystemExit) as end:
        invoke(script.main, [*arguments, "--output", str(tmp_path / "store")])
    error = str(end.value)
    assert error.startswith("error: ") and message in error and "\n" not in error


def test_a_datastore_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    build_datastore([[1, 60], [61, 2]], tmp_path)
    with pytest.raises(ValueError, match="holds token 61 and the model has 61; it was built with another tokenizer"):
        Datastore(tmp_path).check(tiny_target("llama").model)
    build_datastore([[1, 60]], tmp_path)
    Datastore(tmp_path).check(tiny_target("llama").model)
    with pytest.raises(ValueError, match="holds token 60 and the model has 50"):  # a model that also sees
        Datastore(tmp_path).check(SimpleNamespace(config=Gemma3Config(text_config={"vocab_size": 50})))
    Datastore(tmp_path).check(None)  # a replay does not know its model
