"""One answer with its drafts: who made which token, as a picture."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_trie.report.case_study import LEGEND, CaseStudy, case_svg, text_pieces

SVG = "{http://www.w3.org/2000/svg}"

# prefill "The", then " quick <b>" + " &" by drafts of two and one, " fox" alone, and a drafted line break
CASE = CaseStudy(
    "Trie & <toy>", ["The", " quick", " <b>", " jumps", " &", " runs", " fox", "\n", "End $x_1$"], [3, 2, 1, 2]
)


def test_steps_and_summary() -> None:
    assert list(CASE.steps()) == [
        ("", "The"), (" quick <b>", " jumps"), (" &", " runs"), ("", " fox"), ("\n", "End $x_1$"),
    ]  # fmt: skip
    assert CASE.summary() == "9 tokens, 4 steps, accept length 2.00, 44% of the tokens drafted"
    assert CaseStudy("", ["one"], []).summary() == "1 token, 0 steps, 0% of the tokens drafted"


def drawn(svg: str) -> list[tuple[float, float, float, str]]:
    """Line, left, width and text of each run of characters, without title, summary and legend."""
    found = [
        (float(text.get("y", 0)), float(text.get("x", 0)), float(text.get("textLength", 0)), text.text or "")
        for text in ElementTree.fromstring(svg).iter(f"{SVG}text")
    ]
    return found[next(at for at, each in enumerate(found) if each[3] == LEGEND) + 1 :]


def test_it_shows_the_answer_and_marks_what_was_drafted() -> None:
    svg = case_svg(CASE)
    runs = drawn(svg)
    assert [text for *_, text in runs] == ["The", " quick <b>", " jumps", " &", " runs", " fox", "↵", "End $x_1$"]
    marked = [path.get("d", "") for path in ElementTree.fromstring(svg).iter(f"{SVG}path") if path.get("fill")]
    assert [float(path[1:].split()[0]) for path in marked] == [
        left for _, left, _, text in runs if text in (" quick <b>", " &", "↵")
    ]
    titles = [title.text for title in ElementTree.fromstring(svg).iter(f"{SVG}title")]
    assert titles == ["Trie & <toy>", "prefill", *(f"step {n}: {k} drafted" for n, k in enumerate((2, 1, 0, 1), 1))]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=4), min_size=1, max_size=12), st.data())
def test_any_answer_is_well_formed(pieces: list[str], data: st.DataObject) -> None:
    left, lengths = len(pieces) - 1, []
    while left:
        lengths.append(data.draw(st.integers(1, left)))
        left -= lengths[-1]
    ElementTree.fromstring(case_svg(CaseStudy("".join(pieces), pieces, lengths)))


def decode_bytes(ids: list[int]) -> str:
    return bytes(ids).decode(errors="replace")


def test_pieces_of_characters_that_span_tokens() -> None:
    pieces = text_pieces(list("aé😀!".encode()), decode_bytes)
    assert pieces == ["a", "", "é", "", "", "", "😀", "!"]
    assert text_pieces([], decode_bytes) == []


@given(st.binary(max_size=40))
def test_pieces_join_to_the_text(data: bytes) -> None:
    pieces = text_pieces(list(data), decode_bytes)
    assert len(pieces) == len(data) and "".join(pieces) == decode_bytes(list(data))
