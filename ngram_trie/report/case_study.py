"""One answer with its drafted tokens highlighted (the paper's Figure 3), as a web page and as a picture."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, takewhile
from pathlib import Path
from string import Template

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from ngram_trie.report.figures import STYLE, TEXT_WIDTH

DRAFTED = "#f1e2ae"  # prints as a light grey that black text stands on
NEWLINE = "↵"


@dataclass(frozen=True)
class CaseStudy:
    """An answer, token by token, and the steps that made it.

    Prefill emits the first token. Of the k tokens of a step the first k - 1 were drafted and accepted, the last is the
    model's own. (Of a last step that the end of the answer cut short, a record does not say more than that either.)

    Attributes:
        title: what is shown, such as the method, the model and the question.
        pieces: the text of each output token; joined they give the answer (see `text_pieces`).
        accept_lengths: tokens emitted by each verification step.
        prompt: its text, which the page shows folded; none if it is not known.

    Raises:
        ValueError: no tokens, or accept lengths that do not add up to the tokens after the first.
    """

    title: str
    pieces: Sequence[str]
    accept_lengths: Sequence[int]
    prompt: str = ""

    def __post_init__(self) -> None:
        if not self.pieces:
            raise ValueError("a case study needs an answer of at least one token")
        if any(length < 1 for length in self.accept_lengths):
            raise ValueError(f"accept_lengths={list(self.accept_lengths)}: a step emits at least one token")
        if sum(self.accept_lengths) + 1 != len(self.pieces):
            raise ValueError(
                f"accept lengths add up to {sum(self.accept_lengths)}, plus 1 of prefill, for {len(self.pieces)} tokens"
            )

    def steps(self) -> Iterator[tuple[str, str]]:
        """The drafted text and the model's own text of each step; the first is prefill, which drafts nothing."""
        yield "", self.pieces[0]
        start = 1
        for length in self.accept_lengths:
            end = start + length
            yield "".join(self.pieces[start : end - 1]), self.pieces[end - 1]
            start = end

    def summary(self) -> str:
        """Tokens, steps, accept length (prefill is no step) and share of the tokens that were drafted, in words."""
        tokens, steps = len(self.pieces), len(self.accept_lengths)
        parts = [_count(tokens, "token"), _count(steps, "step")]
        if steps:
            parts.append(f"accept length {(tokens - 1) / steps:.2f}")
        drafted = tokens - 1 - steps
        return ", ".join([*parts, f"{100 * drafted / tokens:.0f}% of the tokens drafted"])


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def text_pieces(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[str]:
    """The text that each token adds; joined, the pieces are exactly `decode(ids)`.

    A token adds what `decode` makes of the tokens up to it, as far as the whole text agrees. Half a character decodes
    to U+FFFD, which the whole text does not hold at that place, so the character goes to the token that completes it;
    and a blank that a tokenizer removes in the light of what follows never appears.

    Args:
        ids: token ids of the answer.
        decode: token ids to text, a tokenizer's own function. It is called on every prefix of `ids`.
    """
    text = decode(ids) if len(ids) else ""
    pieces, end = [], 0
    for count in range(1, len(ids) + 1):
        start, so_far = end, decode(ids[:count])
        agreed = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(so_far, text, strict=False)))
        end = len(text) if count == len(ids) else max(start, agreed)
        pieces.append(text[start:end])
    return pieces


def case_html(case: CaseStudy) -> str:
    """A web page that stands alone: no script and nothing to fetch; made for a screen, a phone and print, grey or not.

    Drafted tokens have a background and an underline, a thin line opens each step, and pointing at a step names it.
    """
    steps = []
    for number, (drafted, own) in enumerate(case.steps()):
        if number:
            length = case.accept_lengths[number - 1]
            label = f"step {number}: {_count(length, 'token')}, {length - 1} drafted"
        else:
            label = "prefill: the first token"
        kind = "step" if number else "prefill"
        mark = f"<mark>{_markup(drafted)}</mark>" if drafted else ""
        steps.append(f'<span class="{kind}" title="{label}">{mark}{_markup(own)}</span>')
    folded = "<details><summary>The prompt</summary>", f'<div class="prompt" dir="auto">{_markup(case.prompt)}</div>'
    page = Template((Path(__file__).parent / "case_study.html").read_text(encoding="utf-8"))
    return page.substitute(
        title=escape(case.title),
        summary=case.summary(),
        prompt="".join([*folded, "</details>"]) if case.prompt else "",
        steps="".join(steps),
        drafted=DRAFTED,
        newline=NEWLINE,
    )


def _markup(text: str) -> str:
    """Escaped; a line break is kept and shown, as it may be all that a token is."""
    return escape(text).replace("\n", '<span class="newline">\n</span>')


#: Points. All characters of the font are equally wide: 0.602 of its size, here whole pixels at 100 and 200 dpi.
WIDTH, LEADING, MARGIN = 4.32, 12.0, 10.0
SIZE = WIDTH / 0.602
COLUMNS = int((72 * TEXT_WIDTH - 2 * MARGIN) / WIDTH)
FONT = FontProperties(family="DejaVu Sans Mono", size=SIZE)
LEGEND = (
    ("drafted and accepted", True, False),
    ("the model's own token", False, False),
    ("a step begins", False, True),
)


def _places(text: str) -> list[tuple[int, int]]:
    """Line and column of each character, wrapped at words; a word longer than a line is broken."""
    places: list[tuple[int, int]] = []
    line = column = 0
    for word in re.findall(r"\n|[^\S\n]+|\S+", text):
        if not word.isspace() and column + len(word) > COLUMNS >= len(word):
            line, column = line + 1, 0
        for character in word:
            if column == COLUMNS:
                line, column = line + 1, 0
            places.append((line, column))
            line, column = (line + 1, 0) if character == "\n" else (line, column + 1)
    return places


def _drawable(text: str) -> str:
    """`text`, one for one: a box where the font lacks a character, "↵" for a line break, and no blank but the space."""
    font = get_font(findfont(FONT))
    shown = (NEWLINE if c == "\n" else " " if c.isspace() else c for c in text)
    return "".join(c if font.get_char_index(ord(c)) else "□" for c in shown)


def _write(axes: Axes, text: str, column: int, baseline: float, drafted: bool = False, begins: bool = False) -> None:
    """A run of characters on one line: underlined on a background if drafted, with a tick where a step begins."""
    left, right = (MARGIN + WIDTH * at for at in (column, column + len(text)))
    if drafted:
        axes.add_patch(Rectangle((left, baseline - 7.2), right - left, 9.6, fc=DRAFTED, lw=0, zorder=1))
        axes.add_line(Line2D([left, right], [baseline + 1.9] * 2, color="0.2", lw=0.6))
    if begins:
        axes.add_line(Line2D([left, left], [baseline + 1.6, baseline + 4.4], color="0.2", lw=0.6))
    axes.text(left, baseline, text, fontproperties=FONT, va="baseline", parse_math=False)


def case_figure(case: CaseStudy) -> Figure:
    """The same as a picture at the width of a paper's text, as high as the answer needs.

    Lines wrap at words and the answer's own line breaks are kept. A character that the font lacks becomes a box.
    """
    answer = "".join(case.pieces)
    places = _places(answer)
    header = [*textwrap.wrap(_drawable(case.title), COLUMNS), *textwrap.wrap(case.summary(), COLUMNS)]
    top = MARGIN + SIZE + LEADING * (len(header) + 1) + 8
    height = top + LEADING * max((line for line, _ in places), default=0) + MARGIN
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(TEXT_WIDTH, height / 72))
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 72 * TEXT_WIDTH), ylim=(height, 0))
        axes.axis("off")
        for number, line in enumerate(header):
            _write(axes, line, 0, MARGIN + SIZE + LEADING * number)
        column = 0
        for text, *marks in LEGEND:
            _write(axes, text, column, top - LEADING - 8, *marks)
            column += len(text) + 3
        axes.add_line(Line2D([MARGIN, 72 * TEXT_WIDTH - MARGIN], [top - LEADING] * 2, color="0.6", lw=0.5))
        owners = [
            (number, is_draft)
            for number, parts in enumerate(case.steps())
            for is_draft, part in zip((True, False), parts, strict=True)
            for _ in part
        ]
        drawn, begun = _drawable(answer), 0
        for (line, (step, is_draft)), run in groupby(range(len(answer)), lambda at: (places[at][0], owners[at])):
            first, *rest = run
            text = drawn[first : first + 1 + len(rest)]
            _write(axes, text, places[first][1], top + LEADING * line, is_draft, step > begun)
            begun = step
    return figure
