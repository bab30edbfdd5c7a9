"""The pages as HTML that stands alone: nothing is fetched, figures are part of them, scripts are the project's own.

A content security policy names the page's style and script by their hashes and forbids all others, so that nothing in
what is shown could run even if it were not escaped.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from PIL import Image

from ngram_trie.bench.measures import Value
from ngram_trie.report.blocks import Block, Cell
from ngram_trie.report.markup import leads, notes, parts

_MARKED = re.compile(r"(?<!\S)(\*{1,2})([^*\s][^*]*?)\1(?=[\s.,;:]|$)")
_CODE = re.compile(r"`([^`]+)`")


def note(text: str) -> Markup:
    """A note of a table or a sentence: `code`, **bold** and *italic* as HTML, the rest escaped."""
    shown = str(escape(text.strip()))
    shown = _MARKED.sub(lambda m: "<{0}>{1}</{0}>".format("strong" if m[1] == "**" else "em", m[2]), shown)
    return Markup(_CODE.sub(r"<code>\1</code>", shown))


def slug(text: str) -> str:
    """The id of a heading, the same as long as its text is: what links to it are made of."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def picture(source: Path | Figure) -> tuple[str, int, int]:
    """A figure as a data URI (WebP without loss, or SVG), and its width and height in pixels; "" of what is no SVG."""
    if isinstance(source, Path) and source.suffix == ".svg":
        text = source.read_text(encoding="utf-8")
        size = re.match(r'<svg [^>]*width="(\d+)" height="(\d+)"', text)
        data = base64.b64encode(text.encode()).decode()
        return (f"data:image/svg+xml;base64,{data}", int(size[1]), int(size[2])) if size else ("", 0, 0)
    drawn, out = io.BytesIO(), io.BytesIO()
    if isinstance(source, Figure):
        source.savefig(drawn, dpi=200)
    with Image.open(drawn if isinstance(source, Figure) else source) as image:
        image.convert("RGB").save(out, "WEBP", lossless=True, method=6)
        data = base64.b64encode(out.getvalue()).decode()
        return f"data:image/webp;base64,{data}", int(image.width / 1.9), int(image.height / 1.9)


def number(text: str) -> str:
    """What a cell of text sorts by, if it is a number; else empty."""
    return text if re.fullmatch(r"\d+(\.\d+)?", text) else ""


def key_of(cell: Cell, block: Block) -> str:
    """What a cell sorts by; empty where its first measure is not known."""
    value = cell.get(block.measures[0], Value()).value
    return str(value) if math.isfinite(value) else ""


def _render(template: str, styles: Sequence[str], scripts: Sequence[str], **context: Any) -> str:
    """A page with these files of templates/ as its style and its script."""
    folder = resources.files("ngram_trie.report") / "templates"
    style, script = ("\n".join((folder / name).read_text("utf-8") for name in names) for names in (styles, scripts))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    policy = (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    environment = Environment(
        loader=PackageLoader("ngram_trie.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"note": note, "slug": slug, "number": number}
    environment.globals |= {"picture": picture, "leads": leads, "notes": notes, "parts": parts, "key_of": key_of}
    own = {"policy": policy, "style": Markup(style), "script": Markup(script)}
    return environment.get_template(template).render(**own, **context)


def explorer_page(data: Mapping[str, Any]) -> str:
    """A page of its own for what `ngram_trie.report.explorer.explore` gives."""
    return _render("explore_page.html.j2", ["base.css", "explorer.css"], ["explorer.js"], data=data)


def report_page(context: Mapping[str, Any]) -> str:
    """The report, from `ngram_trie.report.page.page`."""
    styles, scripts = ["base.css", "report.css", "explorer.css"], ["sort.js", "explorer.js", "page.js"]
    return _render("report.html.j2", styles, scripts, **context)
