"""Traces: what is written is read back, others' format is understood, and every wrong line is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_trie.bench.traces import UNLIMITED, Trace, parse_trace, read_traces, select, vicuna_spans, write_traces
from ngram_trie.prompt import Prompt

token_ids = st.lists(st.integers(0, 2**31 - 1), max_size=12)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    prompt_ids = draw(token_ids.filter(bool))
    inside = st.integers(0, len(prompt_ids))
    spans = st.dictionaries(st.text(), st.tuples(inside, inside).map(lambda ends: tuple(sorted(ends))), max_size=3)
    output_ids = draw(token_ids)
    return Trace(
        draw(st.text()),
        Prompt(
            np.array(prompt_ids, np.int64),
            draw(spans),
            draw(st.text()),
            draw(st.text()),
            draw(st.integers(0, 9)),
            np.array(draw(token_ids), np.int64),
            texts=tuple(np.array(text, np.int64) for text in draw(st.lists(token_ids, max_size=2))),
            noise_kind=draw(st.sampled_from(["", "paragraph"])),
        ),
        output_ids,
        draw(st.integers(len(output_ids), UNLIMITED)),
        draw(st.text(min_size=1)),
    )


def same(one: Trace | None, other: Trace) -> bool:
    """Equal field by field; an array alone has no plain equality. What is read as `released` may be said or not."""
    assert one is not None
    without = []
    for trace in (one, other):
        prompt = trace.prompt
        arrays = {"ids": prompt.ids.tolist(), "noise": prompt.noise.tolist()}
        texts = tuple(text.tolist() for text in prompt.texts)
        spans = {"released": prompt.spans["user"], **prompt.spans} if "user" in prompt.spans else prompt.spans
        without.append(replace(trace, prompt=replace(prompt, **arrays, texts=texts, spans=spans)))
    return without[0] == without[1] and one.prompt.ids.dtype == np.int64


@given(traces())
def test_a_trace_is_one_line_and_reads_back_as_it_was(trace: Trace) -> None:
    line = trace.to_json()
    assert "\n" not in line
    assert same(parse_trace(json.loads(line)), trace)


ROW = {
    "model": "toy", "dataset": "rag", "question_id": "q1", "turn": 0, "prompt_token_ids": [1, 5, 6, 7],
    "output_token_ids": [8, 9, 2], "spans": {"user": [1, 3]}, "max_output_tokens": 64, "stop_reason": "eos",
}  # fmt: skip
# The Vicuna template in the Llama tokenizer: BOS, "A chat", " USER:", a turn of two tokens, " ASSISTANT:".
USER, ASSISTANT = [3148, 1001, 29901], [319, 1799, 9047, 13566, 29901]
VICUNA = [1, 319, 13563, *USER, 500, 501, *ASSISTANT]


def line(**changes: object) -> str:
    """ROW with some keys changed; None leaves a key out."""
    return json.dumps({key: value for key, value in {**ROW, **changes}.items() if value is not None})


def test_the_format_of_spec_bench() -> None:
    row = {
        "question_id": 81, "turn": 1, "category": "writing", "model": "vicuna-7b-v1.3", "prompt": "A chat ...",
        "output": "Once", "prompt_token_ids": VICUNA, "output_token_ids": [9038, 2], "recorded_new_tokens": 2,
        "token_count_matches": True,
    }  # fmt: skip
    trace = parse_trace(row)
    assert trace is not None and trace.key == ("writing", "81", 1, "")
    assert trace.prompt.part("user").tolist() == [500, 501]
    assert (trace.max_output_tokens, trace.stop_reason) == (UNLIMITED, "recorded_end")
    assert parse_trace({**row, "token_count_matches": False}) is None


#: A line in the form of SpecDecode-Bench's.
RECORDED = {
    "id": "7", "prompt_token_ids": [1, 5], "generated_token_ids": [8, 9, 2],
    "acc_eagle": {"acc_len": [1, 1, 4, 3]}, "acc_ngram": {"acc_len": [1, 2, 1]},
}  # fmt: skip


def test_the_format_of_spec_decode_bench(tmp_path: Path) -> None:
    """A folder of files, each a data set; answers that were cut are left out."""
    cut = {**RECORDED, "id": "9", "generated_token_ids": [3] * 8192}
    folder = tmp_path / "data" / "llama"
    folder.mkdir(parents=True)
    for name in ("gsm8k", "cnn"):
        (folder / f"combined_{name}.jsonl").write_text(f"{json.dumps(RECORDED)}\n{json.dumps(cut)}\n")
    first, second = read_traces(tmp_path)
    assert (first.key[:3], second.key[:3], first.model) == (("cnn", "7", 0), ("gsm8k", "7", 0), "llama")
    assert first.output_ids == [8, 9, 2] and first.recorded == {"eagle": [1, 1, 4, 3], "ngram": [1, 2, 1]}
    assert first.drafted_in_prefill().recorded == {}
    file = folder / "combined_cnn.jsonl"
    for bad in ({"acc_len": [1, 0]}, {"acc_len": None}, [1, 2]):
        file.write_text(json.dumps({**RECORDED, "acc_eagle": bad}))
        with pytest.raises(ValueError, match=r"cnn\.jsonl:1: acc_eagle must hold acc_len, a list of integers of at"):
            read_traces(file)
    with pytest.raises(FileNotFoundError, match="no such trace file"):
        read_traces(tmp_path.joinpath("empty"))


BAD_IDS: list[object] = ["1 2", [1, -2], [1, 2.0], [1, True], [2**31]]
MALFORMED = [
    ('{"prompt_token_ids": [1', "Expecting"),
    ("[1, 2]", "not a JSON object"),
    (line(prompt_token_ids=None), "prompt_token_ids is missing"),
    (line(prompt_token_ids=[]), "prompt_token_ids is empty"),
    *((line(prompt_token_ids=ids), "prompt_token_ids must be a list of token ids") for ids in BAD_IDS),
    *((line(output_token_ids=ids), "output_token_ids must be a list of token ids") for ids in BAD_IDS),
    (line(released_token_ids=7), "released_token_ids must be a list of lists"),
    (line(dataset=None), "neither `dataset` nor `category`"),
    (line(question_id=None), "question_id is missing"),
    *((line(turn=turn), "turn and max_output_tokens must be integers") for turn in ("0", 0.5, True)),
    *((line(max_output_tokens=room), "no less than the output's length") for room in ("64", 64.0, 2, True)),
    *(
        (line(spans=spans), "spans must map names to")
        for spans in ([1, 3], {"user": 3}, {"user": [1]}, {"user": [3, 1]}, {"user": [-1, 3]}, {"user": [1, 5]})
    ),
]  # fmt: skip


def test_a_malformed_line_is_named_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for bad, reason in MALFORMED:
        path.write_text(f"{line(question_id='first')}\n\n{bad}\n{line()}\n")
        with pytest.raises(ValueError) as error:
            read_traces(path)
        said = str(error.value)
        assert said.startswith(f"{path}:3: ") and reason in said and "\n" not in said


def test_bytes_that_are_no_text_are_named_too(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(line().encode() + b'\n{"model": "\xff"}\n')
    with pytest.raises(ValueError, match=r"t\.jsonl:2: not UTF-8"):
        read_traces(path)


def test_a_repeated_turn_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    others = [line(turn=1), line(question_id="q2"), line(dataset="qa")]
    path.write_text("\n".join([line(), *others]))
    assert len(read_traces(path)) == 4
    path.write_text("\n".join([line(), *others, line(output_token_ids=[5])]))
    with pytest.raises(ValueError, match=r"t\.jsonl:5: turn \('rag', 'q1', 0, ''\) was there before"):
        read_traces(path)


def test_lines_left_out_and_blank_lines_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join([line(token_count_matches=False), "", "  ", line(), line(turn=1), ""]))
    assert [trace.key for trace in read_traces(path)] == [("rag", "q1", 0, ""), ("rag", "q1", 1, "")]
    path.write_text("\n")
    assert read_traces(path) == []


@pytest.mark.parametrize(
    ("prompt_ids", "span"),
    [
        (VICUNA, (6, 8)),
        # A second turn follows "</s>", as text ("</s>USER" is three pieces and more) or as the EOS token.
        ([*VICUNA, 40, 41, 829, 29879, 29958, 11889, 29901, 600, *ASSISTANT], (20, 21)),
        ([*VICUNA, 40, 41, 2, 11889, 29901, 600, 601, *ASSISTANT], (18, 20)),
        ([*USER, *ASSISTANT], (3, 3)),
        ([1, 5, 6, *ASSISTANT], None),
        ([*VICUNA, 7], None),
    ],
)
def test_the_last_user_turn_of_a_vicuna_prompt(prompt_ids: list[int], span: tuple[int, int] | None) -> None:
    assert vicuna_spans(prompt_ids) == ({} if span is None else {"user": span})


@given(traces())
def test_drafted_in_prefill_ends_the_prompt_one_token_early(trace: Trace) -> None:
    moved = trace.drafted_in_prefill()
    assert moved.prompt.ids.tolist() == trace.prompt.ids.tolist()[:-1]
    assert moved.output_ids == [trace.prompt.ids[-1], *trace.output_ids]
    assert moved.max_output_tokens == trace.max_output_tokens + 1
    assert (moved.key, moved.model, moved.stop_reason) == (trace.key, trace.model, trace.stop_reason)
    assert moved.prompt.spans.keys() == trace.prompt.spans.keys()
    for name, (start, end) in moved.prompt.spans.items():
        assert start <= end <= len(moved.prompt.ids)
        assert list(range(start, end)) == list(range(*trace.prompt.spans[name]))[: end - start]
        assert trace.prompt.spans[name][1] - end == (trace.prompt.spans[name][1] == len(trace.prompt.ids))


@given(st.lists(traces(), max_size=6, unique_by=lambda trace: trace.key))
def test_a_file_is_replaced_as_a_whole_and_read_as_it_was_written(written: list[Trace]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "traces.jsonl"
        path.write_text("of an earlier run\n")
        write_traces(path, written)
        assert all(same(one, other) for one, other in zip(read_traces(path), written, strict=True))
        assert list(path.parent.iterdir()) == [path]


def test_categories_keep_their_order_and_may_be_empty() -> None:
    read = [parse_trace(json.loads(line(dataset=name, turn=turn))) for turn in (0, 1) for name in ("rag", "qa", "math")]
    everything = select(read, None)  # type: ignore[arg-type]
    assert {name: [t.prompt.turn for t in part] for name, part in everything.items()} == {
        "rag": [0, 1], "qa": [0, 1], "math": [0, 1],
    }  # fmt: skip
    chosen = select(read, ["math", "nothing", "rag"])  # type: ignore[arg-type]
    assert list(chosen) == ["math", "nothing", "rag"] and chosen["nothing"] == []
    assert [trace.key[0] for trace in chosen["math"] + chosen["rag"]] == ["math"] * 2 + ["rag"] * 2
    assert select(read, "qa") == {"qa": [read[1], read[4]]}  # type: ignore[arg-type]
    assert select([], None) == {} and select([], ["qa"]) == {"qa": []}
