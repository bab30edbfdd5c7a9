"""The commands of `ngram-trie`; scripts/ has each of them as `python -m scripts.NAME`, too."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ngram_trie.cli import app
from ngram_trie.config import ConfigError, build, check_values, default_folder
from ngram_trie.files import IS_CHECKOUT, NO_ROOM, PROJECT, end_with_parent, relative

if TYPE_CHECKING:  # what takes seconds to import is imported where it is used: help comes at once
    from omegaconf import DictConfig

    from ngram_trie.site.gathered import Results

#: What `explore` shows unless told, and how many drafters can stand side by side.
DRAFTERS, MOST = ["ngram_trie num_draft=8", "blend num_draft=8"], 3


def run() -> None:
    """Measure methods on data sets, with a live model or over recorded answers; write records, tables and figures.

      python -m scripts.run smollm2_135m docs_rag --methods trie,pld,blend --limit 6
      python -m scripts.run dataset=rag method=ngram_trie method.n=13      one method, beside vanilla
      python -m scripts.run -m method.n=8,9,10 method.prefix_len=2,3       a sweep, the model loaded once
      python -m scripts.run experiment=table1_small                        Table 1 (make reproduce-table1)
      python -m scripts.run engine=replay engine.traces=FILE method=pld    accept lengths of recorded answers

    The same command resumes an interrupted run.
    """
    from ngram_trie.cli.hydra_app import hydra_app
    from ngram_trie.records import LosslessError

    hydra_app(measure, inspect.getdoc(run), also=(LosslessError,), prog="ngram-trie run" if app.is_console() else "")


def measure(config: DictConfig) -> Path:
    """Everything one resolved config asks for; returns the output folder.

    Raises:
        ConfigError: a wrong name or value, a part that is not there, or too little memory.
        LosslessError: a method gave other tokens than vanilla.
    """
    import torch

    from ngram_trie.budget import Budgeted
    from ngram_trie.cli import sweep
    from ngram_trie.cli.estimate import estimate
    from ngram_trie.engines import measure as loop
    from ngram_trie.engines.live import Live, check_lossless
    from ngram_trie.engines.prepare import prepare
    from ngram_trie.engines.replay import Replay
    from ngram_trie.engines.traces import write_traces
    from ngram_trie.report import derive as derived
    from ngram_trie.report import samples, trackers
    from ngram_trie.report.run_folder import RunFolder
    from ngram_trie.report.verdict import noise, verdict

    end_with_parent()
    check_values(config)
    if config.likely:
        raise ConfigError(f"likely={config.likely}: only scripts.record records likely tokens")
    engine = prepare(config)
    if config.samples and not isinstance(engine, Live):
        raise ConfigError("samples=true: needs engine=live; recorded answers have no text")
    folder = Path(config.output or default_folder(config, engine.manifest.run))
    if config.dry_run:
        print(estimate(engine, config, folder))
        return folder
    if config.log:
        trackers.client(config.log)
    with loop.open_run(folder, engine, config.force, config.repair) as writer:
        if isinstance(engine, Replay) or any(isinstance(method, Budgeted) for method in engine.methods.values()):
            build(config.cost, "cost").keep(folder)
        has_room = True
        try:
            loop.measure(engine, writer)
        except torch.OutOfMemoryError:
            raise ConfigError(
                "the device's memory does not hold the models: leave out methods with models of their own "
                "(~methods.space), lower model.context_limit, or take a larger device"
            ) from None
        except OSError as error:
            has_room = error.errno not in NO_ROOM
            raise
        finally:  # an interrupted run, too, leaves what can be replayed
            if has_room and (traces := engine.traces(writer.records)):
                write_traces(folder / "traces.jsonl", traces)
        run = RunFolder(folder, writer.records.values())
        if (scores := engine.scores(run.records)) is not None:
            run.keep_scores(scores)
        derived.write(run, engine.names, list(engine.datasets))
    name = sweep.label()
    if isinstance(engine, Live) and config.samples:
        samples.write(folder / "samples.md", run.records, partial(engine.prompt, known=writer.records), engine.decode)
    if config.log:
        trackers.log(run, config.log)
    if name:
        sweep.finished(name, folder)
        print(f"\n== {name}")
    else:
        print(derived.main_tables(folder))
    for line in filter(None, (noise(run), verdict(run))):
        print(line)
    print(f"written: {relative(str(folder.absolute()))}{'' if name else ' (table.md has all tables)'}")
    check_lossless(run.records)
    return folder


def derive(
    folder: Annotated[Path | None, typer.Argument(help="of a run or of a sweep's runs")] = None,
) -> None:
    """Derive the tables and figures of FOLDER again from its records, then fill the tables of README.md and docs/ from
    results/.

    FOLDER holds one run (records.jsonl and manifest.json), or the runs of a sweep, each in its own folder, such as the
    jobs of `python -m scripts.run -m ... hydra/launcher=joblib`. The runs of a sweep are gathered into one table.

      python -m scripts.derive results/local/table1
    """
    from ngram_trie.report import derive as derived
    from ngram_trie.report import embed

    if folder:
        print(derived.write(folder) if (folder / "records.jsonl").exists() else derived.gather(folder))
    for filled in embed.fill_pages() if IS_CHECKOUT else ():
        print(f"tables filled: {filled.name}")


def compare(
    a: Annotated[Path, typer.Argument(help="folder of a run")],
    b: Annotated[Path, typer.Argument(help="folder of another run")],
    output: Annotated[Path | None, typer.Option(help="folder to write the table to, in all formats")] = None,
) -> None:
    """Compare two runs: the differences in settings, code and machine, and for each method the ratio of its speeds and
    of its accept lengths, B over A, with intervals paired by question.

      python -m scripts.compare results/local/before results/local/after
    """
    from ngram_trie.report import compare as compared
    from ngram_trie.report import markup
    from ngram_trie.report.run_folder import RunFolder

    one, other = RunFolder(a), RunFolder(b)
    for run in (one, other):
        if not (run.path / "manifest.json").exists():
            raise ConfigError(f"{run.path}: not a run: it has no manifest.json")
    numbers = compared.numbers(one, other)
    tables = compared.tables(one, other, numbers)
    print(compared.settings_text(one, other), end="\n\n")
    print(markup.write(output, numbers, tables) if output else markup.plain_text(tables))


def report(
    results: Annotated[Path, typer.Option(help="folder to gather")] = PROJECT / "results",
    local: Annotated[bool, typer.Option("--local", help="also its folder local/, your own runs")] = False,
    output: Annotated[Path | None, typer.Option(help="the page; default: report.html there, or in local/")] = None,
) -> None:
    """Write results/report.html: every table and figure under results/ on one page, which needs no other file.

    With --local the page is results/local/report.html. `python -m scripts.derive` derives the tables of one run.

      python -m scripts.report --local
    """
    from ngram_trie.site.gathered import LOCAL, Results

    print(write_report(Results(results, local), output or results / (LOCAL if local else "") / "report.html"))


def write_report(results: Results, output: Path) -> str:
    """Write the page; returns a line on what it holds."""
    from ngram_trie.site.render import report_page
    from ngram_trie.site.sections import page

    away = os.path.relpath(results.root, output.absolute().parent)
    context = page(results, _explorer_data(results), "" if away == "." else f"{Path(away).as_posix()}/")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in context["counts"].items())
    return f"{_write(report_page(context), output)}: {len(results.folders)} folders; claims: {counts}"


def _explorer_data(results: Results) -> Mapping[str, Any] | None:
    """The explorer of one answer of the embedded model, the median one; None where there is no recorded answer."""
    from ngram_trie.cli.recordings import EMBEDDED, choose, decoder, replayable
    from ngram_trie.engines.traces import read_traces
    from ngram_trie.site import explorer

    for folder in results.of("table1", "traces.jsonl"):
        path = folder.path / "traces.jsonl"
        traces = [t for t in read_traces(path) if t.model == "embedded" and t.output_ids]
        if traces:
            chosen = {name: replayable(name, path) for name in DRAFTERS}
            trace = choose(traces, chosen[DRAFTERS[0]], None, None)
            return explorer.explore(trace, chosen, decoder(str(EMBEDDED)))
    return None


def explore(
    traces: Annotated[Path, typer.Argument(help="traces.jsonl of a live run, or any file that engine=replay reads")],
    method: Annotated[
        list[str], typer.Option(help='a name in configs/method, with settings: "blend num_draft=8"; once for each')
    ] = DRAFTERS,
    dataset: Annotated[str | None, typer.Option(help="of the question; default: summarization, if it is there")] = None,
    question: Annotated[str | None, typer.Option(help="id of the question; default: the median one")] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="a name in configs/model, a folder, a hub id; without, other models' answers are ids"),
    ] = None,
    output: Annotated[Path, typer.Option(help="the page")] = PROJECT / "results" / "local" / "explorer.html",
) -> None:
    """Write one page that steps through a recorded answer, with up to three drafters side by side.

    The drafters must read only tokens, or likely tokens that were recorded. Without --question the page shows the
    answer of median accept length in its data set, under the first drafter.

      python -m scripts.explore TRACES --method "ngram_trie num_draft=8" --method "blend num_draft=8" --question ID
    """
    from ngram_trie.cli.recordings import EMBEDDED, choose, decoder, recall, replayable
    from ngram_trie.engines.traces import read_traces
    from ngram_trie.site import explorer
    from ngram_trie.site.render import explorer_page

    if len(method) > MOST:
        raise ConfigError(f"--method: {len(method)} methods; at most {MOST} can be shown side by side")
    recorded = read_traces(traces)
    drafters = {name: replayable(name, traces) for name in method}
    trace = choose(recorded, drafters[method[0]], dataset, question)
    drafters = {name: recall(drafter, recorded, trace) for name, drafter in drafters.items()}
    own = str(EMBEDDED) if trace.model == "embedded" else None
    print(_write(explorer_page(explorer.explore(trace, drafters, decoder(tokenizer or own))), output))


def leaderboard(
    folders: Annotated[list[Path], typer.Argument(help="of runs, or of folders of runs")],
    output: Annotated[Path, typer.Option(help="the page")] = Path("leaderboard.html"),
) -> None:
    """Write one page with a sortable table of all runs below FOLDERS; each number links to its manifest.

    python -m scripts.leaderboard results --output leaderboard.html
    """
    from ngram_trie.site import leaderboard as board
    from ngram_trie.site.render import leaderboard_page

    print(_write(leaderboard_page(board.leaderboard(folders)), output))


def _write(text: str, path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return f"written: {path} ({len(text.encode()) / 1e6:.1f} MB)"
