"""One answer with its drafted tokens highlighted (the paper's Figure 3), as a picture (SVG)."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from ngram_trie.report.markup import count
from ngram_trie.tree import num_shared

DRAFTED = "#f1e2ae"  # prints as a light grey that black text stands on
#: Pixels: of a character, all of which are equally wide, of a line, and of the picture's border.
WIDTH, LEADING, MARGIN, COLUMNS = 8, 22, 16, 96
LEGEND = "underlined: drafted and accepted; the rest: the model's own tokens; a line: a step begins"


@dataclass(frozen=True)
class CaseStudy:
    """An answer, token by token, and the steps that made it.

    Prefill emits the first token. Of the k tokens of a step the first k - 1 were drafted and accepted, the last is the
    model's own. (Of a last step that the end of the answer cut short, a record does not say more than that either.)

    Attributes:
        title: what is shown, such as the method, the model and the question.
        pieces: the text of each output token; joined they give the answer (see `text_pieces`).
        accept_lengths: tokens emitted by each verification step; with the first token they are all.
    """

    title: str
    pieces: Sequence[str]
    accept_lengths: Sequence[int]

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
        parts = [count(tokens, "token"), count(steps, "step")]
        if steps:
            parts.append(f"accept length {(tokens - 1) / steps:.2f}")
        drafted = tokens - 1 - steps
        return ", ".join([*parts, f"{100 * drafted / tokens:.0f}% of the tokens drafted"])


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
    for size in range(1, len(ids) + 1):
        start, so_far = end, decode(ids[:size])
        end = len(text) if size == len(ids) else max(start, num_shared(so_far, text))
        pieces.append(text[start:end])
    return pieces


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


def case_svg(case: CaseStudy) -> str:
    """The answer as text on coloured boxes, as SVG: drafted tokens have a background, a thin line opens each step, and
    pointing at a step names it. Lines wrap at words; a line break is shown, as it may be all that a token is.
    """
    header = [*textwrap.wrap(case.title, COLUMNS), *textwrap.wrap(case.summary(), COLUMNS), LEGEND, ""]
    places = _places("".join(case.pieces))
    height = 2 * MARGIN + LEADING * (len(header) + 1 + max((line for line, _ in places), default=0))
    width = 2 * MARGIN + WIDTH * (COLUMNS + 1)
    drawn = [_text(line, 0, number) for number, line in enumerate(header)]
    place = 0
    for number, parts in enumerate(case.steps()):
        label = f"step {number}: {case.accept_lengths[number - 1] - 1} drafted" if number else "prefill"
        drawn.append(f"<g><title>{label}</title>")
        for is_draft, part in zip((True, False), parts, strict=True):
            owned = range(place, place + len(part))
            for line, run in groupby(owned, lambda at: places[at][0]):
                at = list(run)
                text = part[at[0] - place : at[-1] + 1 - place]
                drawn.append(_text(text, places[at[0]][1], line + len(header), is_draft))
            place += len(part)
        drawn.append("</g>")
        if place < len(places):
            line, column = places[place]
            x, y = MARGIN + WIDTH * column, MARGIN + LEADING * (line + len(header))
            drawn.append(f'<path d="M{x} {y + LEADING - 5}v5" stroke="#222"/>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="monospace" font-size="13" role="img">',
        f"<title>{escape(_shown(case.title))}</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        *drawn,
        "</svg>\n",
    ])  # fmt: skip


def _text(text: str, column: int, line: int, drafted: bool = False) -> str:
    """A run of characters on one line, each WIDTH wide in any font."""
    x, y = MARGIN + WIDTH * column, MARGIN + LEADING * line
    shown = _shown(text)
    size = WIDTH * len(text)
    box = ""
    if drafted:
        box = f'<path d="M{x} {y + 2}h{size}v{LEADING - 4}h-{size}z" fill="{DRAFTED}"/>'
        box += f'<path d="M{x} {y + LEADING - 2}h{size}" stroke="#222"/>'
    attributes = f'x="{x}" y="{y + 15}" textLength="{size}" lengthAdjust="spacingAndGlyphs" xml:space="preserve"'
    return f"{box}<text {attributes}>{escape(shown)}</text>" if shown.strip() else box


def _shown(text: str) -> str:
    """A box for what XML or a font cannot show, "↵" for a line break, and no blank but the space."""
    return "".join("↵" if c == "\n" else c if c.isprintable() else " " if c.isspace() else "□" for c in text)
