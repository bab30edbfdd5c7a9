"""One answer with its drafted tokens highlighted (the paper's Figure 3), as a web page and as a picture."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, takewhile
from typing import NamedTuple

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

    Raises:
        ValueError: no tokens, or accept lengths that do not add up to the tokens after the first.
    """

    title: str
    pieces: Sequence[str]
    accept_lengths: Sequence[int]

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


_CSS = f"""
:root {{ color-scheme: light; }}
body {{ max-width: 44rem; margin: 1.5rem auto; padding: 0 1rem; color: #111; background: #fff;
       font: 1rem/1.75 system-ui, sans-serif; }}
h1 {{ font-size: 1.15rem; line-height: 1.3; }}
.summary, .legend {{ margin: .3rem 0; font-size: .85rem; }}
.answer {{ margin-top: 1rem; padding-top: 1rem; border-top: 1px solid #999; white-space: pre-wrap;
          overflow-wrap: anywhere; }}
mark {{ color: inherit; background: {DRAFTED}; text-decoration: underline; text-decoration-thickness: 1px;
       text-underline-offset: .2em; -webkit-print-color-adjust: exact; print-color-adjust: exact; }}
.step {{ border-left: 1px solid #777; }}
.step:hover {{ outline: 1px solid #111; }}
.newline::before {{ content: "{NEWLINE}"; color: #666; }}
@media print {{ body {{ max-width: none; margin: 0; font-size: 10pt; }} }}
"""


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
    title = escape(case.title)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_CSS}</style>
</head>
<body>
<h1>{title}</h1>
<p class="summary">{case.summary()}</p>
<p class="legend"><mark>drafted and accepted</mark> · the model's own token · <span class="step">&#8202;</span>a
verification step begins</p>
<div class="answer" dir="auto">{"".join(steps)}</div>
</body>
</html>
"""


def _markup(text: str) -> str:
    """Escaped; a line break is kept and shown, as it may be all that a token is."""
    return escape(text).replace("\n", '<span class="newline">\n</span>')


SIZE, LEADING, MARGIN = 7.5, 12.0, 10.0  # points


class _Place(NamedTuple):
    """Where a character stands: line, and points from the left edge of the text to its two sides."""

    line: int
    left: float
    right: float


class _Font:
    """Advance widths of a font, in points and without kerning, and what it can draw."""

    def __init__(self, size: float, weight: str = "normal") -> None:
        self.properties = FontProperties(size=size, weight=weight)
        self._font = get_font(findfont(self.properties))
        self._size = size
        self._advances: dict[str, float] = {}

    def drawable(self, text: str) -> str:
        """`text`, one for one: a box where the font lacks a character, and no blanks but the space, tab and \\n."""
        known = (c if c in "\t\n" else " " if c.isspace() else c for c in text)
        return "".join(c if c in "\t\n" or self._font.get_char_index(ord(c)) else "□" for c in known)

    def advance(self, character: str) -> float:
        if character not in self._advances:
            self._font.set_size(self._size, 72)  # the font is shared with the renderer, which sets its own
            shown = {"\n": NEWLINE, "\t": "    "}.get(character, character)
            total = sum(self._font.load_char(ord(c)).linearHoriAdvance for c in shown)
            self._advances[character] = total / 65536  # 16.16 fixed point
        return self._advances[character]


def _wrap(text: str, font: _Font, width: float) -> list[_Place | None]:
    """A place for each character of `text`, wrapped at words; None for blanks that a wrapped line ends with.

    Indentation is kept, a word longer than a line is broken, and a line break may stand up to its own width outside.
    """
    places: list[_Place | None] = []
    line, x = 0, 0.0
    for word in re.findall(r"\n|[^\S\n]+|\S+", text):
        advances = [font.advance(character) for character in word]
        blank = word.isspace()
        if not blank and x + sum(advances) > width >= sum(advances):
            line, x = line + 1, 0.0
            for index in range(len(places) - 1, -1, -1):
                if not text[index].isspace() or text[index] == "\n":
                    break
                places[index] = None
        for advance in advances:
            if x + advance > width and word != "\n":
                if blank:
                    places.append(None)
                    continue
                line, x = line + 1, 0.0
            places.append(_Place(line, x, x + advance))
            x += advance
        if word == "\n":
            line, x = line + 1, 0.0
    return places


def _write(axes: Axes, text: str, places: Sequence[_Place | None], font: _Font, x: float, top: float) -> None:
    """Draw the words of `text`, each where its first character stands; apart, as kerning is not in the places."""
    for word in re.finditer(r"\n|\S+", text):
        spot = places[word.start()]
        if spot is None:
            continue
        shown, colour = (NEWLINE, "0.45") if word[0] == "\n" else (word[0], "black")
        axes.text(
            x + spot.left, top + spot.line * LEADING, shown,
            fontproperties=font.properties, color=colour, va="baseline", parse_math=False,
        )  # fmt: skip


def _highlight(axes: Axes, left: float, right: float, baseline: float) -> None:
    """Background and underline of drafted text."""
    axes.add_patch(Rectangle((left, baseline - 7.2), right - left, 9.6, fc=DRAFTED, lw=0, zorder=1))
    axes.add_line(Line2D([left, right], [baseline + 1.9] * 2, color="0.2", lw=0.6, solid_capstyle="butt"))


def _tick(axes: Axes, left: float, right: float, baseline: float) -> None:
    """The mark at which a step begins, below the text so that words stay whole."""
    axes.add_line(Line2D([left, left], [baseline + 1.6, baseline + 4.4], color="0.2", lw=0.6, solid_capstyle="butt"))


def case_figure(case: CaseStudy) -> Figure:
    """The same as a picture at the width of a paper's text, as high as the answer needs.

    Lines wrap at words and the answer's own line breaks are kept. A character that the font lacks becomes a box.
    """
    width = 72 * TEXT_WIDTH - 2 * MARGIN
    with matplotlib.rc_context(STYLE):
        plain, bold = _Font(SIZE), _Font(SIZE + 0.5, "bold")
        title, answer = bold.drawable(case.title), plain.drawable("".join(case.pieces))
        title_places, places = _wrap(title, bold, width), _wrap(answer, plain, width)
        header = MARGIN + SIZE + LEADING * (1 + max((place.line for place in title_places if place), default=0))
        top = header + 3 * LEADING + 2
        height = top + LEADING * max((place.line for place in places if place), default=0) + MARGIN

        figure = Figure(figsize=(TEXT_WIDTH, height / 72))
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 72 * TEXT_WIDTH), ylim=(height, 0))
        axes.axis("off")
        _write(axes, title, title_places, bold, MARGIN, MARGIN + SIZE)
        summary = case.summary()
        _write(axes, summary, _wrap(summary, plain, width), plain, MARGIN, header)
        _legend(axes, plain, header + LEADING)
        _write_answer(axes, case, answer, places, plain, top)
    return figure


def _legend(axes: Axes, font: _Font, baseline: float) -> None:
    """What the marks mean, ruled off from the answer."""
    x = MARGIN
    for draw, text in ((_highlight, "drafted and accepted"), (None, "the model's own token"), (_tick, "a step begins")):
        places = _wrap(text, font, math.inf)
        right = x + sum(font.advance(character) for character in text)
        if draw:
            draw(axes, x, right, baseline)
        _write(axes, text, places, font, x, baseline)
        x = right + 14
    axes.add_line(Line2D([MARGIN, 72 * TEXT_WIDTH - MARGIN], [baseline + 8] * 2, color="0.6", lw=0.5))


def _write_answer(
    axes: Axes, case: CaseStudy, text: str, places: Sequence[_Place | None], font: _Font, top: float
) -> None:
    """The answer run by run: what one step drafted, or added itself, on one line."""
    owners = [
        (number, is_draft)
        for number, parts in enumerate(case.steps())
        for is_draft, part in zip((True, False), parts, strict=True)
        for _ in part
    ]
    begun = 0
    placed = [(index, place) for index, place in enumerate(places) if place]
    for ((number, is_draft), line), run in groupby(placed, key=lambda item: (owners[item[0]], item[1].line)):
        members = list(run)
        (first, start), (last, end) = members[0], members[-1]
        baseline = top + line * LEADING
        sides = MARGIN + start.left, MARGIN + end.right
        if is_draft:
            _highlight(axes, *sides, baseline)
        if number > begun:
            _tick(axes, *sides, baseline)
            begun = number
        _write(axes, text[first : last + 1], places[first : last + 1], font, MARGIN, top)
