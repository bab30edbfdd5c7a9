"""The commands of `ngram-trie`; scripts/ has each of them as `python -m scripts.NAME`, too."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ngram_trie.bench.config import default_folder
from ngram_trie.methods import ConfigError, build
from ngram_trie.store.files import IS_CHECKOUT, NO_ROOM, PROJECT, end_with_parent, first_line, relative

if TYPE_CHECKING:  # what takes seconds to import is imported where it is used: help comes at once
    from ngram_trie.bench.measure import Engine
    from ngram_trie.bench.records import RecordWriter
    from ngram_trie.bench.schemas import Run
    from ngram_trie.report.blocks import Tables
    from ngram_trie.report.run_folder import RunFolder

#: What `explore` shows by default, and how many drafters fit side by side.
DRAFTERS, MAX_COUNT = ["ngram_trie num_draft=8", "blend num_draft=8"], 3


def run() -> None:
    """Measure methods on data sets, with a live model or over recorded answers; write records, tables and figures.

      ngram-trie run smollm2_135m docs_rag --methods trie,pld,blend --limit 6
      ngram-trie run dataset=rag method=ngram_trie method.n=13      one method, beside vanilla
      ngram-trie run -m method.n=8,9,10 method.prefix_len=2,3       a sweep, the model loaded once
      ngram-trie run experiment=table1_small                        Table 1 (make reproduce-table1)
      ngram-trie run engine=replay engine.traces=FILE method=pld    accept lengths of recorded answers

    The same command resumes an interrupted run.
    """
    from ngram_trie.bench.records import LosslessError, MethodError
    from ngram_trie.cli.hydra_app import hydra_app

    hydra_app(measure, inspect.getdoc(run), also=(LosslessError, MethodError), prog="ngram-trie run", measures=True)


def measure(asked: Run) -> Path:
    """Everything that is asked for; returns the output folder.

    Raises:
        ConfigError: a wrong name or value, a part that is not there, too little memory, or no prompt was answered.
        LosslessError: a method gave other tokens than vanilla.
        MethodError: a method answered no prompt.
    """
    from ngram_trie.bench import shards
    from ngram_trie.bench.live import Live, check_answered, check_lossless
    from ngram_trie.bench.prepare import prepare
    from ngram_trie.cli.estimate import before_conversion, estimate

    end_with_parent()
    shard = shards.parse(asked.shard, os.environ)
    if asked.dry_run and (plan := before_conversion(asked)):
        print(plan)
        return Path(asked.output or "")
    engine = prepare(asked)
    if asked.samples and not isinstance(engine, Live):
        raise ConfigError("samples=true: needs engine=live; recorded answers have no text")
    whole = folder = Path(asked.output or default_folder(asked, engine.manifest.run))
    if shard:
        engine, folder = shards.deal(engine, *shard), shards.folder(whole, *shard)
    if asked.dry_run:
        print(estimate(engine, asked, folder))
        return folder
    run, tables = _answer(asked, engine, folder)
    _show(run, tables, [f"all {shard[1]} shards are there: ngram-trie derive {_shown(whole)}"] if shard else [])
    check_lossless(run.records)
    failures = [record.failure for record in run.records if record.failure]
    if failures and len(failures) == len(run.records):
        raise ConfigError(f"no prompt was answered: {failures[0].kind}: {failures[0].message}")
    check_answered(run.records)
    return folder


def _answer(asked: Run, engine: Engine, folder: Path) -> tuple[RunFolder, list[Tables]]:
    """Measure what the folder has no records of, and write everything that follows from them."""
    import torch

    from ngram_trie.bench import measure as loop
    from ngram_trie.bench.live import Live
    from ngram_trie.bench.records import seal
    from ngram_trie.bench.replay import Replay
    from ngram_trie.bench.traces import write_traces
    from ngram_trie.report import derive as derived
    from ngram_trie.report import samples
    from ngram_trie.report.run_folder import RunFolder

    with loop.open_run(folder, engine, asked.force) as writer:
        # a finished run is told by the curve that it was finished with
        if isinstance(engine, Replay) and not (folder / "curve.json").exists():
            build(asked.plain["cost"], "cost").keep(folder)
        has_room = True
        try:
            loop.measure(engine, writer, partial(_interim, folder, engine, writer))
        except torch.OutOfMemoryError:
            raise ConfigError(
                "the device's memory does not hold the model: lower model.context_limit, or take a larger device"
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
        seal(folder)
        tables = derived.write(run, list(engine.datasets))
    if isinstance(engine, Live) and asked.samples:
        samples.write(folder / "samples.md", run.records, partial(engine.prompt, known=writer.records), engine.decode)
    return run, tables


def _show(run: RunFolder, tables: Sequence[Tables], later: Sequence[str]) -> None:
    """Print what a terminal has room for, or the name of a sweep's cell, and what is to be done `later`."""
    from ngram_trie.cli import sweep
    from ngram_trie.report import derive as derived
    from ngram_trie.report.verdict import noise, verdict

    if (name := sweep.label()) and not later:  # a shard is a part of a cell
        sweep.finished(name, run.path)
    print(f"\n== {name}" if name else derived.main_tables(tables))
    for line in filter(None, (noise(run), verdict(run))):
        print(line)
    picture = ", headline.png their picture" if (run.path / "headline.png").exists() else ""
    print(f"written: {_shown(run.path)}{'' if name else f' (table.md has all tables{picture})'}")
    for line in later:
        print(f"once {line}")


def _shown(folder: Path) -> str:
    return relative(str(folder.absolute()))


def _interim(folder: Path, engine: Engine, writer: RecordWriter) -> None:
    """The table of a run that goes on."""
    from ngram_trie.bench.progress import say
    from ngram_trie.report import derive as derived
    from ngram_trie.report.run_folder import RunFolder

    try:
        derived.write(RunFolder(folder, list(writer.records.values())), list(engine.datasets))
        say(f"interim table: {_shown(folder)}/table.md")
    except Exception as error:  # it is derived again in the end: nothing of it may end a run
        say(f"warning: no interim table: {first_line(error)}")


def derive(
    folder: Annotated[Path | None, typer.Argument(help="of a run or of a sweep's runs")] = None,
    without_loops: Annotated[
        bool, typer.Option("--without-loops", help="of a run: also table_without_loops, without answers that loop")
    ] = False,
) -> None:
    """Derive the tables and figures of FOLDER again from its records; without FOLDER those of all committed runs, and
    the tables of README.md and docs/.

    FOLDER holds one run (records.jsonl and manifest.json), or its shards (shard=0/4), which are joined; or the runs of
    a sweep, each in its own folder, such as the jobs of `python -m scripts.run -m ... hydra/launcher=joblib`. The runs
    of a sweep are gathered into one table.

      ngram-trie derive results/local/table1
    """
    from ngram_trie.bench import shards
    from ngram_trie.bench.records import RECORDS, records_file
    from ngram_trie.report import derive as derived
    from ngram_trie.report import embed, markup
    from ngram_trie.report.collect import collect

    if folder:
        if shards.found(folder):
            shards.join(folder)
        is_run = records_file(folder).exists()
        if without_loops and not is_run:
            raise ConfigError(f"--without-loops: {folder} is not a run's folder")
        tables = derived.write(folder, without_loops=without_loops) if is_run else collect(folder)
        print("\n".join(map(markup.plain_text, tables)))
        return
    for records in sorted((PROJECT / "results").rglob(f"{RECORDS}.gz")):
        run = records.parent
        derived.write(run, without_loops=(run / "table_without_loops.json").exists())
        print(f"derived: {relative(str(run))}", flush=True)
    for filled in embed.fill_pages() if IS_CHECKOUT else ():
        print(f"tables filled: {filled.name}")


def compare(
    folder: Annotated[Path, typer.Argument(help="folder of a run")],
    a: Annotated[str, typer.Argument(help="folder of another run; or a method")],
    b: Annotated[str | None, typer.Argument(help="the method that it is compared with")] = None,
    output: Annotated[Path | None, typer.Option(help="of two runs: folder to write the table to")] = None,
) -> None:
    """Compare two runs: the differences in settings, code and machine, and for each method the ratio of its speeds and
    of its accept lengths, the second run over the first, with intervals paired by question. Or two methods of one run.

      ngram-trie compare results/local/before results/local/after
      ngram-trie compare results/table1/tiny blend suffix
    """
    from ngram_trie.report import compare as compared
    from ngram_trie.report import markup
    from ngram_trie.report.run_folder import RunFolder

    if b is not None and output:
        raise ConfigError("--output: a comparison of two methods is only printed; leave it out")
    if b is not None:
        print(compared.methods(RunFolder(folder), a, b))
        return
    one, other = RunFolder(folder), RunFolder(Path(a))
    for run in (one, other):
        if not (run.path / "manifest.json").exists():
            raise ConfigError(f"{run.path}: not a run: it has no manifest.json")
    numbers = compared.numbers(one, other)
    tables = compared.tables(one, other, numbers)
    print(compared.settings_text(one, other), end="\n\n")
    print(markup.plain_text(markup.write(output, numbers, tables) if output else tables))


def report(
    results: Annotated[Path, typer.Option(help="folder to gather")] = PROJECT / "results",
    local: Annotated[bool, typer.Option("--local", help="also its folder local/, your own runs")] = False,
    output: Annotated[Path | None, typer.Option(help="the page; default: report.html there, or in local/")] = None,
) -> None:
    """Write results/report.html: every table and figure under results/ on one page, which needs no other file.

    With --local the page is results/local/report.html. `ngram-trie derive` derives the tables of one run.

      ngram-trie report --local
    """
    from ngram_trie.report.page import LOCAL

    print(write_report(results, output or results / (LOCAL if local else "") / "report.html", local))


def write_report(results: Path, output: Path, local: bool = False) -> str:
    """Write the page; returns a line on what it holds."""
    from ngram_trie.report.page import page
    from ngram_trie.report.render import report_page

    away = os.path.relpath(results, output.absolute().parent)
    context = page(results, local, "" if away == "." else f"{Path(away).as_posix()}/")
    count = sum(len(part) for _, part in context["sections"])
    return f"{_write(report_page(context), output)}: {count} folders"


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
    output: Annotated[Path, typer.Option(help="the page; as .json what it shows, which a report takes up")] = PROJECT
    / "results"
    / "local"
    / "explorer.html",
) -> None:
    """Write one page that steps through a recorded answer, with up to three drafters side by side.

    The drafters must read only tokens. Without --question the page shows the
    answer of median accept length in its data set, under the first drafter.

      ngram-trie explore TRACES --method "ngram_trie num_draft=8" --method "blend num_draft=8" --question ID
    """
    from ngram_trie.bench.traces import read_traces
    from ngram_trie.cli.recordings import TINY_MODEL, choose_trace, decoder, recall, replayable
    from ngram_trie.report import explorer
    from ngram_trie.report.render import explorer_page

    if len(method) > MAX_COUNT:
        raise ConfigError(f"--method: {len(method)} methods; at most {MAX_COUNT} can be shown side by side")
    recorded = read_traces(traces)
    drafters = {name: replayable(name, traces) for name in method}
    trace = choose_trace(recorded, drafters[method[0]], dataset, question)
    drafters = {name: recall(drafter, recorded, trace) for name, drafter in drafters.items()}
    own = str(TINY_MODEL) if trace.model == "tiny" else None
    shown = explorer.explore(trace, drafters, decoder(tokenizer or own))
    is_data = output.suffix == ".json"
    print(_write(json.dumps(shown, separators=(",", ":")) + "\n" if is_data else explorer_page(shown), output))


def _write(text: str, path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return f"written: {path} ({len(text.encode()) / 1e6:.1f} MB)"
