"""Readers of files that others wrote: a right file, however it is packed, gives every row; one damage to it gives every
row that is left, or one line with the file's name. 10,000 files of each kind among the slow tests.
"""

from __future__ import annotations

import codecs
import copy
import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ngram_trie.bench.traces import read_traces
from ngram_trie.data.documents import file_documents
from ngram_trie.data.hagrid import Hagrid
from ngram_trie.data.hub import HubDataset
from ngram_trie.data.own import FileDataset
from ngram_trie.data.retrieval.corpus import FIELDS, _rows_of
from ngram_trie.data.retrieval.questions import read_questions
from ngram_trie.data.spec_bench import SpecBench
from ngram_trie.data.tool_calls import ToolCalls
from ngram_trie.data.triviaqa import TriviaQA
from ngram_trie.memory import read_answers

Rows = list[dict[str, Any]]

# what ends lines elsewhere, what JSON and TSV write in another way, and what stands beyond the first plane
WORDS = st.text(st.sampled_from("aé中😀 \"'\\\t\u2028\u2029\u0085\x0b{}[],:"), max_size=8).map(lambda text: f"w{text}w")
IDS = st.lists(st.integers(0, 99), min_size=1, max_size=5)


def rows_of(**fields: Any) -> Callable[[int], st.SearchStrategy[dict[str, Any]]]:
    """From a row's number to a right row."""
    return lambda number: st.fixed_dictionaries(
        {name: value(number) if callable(value) else value for name, value in fields.items()}
    )


def name(number: int) -> st.SearchStrategy[Any]:
    return st.sampled_from([number, f"q{number}"])


def published(kind: Any, *args: Any, **options: Any) -> Callable[[str], Any]:
    return lambda path: kind("name", *args, path=path, warmup=0, **options).questions


ANSWER = st.fixed_dictionaries({"value": WORDS, "aliases": st.lists(WORDS), "normalized_aliases": st.lists(WORDS)})
PASSAGES = st.lists(st.fixed_dictionaries({"text": WORDS}), min_size=1, max_size=2)
HAGRID = st.fixed_dictionaries({"answer": st.none() | WORDS, "informative": st.none() | st.integers(0, 1)})
CALL = st.just([{"role": "user", "content": "Book it."}])
PASSAGE = rows_of(id=lambda number: st.just(str(number)), title=WORDS, text=WORDS)
ROWS = {
    "own": rows_of(
        id=name, prompt=WORDS, context=st.none() | WORDS, reference=st.none() | WORDS, answers=st.lists(WORDS)
    ),
    "hub": rows_of(id=name, q=WORDS, a=st.none() | WORDS),
    "spec_bench": rows_of(question_id=name, category=st.just("qa"), turns=st.tuples(WORDS).map(list)),
    "hagrid": rows_of(query_id=name, query=WORDS, quotes=PASSAGES, answers=st.lists(HAGRID)),
    "triviaqa": rows_of(id=name, question=WORDS, answers=st.lists(WORDS), passages=PASSAGES),
    "tool_calls": rows_of(id=name, question=st.tuples(CALL).map(list), function=st.just([{}])),
    "questions": rows_of(id=name, question=WORDS, answers=st.lists(WORDS, min_size=1)),
    "questions of the hub": rows_of(question_id=lambda n: st.just(f"q{n}"), question=WORDS, answer=ANSWER),
    "corpus": PASSAGE,
    "corpus, TSV": PASSAGE,
    "traces": rows_of(dataset=WORDS, question_id=name, prompt_token_ids=IDS, output_token_ids=IDS, turn=st.just(0)),
    "answers": rows_of(dataset=WORDS, question_id=name, output_token_ids=IDS),
    "documents": rows_of(text=WORDS),
}
#: To one result a row.
READ: dict[str, Callable[[str], Any]] = {
    "own": lambda path: FileDataset("own", path).questions,
    "hub": published(HubDataset, "hub", "q", id="id", reference="a"),
    "spec_bench": published(SpecBench, "url", None),
    "hagrid": published(Hagrid, "hub"),
    "triviaqa": published(TriviaQA, num_passages=1),
    "tool_calls": published(ToolCalls, file="f", source="s"),
    "questions": lambda path: read_questions("hub", path=path),
    "questions of the hub": lambda path: read_questions("hub", path=path),
    "corpus": lambda path: list(_rows_of(Path(path), ".jsonl", None)),
    "corpus, TSV": lambda path: list(_rows_of(Path(path), ".tsv", None)),
    "traces": lambda path: read_traces(Path(path)),
    "answers": lambda path: read_answers(Path(path)),
    # a row may hold a list of texts, and each is a document
    "documents": lambda path: list(file_documents(Path(path), lambda texts: [[len(text)] for text in texts], None)),
}


def written(rows: Rows, ending: str, ascii: bool = False) -> str:
    if ending == ".jsonl":
        return "".join(json.dumps(row, ensure_ascii=ascii) + "\n" for row in rows)
    text = io.StringIO()
    table = csv.writer(text, delimiter="\t", lineterminator="\n")
    table.writerows([FIELDS, *(map(row.get, FIELDS) if isinstance(row, dict) else [row] for row in rows)])
    return text.getvalue()


#: How a text is packed: the name's ending beside the kind's own, and the bytes.
PACKED: dict[str, Callable[[str], bytes]] = {
    "plain": str.encode,
    "crlf": lambda text: text.replace("\n", "\r\n").encode(),
    "mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "wide": lambda text: text.encode("utf-16"),
    ".gz": lambda text: gzip.compress(text.encode(), mtime=0),
}

#: Values of other kinds, in place of a right one.
FOREIGN = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1.5,
        2**80,
        float("nan"),
        "",
        " ",
        "\ud800",
        [],
        {},
        [None],
        [[]],
        [{}],
        ["x"],
        {"role": "user"},
    ]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of a row stand."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield (*path, key)
        yield from places(part, (*path, key))


def altered(data: st.DataObject, rows: Rows) -> Rows:
    """The rows with a value replaced, or taken out."""
    rows = copy.deepcopy(rows)
    *above, last = data.draw(st.sampled_from(list(places(rows))))
    place: Any = rows
    for key in above:
        place = place[key]
    if data.draw(st.booleans()):
        place[last] = data.draw(FOREIGN)
    else:
        del place[last]
    return rows


def damaged(data: st.DataObject, content: bytes) -> bytes:
    """The bytes cut short, or with some of them replaced, left out or put in between."""
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 4)) | st.just(len(content)))
    new = data.draw(st.binary(max_size=3) | st.sampled_from([b'"', b"\n", b"\\ud83d", b"\xff"]))
    return content[:start] + new + content[end:]


def check(reader: str, folder: Path, data: st.DataObject) -> None:
    ending = ".tsv" if "TSV" in reader else ".jsonl"
    rows = [data.draw(ROWS[reader](number)) for number in range(1, data.draw(st.integers(1, 3)) + 1)]
    packing = data.draw(st.sampled_from(list(PACKED)))
    kind = data.draw(st.sampled_from(["right", "value", "bytes"]))
    if kind == "value":
        rows = altered(data, rows)
    try:
        content = PACKED[packing](written(rows, ending))
    except UnicodeEncodeError:  # half a character, which only an escape can write
        content, packing = written(rows, ending, ascii=True).encode("utf-8", "surrogatepass"), "plain"
    if kind == "bytes":
        content = damaged(data, content)
    file = folder / f"file{ending}{packing if packing == '.gz' else ''}"
    file.write_bytes(content)
    try:
        found = READ[reader](str(file))
    except ValueError as error:
        assert kind != "right" and file.name in str(error) and "\n" not in str(error), error
        if kind == "value" and any(rows):
            assert re.search(rf"{re.escape(file.name)}(:\d|: (it holds|no questions|none))", str(error)), error
    else:
        assert kind == "bytes" or len(found) == len(rows) or reader == "documents"


@pytest.mark.parametrize("examples", [40, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ROWS)
def test_a_file_gives_all_its_rows_or_one_line(kind: str, examples: int, tmp_path: Path) -> None:
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def of_any(data: st.DataObject) -> None:
        check(kind, tmp_path, data)

    of_any()
