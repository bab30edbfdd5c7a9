"""The pages as HTML that stands alone: nothing is fetched, figures are part of them, scripts are the project's own."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from PIL import Image

_MARKED = re.compile(r"(?<!\S)(\*{1,2})([^*\s][^*]*?)\1(?=[\s.,;]|$)")
_CODE = re.compile(r"`([^`]+)`")


def note(text: str) -> Markup:
    """A note of a table or a sentence: `code`, **bold** and *italic* as HTML, the rest escaped."""
    shown = str(escape(text.strip()))
    shown = _MARKED.sub(lambda m: "<{0}>{1}</{0}>".format("strong" if m[1] == "**" else "em", m[2]), shown)
    return Markup(_CODE.sub(r"<code>\1</code>", shown))


def slug(text: str) -> str:
    """The id of a heading, the same as long as its text is: what links to it are made of."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def picture(path: Path) -> tuple[str, int, int]:
    """A figure as a data URI (WebP without loss), and its width and height in pixels."""
    with Image.open(path) as image:
        out = io.BytesIO()
        image.convert("RGB").save(out, "WEBP", lossless=True, method=6)
        data = base64.b64encode(out.getvalue()).decode()
        return f"data:image/webp;base64,{data}", image.width, image.height


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("ngram_trie.site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["note"] = note
    environment.filters["slug"] = slug
    return environment


def explorer_page(data: Mapping[str, Any]) -> str:
    """A page of its own for what `ngram_trie.site.explorer.explore` gives."""
    return _environment().get_template("explore_page.html.j2").render(data=data)


def report_page(context: Mapping[str, Any]) -> str:
    """The report, from `ngram_trie.site.sections.page`."""
    return _environment().get_template("report.html.j2").render(context)


def leaderboard_page(context: Mapping[str, Any]) -> str:
    """The leaderboard, from `ngram_trie.site.leaderboard.leaderboard`."""
    return _environment().get_template("leaderboard.html.j2").render(context)
