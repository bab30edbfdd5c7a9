"""The page's sections filled from `results/`: which folders stand in which, with their tables and figures."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pandas as pd
from markupsafe import Markup, escape
from omegaconf import OmegaConf

from ngram_trie.files import CONFIGS
from ngram_trie.metrics import ALL, GROUPS
from ngram_trie.report.blocks import JSON, PUBLISHED
from ngram_trie.site import audit
from ngram_trie.site.answer import answer
from ngram_trie.site.claims import TASKS, verdicts
from ngram_trie.site.evidence import OURS, RELEASED
from ngram_trie.site.gathered import MOST_ROWS, OTHER, WORDS, Folder, Results, Table, frame_table
from ngram_trie.site.render import picture


@dataclass(frozen=True)
class Section:
    """A part of the page; templates/words.yaml holds them.

    Attributes:
        kinds: of the folders that stand in it.
        text: what is to be seen.
        command: what makes it on the embedded profile, or by replay with `replay`, or on a GPU with `gpu`.
        beside: whether it is beside the papers' own tables and figures, and stands folded behind them.
    """

    id: str
    title: str
    kinds: list[str]
    text: str
    command: str
    replay: str = ""
    gpu: str = ""
    beside: bool = False


#: Figures that stand before the others of their folder.
FIRST = {"headline": 0, "figure": 1}

SECTIONS = [Section(**({"kinds": [part["id"]]} | part)) for part in WORDS["sections"]]


def command(section: Section, folder: Folder) -> str:
    """What makes a folder again. Recordings that are not in the repository are named as their file was."""
    if folder.is_synthetic:
        return section.command
    if folder.engine == "live" and section.gpu:
        return section.gpu.format(model=_configured(folder.model))
    return section.replay.format(traces=folder.traces or "FILE") if section.replay else section.command


def _configured(model: str) -> str:
    """The name of a model in configs/model, where it is there."""
    for path in sorted((CONFIGS / "model").glob("*.yaml")):
        if OmegaConf.select(OmegaConf.load(path), "name") == model:
            return path.stem
    return model


def provenance(section: Section, folder: Folder) -> list[list[tuple[str, str]]]:
    """Model, device, commit, date and command, where the manifest says; of a folder with several, one for each."""
    engine = f"replay of {folder.traces}" if folder.engine == "replay" else folder.engine
    lines = []
    manifests: list[tuple[str, Mapping[str, Any] | None]] = [*folder.manifests()]
    for label, about in manifests or [("", folder.manifest)]:
        named = [("files", label)] if label else []
        named.append(("model", str(about["model"]) if about and label else folder.model))
        named += [("engine", engine)] if engine else []
        if about:
            named += [("device", str(about.get("device", "-"))), ("commit", audit.commit(about))]
            named += [("started", f"{audit.started(about)} UTC"), ("run", str(about.get("run", "-")))]
        else:
            named.append(("manifest", "none: derived from another run's answers by the command"))
        lines.append([*named, ("command", command(section, folder))])
    return lines


def _shown_data(folder: Folder) -> Iterator[tuple[str, pd.DataFrame]]:
    """The data files to show as tables; what is hidden or too long is left to the list of files."""
    for name, frame in folder.data():
        if name not in WORDS["hidden"] and len(frame) <= MOST_ROWS:
            yield name, frame


def _other_files(folder: Folder) -> list[str]:
    """Data that lies in a folder and is not shown as it is: one row a question, a step or a bin."""
    shown = {name for name, _ in _shown_data(folder)} | {"table.csv"}
    files = [path.name for kind in ("*.csv", "*.jsonl") for path in folder.path.glob(kind)]
    return sorted(name for name in files if name not in shown)


def parts(section: Section, results: Results) -> Iterator[Mapping[str, Any]]:
    """Every run of a section with its folders' tables and figures; a figure that is there twice is shown once."""
    folders = [folder for kind in section.kinds for folder in results.of(kind)]
    seen: set[str] = set()
    # what answers for real text leads: the first run stands open
    order = sorted(folders, key=lambda each: (each.is_synthetic, each.engine != "live"))
    for run in dict.fromkeys(folder.run for folder in order):
        own = [folder for folder in folders if folder.run == run]
        shown = []
        for folder in own:
            figures = []
            for path in sorted(folder.figures(), key=lambda path: FIRST.get(path.stem, len(FIRST))):
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                if digest not in seen:
                    seen.add(digest)
                    figures.append((path, _caption(folder, path), folder.file(path.name)))
            case = folder.path / "case_study.html"
            tables = _without_repeats(folder.laid_out())
            # What a sweep or a Table 4 says is laid out again below it beside the paper's, in folders that are no runs.
            again = [other for other in own[1:] if not other.manifests()]
            split = folder is own[0] and any((other.path / JSON).is_file() for other in again)
            shown.append({
                "name": folder.name,
                "provenance": provenance(section, folder),
                "open": [t for t in tables if t.group != PUBLISHED and not split and not _is_secondary(t)],
                "folded": [t for t in tables if t.group != PUBLISHED and (split or _is_secondary(t))],
                "published": [t for t in tables if t.group == PUBLISHED],
                "data": [_titled(folder, name, frame) for name, frame in _shown_data(folder)],
                "figures": figures,
                "files": _other_files(folder),
                "case": case_study(case.read_text(encoding="utf-8")) if case.is_file() else None,
            })  # fmt: skip
        yield {"run": run, "model": own[0].model, "folders": shown}


def _caption(folder: Folder, path: Path) -> str:
    """The caption of the longest end of a figure's path that has one, else its name."""
    parts = [*folder.name.split("/"), path.stem]
    ends = ("/".join(parts[at:]) for at in range(len(parts)))
    captions = WORDS["captions"]
    return next((captions[end] for end in ends if end in captions), path.stem.replace("_", " "))


def _titled(folder: Folder, name: str, frame: pd.DataFrame) -> tuple[Table, bool]:
    """A data file as a table, and whether it stands unfolded."""
    stem = name.partition(".")[0]
    title = WORDS["titles"].get(stem, stem.replace("_", " "))
    return frame_table(frame, title, folder.file(name)), stem in WORDS["open"]


def _without_repeats(tables: Sequence[Table]) -> list[Table]:
    """The tables with each note below the first of them that it belongs to."""
    seen: set[str] = set()
    kept = []
    for table in tables:
        kept.append(replace(table, notes=[note for note in table.notes if note not in seen]))
        seen |= set(table.notes)
    return kept


def _is_secondary(table: Table) -> bool:
    """Tables that stand folded: other protocols and contexts, and quality, which the readings or the first one hold."""
    return any(word in table.title for word in ("released protocol", "quality kept", ", paragraph", ", passages"))


class _Markup(HTMLParser):
    """Whether a text holds nothing but what `ngram_trie.report.case_study` writes, which escapes what it shows."""

    is_ours = True
    KNOWN: ClassVar = {
        "h1": (),
        "p": ("class",),
        "div": ("class", "dir"),
        "span": ("class", "title"),
        "mark": (),
        "details": (),
        "summary": (),
    }

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.is_ours &= tag in self.KNOWN and all(name in self.KNOWN[tag] for name, _ in attrs)


def case_study(page: str) -> Markup | None:
    """The body of a page that `ngram_trie.report.case_study` wrote; None of any other, which may run what it likes."""
    match = re.search(r"<body>(.*)</body>", page, re.DOTALL)
    parser, body = _Markup(), match[1] if match else ""
    parser.feed(body)
    parser.close()
    if not parser.is_ours:
        return None
    return Markup(re.sub(r"<h1>(.*?)</h1>", r'<p class="case-title">\1</p>', body, flags=re.DOTALL))


#: The budget under which the released code's one size stands.
OWN_SIZE = {"rule": "published"}


def recorded_readings(results: Results) -> Table | None:
    """Accept lengths of the trie on one model: printed, as the released code counts on its last question and over all,
    and replayed."""
    cells, last = results.paper("table1.csv"), results.paper("released_code.csv")
    rows = []
    for folder in results.of("drafters", "table.csv"):
        frame = folder.csv("table.csv")
        if cells is None or last is None or frame is None or not {OURS, RELEASED} <= set(frame.method):
            continue
        if "budget" in frame or folder.config.get("budget", OWN_SIZE) != OWN_SIZE or "shape" in folder.config:
            continue
        for row in last[last.model == folder.model].itertuples():
            cell = cells[(cells.model == folder.model) & (cells.method == OURS) & (cells.dataset == row.dataset)]
            ours = frame[frame.dataset == TASKS[row.dataset]].set_index("method")
            if len(cell) and {OURS, RELEASED} <= set(ours.index):
                rows.append({
                    "dataset": row.dataset,
                    "paper prints": cell.accept_length.iloc[0],
                    "released code, last question": row.accept_length_last_question,
                    "released code, all questions": row.accept_length_all_questions,
                    "released code, mean of questions": row.accept_length_all_questions_macro,
                    f"{RELEASED}, replayed": ours.accept_length[RELEASED],
                    f"{OURS}, replayed": ours.accept_length[OURS],
                    "questions replayed": int(ours.num_prompts[OURS]),
                })  # fmt: skip
    if not rows:
        return None
    notes = (
        "Accept length: tokens emitted per verification step. The first column is Table 1's; the next three are the "
        "released code's on recorded answers, counted as it counts (results/paper/released_code.csv, made by python -m "
        "scripts.released_lists); replayed: counted as this project counts, on the questions of that run.",
    )
    return frame_table(
        pd.DataFrame(rows), "The trie's accept length, read three ways", "paper/released_code.csv", notes, 2
    )


def page(results: Results, explorer: Mapping[str, Any] | None, base: str = "") -> dict[str, Any]:
    """Everything that the report's template shows.

    Args:
        explorer: of `ngram_trie.site.explorer.explore`; None where there are no recorded answers.
        base: how the page's own folder reaches the results: empty within it, else ending in "/".
    """

    def link(file: str) -> Markup:
        """A file below the results by name, a link where it is one."""
        name = escape(f"results/{file}")
        if not (results.root / file).exists():
            return Markup(name)
        return Markup('<a href="{}{}">{}</a>').format(base, quote(file), name)

    checked = audit.losslessness(results)
    predicted = audit.predictions(results)
    claims = verdicts(results, checked)
    sections = [(section, list(parts(section, results))) for section in SECTIONS]
    return {
        "sections": [(s, shown) for s, shown in sections if shown or s.id != OTHER],
        "claims": claims,
        "counts": {v: sum(claim.verdict == v for claim in claims) for v in dict.fromkeys(c.verdict for c in claims)},
        "audit": checked,
        "audit_table": frame_table(checked.table, "Answers that are vanilla's, token by token", "*/records.jsonl"),
        "predictions": predicted,
        "scatter": audit.scatter([point for each in predicted for point in each.points]),
        "machines": audit.machines(results),
        "recorded": recorded_readings(results),
        "coverage": _coverage(results),
        "explorer": explorer,
        "answer": answer(results),
        "link": link,
        "picture": picture,
        "models": sorted({f.model for f in results.folders if f.engine}),
        "datasets": _datasets(results),
        "groups": [name for name in GROUPS if name != "baseline"],
    }


def _datasets(results: Results) -> list[str]:
    """The data sets of all tables, which the page can be narrowed down to."""
    frames = (folder.csv("table.csv") for folder in results.folders)
    names = {str(name) for frame in frames if frame is not None and "dataset" in frame for name in frame.dataset}
    return sorted(name for name in names if name.partition("+")[0] != ALL)


def _coverage(results: Results) -> Sequence[tuple[str, str, str, str, str]]:
    """Rows paper, what, section's id, where measured, remark."""
    sections = {kind: section for section in SECTIONS for kind in section.kinds}
    rows = []
    for paper, what, kind, remark in WORDS["coverage"]:
        runs = list(dict.fromkeys(folder.run for folder in results.of(kind))) if kind else []
        missing = f"not there yet: {sections[kind].command}" if kind and not runs else ""
        rows.append((paper, what, sections[kind].id if kind else "", ", ".join(runs), remark or missing))
    return rows
