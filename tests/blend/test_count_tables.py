"""Count tables: by hand and by a slow reference, pruned, written and read, and the blend over them."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.text import by_path

from ngram_trie.bench.live import part_hashes, split_missing
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import Trace
from ngram_trie.blend import count_tables
from ngram_trie.blend.background import AnswerStore, expect, find_row, most_successors, over
from ngram_trie.blend.context_index import BlendIndex
from ngram_trie.blend.count_tables import CountTables
from ngram_trie.blend.ppm import room_for
from ngram_trie.blend.variants import BlendBigramDrafter, BlendDrafter, BlendWarmDrafter
from ngram_trie.cli.app import invoke
from ngram_trie.prompt import Prompt
from scripts import build_prior

DOCUMENTS = st.lists(st.lists(st.integers(0, 4), max_size=15), max_size=6)

#: Only compiled functions call it.
expected = numba.njit(lambda *given: expect(*given))


def row(tables: CountTables, context: list[int]) -> dict[int, float]:
    """What the tables say after a context; nothing if they have no row for it or an end of it."""
    found = find_row(np.array(context[::-1], np.int64), tables.max_context, tables.keys, tables.slots)
    return {} if found < 0 else shares_of(tables, found)


def shares_of(tables: CountTables, found: int) -> dict[int, float]:
    pairs = zip(tables.successors[found].tolist(), tables.shares[found].tolist(), strict=True)
    return {token: share for token, share in pairs if token >= 0}


def reference(
    texts: list[list[int]], k: int, escape: float, max_context: int, min_count: int, min_change: float
) -> dict[tuple[int, ...], dict[int, float]]:
    """The rows, by the formula of the module's docstring."""
    rows: dict[tuple[int, ...], dict[int, float]] = {}
    for length in range(1, max_context + 1):
        after: dict[tuple[int, ...], Counter[int]] = {}
        for text in texts:
            for end in range(length, len(text)):
                after.setdefault(tuple(text[end - length : end]), Counter())[text[end]] += 1
        for context, counts in after.items():
            shorter = next((rows[context[cut:]] for cut in range(1, length) if context[cut:] in rows), {})
            escaped = escape * len(counts)
            probs = {
                token: (counts[token] + escaped * shorter.get(token, 0.0)) / (counts.total() + escaped)
                for token in {*counts, *shorter}
            }
            change = sum(max(0.0, prob - shorter.get(token, 0.0)) for token, prob in probs.items())
            if counts.total() >= min_count and change >= min_change:
                best = sorted(probs, key=lambda token: (-round(probs[token], 9), token))[:k]
                rows[context] = {token: probs[token] for token in best}
    return rows


def test_rows_by_hand() -> None:
    # 2 is followed by 3 three times and by 4 once; after 1 2 come 3 twice, after 5 2 come 3 and 4.
    texts = [[1, 2, 3], [1, 2, 3], [5, 2, 3], [5, 2, 4]]
    tables = CountTables.of_texts(texts, k=2, escape=1.0, max_context=2)
    assert row(tables, [9, 2]) == row(tables, [2]) == pytest.approx({3: 3 / 6, 4: 1 / 6})
    assert row(tables, [1, 2]) == pytest.approx({3: (2 + 1 / 2) / 3, 4: (1 / 6) / 3})
    assert row(tables, [5, 2]) == pytest.approx({3: (1 + 2 / 2) / 4, 4: (1 + 2 / 6) / 4})
    assert row(tables, [3]) == {}  # the end of a text
    assert row(tables, [9, 1, 2]) == row(tables, [1, 2])
    assert tables.counts.tolist() == [0, 2, 4, 3, 1, 2]
    assert tables.about["contexts"] == [3, 2] and tables.about["tokens"] == 12


@given(
    DOCUMENTS, st.integers(1, 4), st.sampled_from([0.5, 1.0, 3.5]), st.integers(1, 3), st.integers(1, 3),
    st.sampled_from([0.0, 0.1037, 0.31]), st.sampled_from([1, 7, 4096]),
)  # fmt: skip
def test_every_row_is_what_the_reference_says(
    texts: list[list[int]], k: int, escape: float, max_context: int, min_count: int, min_change: float, part: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(count_tables, "PART", part)  # however the contexts are dealt to parts
        tables = CountTables.of_texts(
            texts, k=k, escape=escape, max_context=max_context, min_count=min_count, min_change=min_change
        )
    expected = reference(texts, k, escape, max_context, min_count, min_change)
    assert len(tables.keys) == len(expected)
    for context, probs in expected.items():
        found = row(tables, list(context))
        # of successors that are equally likely up to rounding, either may be the last that is kept
        assert sorted(found.values()) == pytest.approx(sorted(probs.values()), abs=1e-5)
        assert {t: p for t, p in found.items() if t in probs} == pytest.approx(
            {t: p for t, p in probs.items() if t in found}, abs=1e-5
        )
        assert sum(found.values()) < 1


@given(DOCUMENTS, DOCUMENTS, st.lists(st.integers(0, 6), min_size=1, max_size=4))
def test_a_store_falls_back_to_tables(answers: list[list[int]], texts: list[list[int]], context: list[int]) -> None:
    store = AnswerStore(4096)
    for answer in answers:
        store.add(answer)
    tables = CountTables.of_texts(texts, k=3, escape=2.0)

    def told(background: Any) -> tuple[dict[int, float], float]:
        room = room_for(most_successors(background) + 1, 8)
        found, left = expected(background, np.array(context[::-1], np.int64), 2.0, room)
        return dict(zip(room.tokens[:found].tolist(), room.shares[:found].tolist(), strict=True)), left

    (first, left), (second, below) = told(store.background()), told(tables.background())
    both, rest = told(over(store.background(), tables.background()))
    assert rest == pytest.approx(left * below)
    assert both == pytest.approx({t: first.get(t, 0) + left * second.get(t, 0) for t in {*first, *second}})
    counts = Counter(token for text in [*answers, *texts] for token in text)
    background = over(store.background(), tables.background())
    assert {t: n for t, n in enumerate(background.counts.tolist()) if n} == counts and background.total == sum(
        counts.values()
    )


def test_a_draft_over_tables_by_hand() -> None:
    tables = CountTables.of_texts([[7, 3, 9], [7, 3, 9], [4, 3, 8]], k=5, escape=1.0, max_context=2)
    # Nothing follows 3 in the text. After 3 came 9 twice and 8: 2/5, 1/5; after 7 3 came 9 twice: (2 + 2/5) / 3, and
    # 8 has (1/5) / 3; 2/15 are left to order 0, of which the text has no 9 and no 8.
    tree = BlendIndex([7, 3], background=tables.background()).draft(30)
    assert tree.probs is not None
    found = {path[0]: prob for path, prob in by_path(tree, tree.probs.tolist()).items() if len(path) == 1}
    left = 1 - 12 / 15 - 1 / 15
    assert found[9] == pytest.approx(12 / 15 + left * 2 / 4 * 2 / 9, abs=1e-6)
    assert found[8] == pytest.approx(1 / 15 + left * 2 / 4 * 1 / 9, abs=1e-6)


# ---- files -----------------------------------------------------------------------------------------------------------


def written(folder: Path, texts: list[list[int]], **about: Any) -> CountTables:
    tables = CountTables.of_texts(texts, k=3, escape=3.5, **about)
    tables.write(folder)
    return tables


@given(texts=DOCUMENTS)
def test_tables_are_written_and_read(tmp_path_factory: pytest.TempPathFactory, texts: list[list[int]]) -> None:
    folder = tmp_path_factory.mktemp("prior")
    tables = written(folder, texts, model="m", questions=[("qa", "1")])
    again = CountTables.open(folder)
    for name in count_tables.TYPES:
        mine, read = getattr(tables, name), getattr(again, name)
        assert mine.tolist() == read.tolist() and mine.dtype == read.dtype and read.flags.writeable
    assert again.max_context == 3 and again.about["model"] == "m" and again.questions == {("qa", "1")}


def test_missing_and_foreign_tables_are_not_opened(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no count tables there; build one: python -m scripts\.build_prior"):
        CountTables.open(tmp_path)
    written(tmp_path, [[1, 2, 3, 1, 2]])
    header = tmp_path / "header.json"
    header.write_bytes(header.read_bytes().replace(b"tables 1", b"tables 0"))
    with pytest.raises(ValueError, match=r"^prior=.*damaged or of another format; build anew"):
        CountTables.open(tmp_path)


def test_tables_of_other_tokens_do_not_fit(tmp_path: Path) -> None:
    def model(size: int, path: str = "") -> Any:
        return SimpleNamespace(name_or_path=path, config=SimpleNamespace(vocab_size=size))

    tables = CountTables.of_texts([[1, 2, 3]], k=2, escape=1.0, model="org/name@main")
    tables.check(model(4), tmp_path)
    tables.check(model(9, "org/name"), tmp_path)
    for other in (model(3), model(9, "org/other")):
        with pytest.raises(ValueError, match="made with another model's tokens"):
            tables.check(other, tmp_path)


# ---- drafters and the command ----------------------------------------------------------------------------------------


def trace(question: str, output: list[int]) -> Trace:
    return Trace("toy", Prompt(np.array([1, 2, 3]), {}, "qa", question), output)


def test_a_drafter_over_a_prior(tmp_path: Path) -> None:
    output = [3, 4, 5, 6, 7, 8]
    written(tmp_path / "prior", [output], questions=[("qa", "1")])
    prior = str(tmp_path / "prior")
    drafter = BlendDrafter(num_draft=6, prior=prior)
    assert drafter.state == "preloaded" and BlendDrafter().state == "cold"
    both, warm = BlendWarmDrafter(prior=prior), BlendWarmDrafter()
    assert (both.state, warm.state) == ("preloaded", "warm") and both.remembers and warm.remembers
    assert len(replay(drafter, trace("2", output)).accept_lengths) < len(
        replay(BlendDrafter(num_draft=6), trace("2", output)).accept_lengths
    )
    assert len(replay(BlendWarmDrafter(num_draft=6, prior=prior), trace("2", output)).accept_lengths) == len(
        replay(drafter, trace("2", output)).accept_lengths
    )
    with pytest.raises(ValueError, match="holds an answer to question 1 of qa; draft other questions"):
        replay(drafter, trace("1", output))
    assert len(pickle.dumps(drafter)) < 3000  # another process maps the files itself
    assert split_missing({"m": drafter})[1] == {} and len(part_hashes({"m": drafter})["m"]) == 16
    assert "build_prior" in split_missing({"m": BlendDrafter(prior=str(tmp_path / "gone"))})[1]["m"]
    with pytest.raises(ValueError, match="blend_bigram has a table already"):
        BlendBigramDrafter(answers="a", prior=prior)


def test_the_command_builds_of_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, folder = tmp_path / "traces.jsonl", tmp_path / "prior"
    traces = [trace(str(number), [10 + number, 20, 30 + number]) for number in range(4)]
    source.write_text("".join(one.to_json() + "\n" for one in traces))
    arguments = [str(source), "--answers", "--output", str(folder), "--min-count", "1"]
    invoke(build_prior.main, [*arguments, "--parity", "odd"])
    printed = capsys.readouterr().out
    assert "6 tokens; contexts by their length: 3 of 1, 2 of 2, 0 of 3" in printed and f"MB in {folder}" in printed
    tables = CountTables.open(folder)
    assert set(row(tables, [20])) == {31, 33} and tables.questions == {("qa", "1"), ("qa", "3")}
    header = json.loads((folder / "header.json").read_text())
    assert header["about"]["parity"] == "odd" and header["about"]["source"] == "traces.jsonl"
    invoke(build_prior.main, [*arguments, "--tokens", "4"])
    assert set(row(CountTables.open(folder), [20])) == {30}


def test_the_command_builds_of_texts(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("A bridge.\n\nA bridge.\n")
    (folder / "deep" / "b.jsonl").write_text(json.dumps({"text": "A tower."}) + "\n")
    (folder / "c.bin").write_bytes(b"\xff\xfe")
    output = tmp_path / "prior"
    invoke(build_prior.main, [str(folder), "--model", "tiny", "--output", str(output), "--min-count", "1"])
    tables = CountTables.open(output)
    encode = build_prior.documents.load_tokenizer("tiny")
    (first, *_, last), tower = encode(["A bridge."])[0], encode(["A tower."])[0]
    assert tables.about["model"] and not tables.questions
    assert tables.counts[first] == 3 and tower[1] in row(tables, [first]) and tables.counts[last] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give SOURCE or --dataset"),
        ([__file__, "--parity", "odd"], "only with --answers"),
        ([__file__], "a text needs --model"),
    ],
)
def test_what_the_command_does_not_take(arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        invoke(build_prior.main, arguments)
