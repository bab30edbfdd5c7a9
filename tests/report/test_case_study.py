"""One answer with its drafts: who made which token, as a page and as a picture."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ngram_trie.report.case_study import DRAFTED, CaseStudy, case_figure, case_html, text_pieces
from ngram_trie.report.figures import TEXT_WIDTH, save_figure
from ngram_trie.site.sections import case_study as embedded

# prefill "The", then " quick <b>" + " &" by drafts of two and one, " fox" alone, and a drafted line break
CASE = CaseStudy(
    "Trie & <toy>", ["The", " quick", " <b>", " jumps", " &", " runs", " fox", "\n", "End $x_1$"], [3, 2, 1, 2]
)
DRAFTED_TEXTS = [" quick <b>", " &", "\n"]


class Page(HTMLParser):
    """The text of the answer, the text of each mark in it, and the titles of its steps."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[tuple[str, str | None]] = []
        self.answer, self.marks, self.titles, self.tags = "", [], [], set()
        self.links: list[str] = []
        self.feed(html)
        assert not self.open, "a tag was left open"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given_attributes = dict(attributes)
        self.tags.add(tag)
        self.links += [name for name in given_attributes if name in ("src", "href")]
        if tag == "meta":
            return
        self.open.append((tag, given_attributes.get("class")))
        if "title" in given_attributes:
            self.titles.append(given_attributes["title"])
        if tag == "mark" and self.inside:
            self.marks.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    @property
    def inside(self) -> bool:
        return ("div", "answer") in self.open

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.answer += data
            if ("mark", None) in self.open:
                self.marks[-1] += data


def test_the_prompt_is_folded_and_escaped_and_no_part_of_the_answer() -> None:
    page = case_html(replace(CASE, prompt="Say <b>\nit"))
    assert "<details><summary>The prompt</summary>" in page and "Say &lt;b&gt;" in page
    assert Page(page).answer == Page(case_html(CASE)).answer
    assert "<details>" not in case_html(CASE)
    shown = embedded(page)
    assert shown is not None and "Say &lt;b&gt;" in shown


def test_steps_and_summary() -> None:
    assert list(CASE.steps()) == [
        ("", "The"), (" quick <b>", " jumps"), (" &", " runs"), ("", " fox"), ("\n", "End $x_1$"),
    ]  # fmt: skip
    assert CASE.summary() == "9 tokens, 4 steps, accept length 2.00, 44% of the tokens drafted"
    assert CaseStudy("", ["one"], []).summary() == "1 token, 0 steps, 0% of the tokens drafted"


def test_lengths_that_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="add up to 3, plus 1 of prefill, for 3 tokens"):
        CaseStudy("", ["a", "b", "c"], [1, 2])
    with pytest.raises(ValueError, match="at least one token"):
        CaseStudy("", [], [])
    with pytest.raises(ValueError, match="a step emits"):
        CaseStudy("", ["a", "b"], [0, 1])


def test_page_holds_the_answer_and_marks_what_was_drafted() -> None:
    html = case_html(CASE)
    page = Page(html)
    assert page.answer == "".join(CASE.pieces)
    assert page.marks == DRAFTED_TEXTS
    assert page.titles == [
        "prefill: the first token",
        "step 1: 3 tokens, 2 drafted",
        "step 2: 2 tokens, 1 drafted",
        "step 3: 1 token, 0 drafted",
        "step 4: 2 tokens, 1 drafted",
    ]
    assert "<title>Trie &amp; &lt;toy&gt;</title>" in html and CASE.summary() in html
    style = re.search(r"mark \{(.*?)\}", html, re.S)
    assert style and DRAFTED in style[1] and "underline" in style[1] and "print-color-adjust: exact" in style[1]


def test_page_stands_alone_and_runs_nothing() -> None:
    evil = '<script>alert(1)</script><img src="http://x/y.png" onerror=z>'
    page = Page(case_html(CaseStudy(evil, [evil, evil, evil], [2])))
    assert page.answer == evil * 3
    assert not page.links and not page.tags & {"script", "img", "link", "b"}
    assert not re.search(r"url\(|@import|https?:", case_html(CASE))
    assert 'name="viewport"' in case_html(CASE)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=4), min_size=1, max_size=12), st.data())
def test_page_holds_any_answer(pieces: list[str], data: st.DataObject) -> None:
    left, lengths = len(pieces) - 1, []
    while left:
        lengths.append(data.draw(st.integers(1, left)))
        left -= lengths[-1]
    assert Page(case_html(CaseStudy("", pieces, lengths))).answer == "".join(pieces)


def drawn(figure: Figure) -> list[tuple[float, float, str]]:
    """Baseline, left edge and text of each run of characters, in the order of reading; blanks are drawn, too."""
    return sorted((text.get_position()[1], text.get_position()[0], text.get_text()) for text in figure.axes[0].texts)


def test_picture_shows_title_summary_answer_and_drafts() -> None:
    figure = case_figure(CASE)
    runs = [text for _, _, text in drawn(figure)]
    assert runs[:2] == ["Trie & <toy>", CASE.summary()]
    assert runs[2:5] == ["drafted and accepted", "the model's own token", "a step begins"]
    assert runs[5:] == ["The", " quick <b>", " jumps", " &", " runs", " fox", "↵", "End $x_1$"]
    assert not any(text.get_parse_math() for text in figure.axes[0].texts)
    boxes = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    lefts = {(text.get_position()[0], text.get_position()[1] - 7.2): text.get_text() for text in figure.axes[0].texts}
    assert [lefts[box.get_x(), box.get_y()] for box in boxes] == ["drafted and accepted", " quick <b>", " &", "↵"]
    ticks = [line for line in figure.axes[0].lines if len(set(line.get_xdata())) == 1]
    assert len(ticks) == 1 + len(CASE.accept_lengths)


ODD = "你\t\r\u2028\x07\U0001f600 $"
LONG = CaseStudy(
    "A long title " * 20,
    [" word", *[" several", " words", " inter", "woven"] * 60, "\n\n    indented\n", "x" * 400, ODD],
    [4] * 60 + [3],
)


def test_wrapped_text_stays_in_the_picture_and_in_order(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a glyph that is missing, a layout that does not fit
        figure = case_figure(LONG)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        first, second = (save_figure(case_figure(LONG), tmp_path / f"{i}.png") for i in range(2))
    assert first.read_bytes() == second.read_bytes()
    assert figure.get_figwidth() == TEXT_WIDTH
    for artist in [*figure.axes[0].texts, *figure.axes[0].patches]:
        box = artist.get_window_extent(canvas.get_renderer())
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, artist
    runs = drawn(figure)
    shown = "".join(text for _, _, text in runs)
    assert "x" * 400 + "□" in shown and shown.count(" several words interwoven") == 60
    assert len({baseline for baseline, _, _ in runs}) > 20  # wrapped, not drawn over each other
    assert [text for _, _, text in runs if "indented" in text] == ["    indented↵"]


def decode_bytes(ids: list[int]) -> str:
    return bytes(ids).decode(errors="replace")


def test_pieces_of_characters_that_span_tokens() -> None:
    pieces = text_pieces(list("aé😀!".encode()), decode_bytes)
    assert pieces == ["a", "", "é", "", "", "", "😀", "!"]
    assert text_pieces([], decode_bytes) == []


def test_pieces_of_an_answer_cut_within_a_character() -> None:
    ids = list("a😀".encode())[:-1]
    assert "".join(text_pieces(ids, decode_bytes)) == decode_bytes(ids) == "a\ufffd"


def test_pieces_of_a_tokenizer_that_cleans_up_blanks() -> None:
    vocabulary = ["do", " n", "'t", " go"]

    def decode(ids: list[int]) -> str:
        return "".join(vocabulary[i] for i in ids).replace(" n't", "n't")

    assert text_pieces([0, 1, 2, 3], decode) == ["do", "", "n't", " go"]


@given(st.binary(max_size=40))
def test_pieces_join_to_the_text(data: bytes) -> None:
    pieces = text_pieces(list(data), decode_bytes)
    assert len(pieces) == len(data) and "".join(pieces) == decode_bytes(list(data))
