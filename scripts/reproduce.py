"""The papers' tables and figures, each by one command (make reproduce-table1 and its siblings)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ngram_trie.cli.app import call, one_of, run
from ngram_trie.cli.overrides import composed
from ngram_trie.cli.shorthand import model_overrides
from ngram_trie.methods import ConfigError, choices, near
from ngram_trie.store.files import PROJECT

LOCAL = "results/local"
SMALL, NGRAMMYS = f"{LOCAL}/smollm2-135m", f"{LOCAL}/ngrammys/tiny_general"
DATA = ("docs", "spec_bench", "triviaqa", "humaneval", "bfcl")
#: Data sets that are asked by an experiment of their name; any other one by itself.
EXPERIMENTS = ("docs", "spec_bench")


@dataclass(frozen=True)
class Recipe:
    """How something is made.

    Attributes:
        about: what, with the time that it takes on two cores.
        commands: arguments of `python -m scripts.` or of `ngram-trie`, with names of `Asked` in braces. What was given
            on the command line beside options goes to the last one.
        needs: recipes that go first.
        makes: the file that says that it is done; a run resumes by itself and needs none.
    """

    about: str
    commands: Sequence[str] = ()
    needs: Sequence[str] = ()
    makes: str = ""


RECIPES = {
    # what methods need
    "passages": Recipe("documentation in passages (seconds)", ["build_docs"], makes=f"{LOCAL}/docs/passages.jsonl"),
    "datastore-small": Recipe(
        "REST's datastore of the documentation (seconds)",
        [f"build_datastore {LOCAL}/docs/passages.jsonl --tokenizer smollm2_135m --output {SMALL}/datastore"],
        ["passages"],
        f"{SMALL}/datastore/header.json",
    ),
    "datastore-tiny": Recipe(
        "REST's datastore of training answers (seconds)", ["build_datastore"], makes=f"{LOCAL}/datastore/header.json"
    ),
    "ngram-tables-tiny": Recipe(
        "N-Grammys' tables (a minute)",
        ["build_ngram_tables tiny"],
        makes=f"{LOCAL}/ngram_tables/tiny/header.json",
    ),
    "recorded": Recipe(
        "recorded answers of the small model (minutes)",
        [
            "record {asked} method.num_draft=8 measure.max_new_tokens=128 model=smollm2_135m output={recorded}",
        ],
    ),
    # the paper's tables and figures
    "table1": Recipe(
        "Table 1 of SmolLM2-135M (10 to 20 minutes; ROWS=all: half an hour)",
        ["run experiment={table1_small} output={output} measure.sessions={sessions}"],
        ["datastore-small"],
    ),
    "table1-model": Recipe(
        "Table 1 of another model",
        [
            "run experiment={table1_small} {model} ~methods.rest ~methods.ngrammys_mixed"
            " +method@methods.hf_generate=hf_generate +method@methods.hf_prompt_lookup=hf_prompt_lookup"
            " output={output} measure.sessions={sessions}"
        ],
    ),
    "table1-tiny": Recipe(
        "Table 1 of the tiny model, methods with trained weights among them (20 minutes)",
        ["run experiment=table1 output={output} measure.sessions={sessions}"],
        ["datastore-tiny", "ngram-tables-tiny"],
    ),
    "table2": Recipe(
        "Tables 2, 5 and 6: speed and trie time over n x L_p (3 minutes)",
        ["run experiment=grid {source}/grid {grid_size}"],
        ["?"],
    ),
    "table3": Recipe(
        "Table 3: speed over the number of drafted tokens (a minute)",
        ["run experiment=num_draft {source}/num_draft"],
        ["?"],
    ),
    "table4": Recipe(
        "Table 4: noisy contexts (2 minutes)", ["run experiment=table4 {source}/table4 {gpu_size}"], ["?"]
    ),
    "figures": Recipe("the run behind Figures 3, 4 and 5", ["run experiment=figures {source}/figures"], ["?"]),
    "figure3": Recipe(
        "Figure 3: an answer with its drafted tokens (a minute)",
        ["case_study {answers} {folder}/figure3 {tokenizer}"],
        ["figures"],
    ),
    "figure4": Recipe("Figure 4: tokens emitted per step, accept_lengths.png of the run", needs=["figures"]),
    "figure5": Recipe(
        "Figure 5: where a step's drafting time goes (a minute)",
        ["studies.time_split {answers} {folder}/figure5"],
        ["figures"],
    ),
    # the other papers, and beyond
    "ngram-tables-general": Recipe(
        "N-Grammys' tables (2 minutes)",
        ["build_ngram_tables tiny_general"],
        makes=f"{LOCAL}/ngram_tables/tiny_general/header.json",
    ),
    "ngrammys": Recipe(
        "N-Grammys' Table 1 and Figures 1 to 5 (5 minutes)",
        [
            f"run experiment=ngrammys engine.verify=rows output={NGRAMMYS}/figure3",
            f"studies.ngrammys {NGRAMMYS}",
            *(f"{command} engine=replay engine.traces={NGRAMMYS}/rows/traces.jsonl{more}"
              for command, more in (
                (f"studies.ngrammys {NGRAMMYS}", ""),
                ("run experiment=ngrammys", f" output={NGRAMMYS}/figure5"),
                ("run experiment=ngrammys_query", f" output={NGRAMMYS}/query"),
                ("run experiment=ngrammys method=ngrammys_unigram grid.k=[1,2,5,10,15,20,25] ~grid.w",
                 f" output={NGRAMMYS}/figure2/unigram"),
                ("run experiment=ngrammys method=ngrammys_extended grid.k=[1,2,5,10,15,20,25] grid.w=[1,2,3]",
                 f" output={NGRAMMYS}/figure2/bigram"),
              )),
        ],
        ["ngram-tables-general"],
    ),
    "predictor": Recipe(
        "the n-gram predictor's expected and measured acceptance (a minute)",
        ["studies.predictor {answers} {folder}/predictor"],
        ["figures"],
    ),
    "drafters": Recipe(
        "every drafter that reads tokens, under every budget, over TRACES with the answers of STORE (minutes)",
        [
            "build_datastore {store} --output {folder}/store",
            "run {drafters} output={folder}/drafters/published",
            *(f"run {{drafters}} budget=equal budget.num_nodes={n} output={{folder}}/drafters/equal{n}"
              for n in (8, 16, 32, 64)),
            "run {drafters} budget=auto output={folder}/drafters/auto",
            "derive {folder}/drafters",
        ],
    ),
    "engines": Recipe(
        "drafters of papers and engines beside EAGLE, over TRACES, a copy of SpecDecode-Bench/simulator (half an hour)",
        [
            "run experiment=engines {replayed} budget=equal output={folder}/engines/equal32",
            "run experiment=engines {replayed} output={folder}/engines/published",
            "run experiment=engines {replayed} budget=auto output={folder}/engines/auto",
            "studies.engines {traces} {folder}/engines {folder}/engine_tables",
        ],
    ),
    "recordings": Recipe(
        "drafters over answers that others recorded as text (import_answers): TRACES, of LongBench with its rows as"
        " STORE, and their TOKENIZER (minutes)",
        [
            "import_answers {recorded_as} {tokenizer} --output {folder}/answers.jsonl --parity even",
            "run experiment=recordings engine=replay engine.traces={folder}/answers.jsonl output={folder}/recordings",
        ],
    ),
    "bench-steps": Recipe(
        "what steps of SmolLM2-135M cost on this machine, by backend (10 minutes)",
        [
            "bench_steps profile=small engine.max_draft=64 model.context_limit=2048 measure.repeats=1"
            f" output={SMALL}/calibration"
        ],
    ),
    "all": Recipe(
        "all of these, finished parts skipped (an hour)",
        needs=["table1", "table2", "table3", "table4", "figure3", "figure4", "figure5", "predictor", "ngrammys"],
    ),
}  # fmt: skip
#: Of `ngram-trie`; `run` is also a script.
COMMANDS = ("record", "derive")
#: What can be asked for; profiles other than small have recipes of their own, and that of the paper `cli.road`.
TARGETS = [name for name in RECIPES if not name.endswith(("-small", "-tiny", "-general", "-model"))]
PAPER = {"table1": 1, "table4": 4}


@dataclass(frozen=True)
class Asked:
    """What is asked for, and what follows from it for the commands of recipes, quoted as in a shell."""

    profile: str = "small"
    data: str = "docs"
    traces: Path | None = None
    store: Path | None = None
    given_tokenizer: str | None = None
    given_output: Path | None = None
    sessions: int = 1
    rows: str = "main"
    given_model: str | None = None

    @property
    def model(self) -> str:
        """Overrides for the model that was given."""
        return shlex.join(model_overrides(self.given_model)) if self.given_model else ""

    @property
    def folder(self) -> str:
        """Where results go."""
        if self.traces:
            return shlex.quote(f"{LOCAL}/{self.traces.stem}")
        if self.given_model:
            return shlex.quote(f"{LOCAL}/{composed(shlex.split(self.model)).model.name}")
        return SMALL if self.profile == "small" else LOCAL

    @property
    def of_data(self) -> str:
        return "" if self.data == "docs" else f"_{self.data}"

    @property
    def table1_small(self) -> str:
        name = f"table1_small{self.of_data}"
        return name if self.rows == "main" else f"[{name},more_methods]"

    @property
    def output(self) -> str:
        if self.given_output:
            return _quoted(self.given_output)
        return f"{replace(self, traces=None).folder}/table1{self.of_data}"

    @property
    def recorded(self) -> str:
        return f"{SMALL}/recorded_{self.data}.jsonl"

    @property
    def asked(self) -> str:
        return f"experiment={self.data}" if self.data in EXPERIMENTS else f"dataset={self.data} method=blend"

    @property
    def answers(self) -> str:
        """Recorded answers: those given, the small model's, or those that the tiny model's run leaves."""
        if self.traces:
            return _quoted(self.traces)
        return self.recorded if self.profile == "small" else f"{self.folder}/figures/traces.jsonl"

    @property
    def source(self) -> str:
        """Where a run's answers come from, up to the folder of its results."""
        if self.traces:
            return f"{self.replayed} output={self.folder}"
        if self.profile == "small":
            return f"profile=small engine=replay engine.traces={self.recorded} output={self.folder}"
        return f"profile={self.profile} output={self.folder}"

    @property
    def grid_size(self) -> str:
        """Of recorded answers the paper's 64 nodes; the experiment's 8 are for two cores."""
        return "method.num_draft=64" if self.traces else ""

    @property
    def gpu_size(self) -> str:
        return "'engine.categories=[summarization,rag]' budget.num_nodes=32" if self.traces else ""

    @property
    def tokenizer(self) -> str:
        default = "smollm2_135m" if self.profile == "small" and not self.traces else None
        name = self.given_tokenizer or default
        return f"--tokenizer {shlex.quote(name)}" if name else ""

    @property
    def recorded_as(self) -> str:
        """The kind and the files of recordings as text."""
        kind, *paths = ("longbench", self.traces, self.store) if self.store else ("tau_bench", self.traces)
        return shlex.join([kind, *map(str, paths)])

    @property
    def replayed(self) -> str:
        return f"engine=replay engine.traces={_quoted(self.traces)}"

    @property
    def drafters(self) -> str:
        return (
            f"experiment=drafters {self.replayed} engine.parity=even"
            f" methods.rest.datastore={self.folder}/store methods.sam_static.datastore={self.folder}/store"
            f" methods.blend_bigram.answers={_quoted(self.store)}"
        )

    def filled(self, text: str) -> str:
        """`text` with what stands in braces."""
        values = {name: getattr(self, name) for name in dir(self) if not name.startswith("_") and name != "filled"}
        paths = {name: _quoted(value) for name, value in values.items() if isinstance(value, Path)}
        return text.format_map(values | paths)


def _quoted(path: Path | None) -> str:
    """A path as one word of a command."""
    return shlex.quote(str(path))


def steps(name: str, asked: Asked, arguments: Sequence[str] = ()) -> Iterator[tuple[str, list[list[str]]]]:
    """What makes `name`, in order and each thing once: its recipe's `about`, and its commands.

    Args:
        arguments: more of the last command.
    """
    done: set[str] = set()

    def those(name: str, arguments: Sequence[str]) -> Iterator[tuple[str, list[list[str]]]]:
        if name == "?":
            if asked.profile != "small" or asked.traces:
                return
            name = "recorded"
        own = f"{name}-{'model' if asked.given_model else asked.profile}"
        recipe = RECIPES[own if own in RECIPES else name]
        for need in recipe.needs:
            yield from those(need, ())
        makes = asked.filled(recipe.makes)
        if name not in done and not (makes and (PROJECT / makes).exists()):
            commands = [shlex.split(asked.filled(command)) for command in recipe.commands]
            if commands:
                commands[-1] += arguments
            yield recipe.about, commands
        done.add(name)

    yield from those(name, arguments)


def check_use(target: str, asked: Asked, arguments: Sequence[str]) -> None:
    """Raises:
    ConfigError: something was given that no command of the target takes.
    """
    made, other = list(steps(target, asked, arguments)), Path("another")
    others = Asked("small", "docs", other, other, "another", other, asked.sessions + 1, "main", asked.given_model)
    for field in fields(Asked):
        value, changed = getattr(asked, field.name), dict[str, Any]({field.name: getattr(others, field.name)})
        is_given = value != field.default and field.name != "given_model"  # which is checked before
        if is_given and list(steps(target, replace(asked, **changed), arguments)) == made:
            name = field.name.removeprefix("given_").upper()
            raise ConfigError(f"{name}={value}: nothing of {target} takes it, leave it out")
    if arguments and list(steps(target, asked)) == made:
        raise ConfigError(f"{shlex.join(arguments)}: no command of {target} takes more, leave it out")


def main(
    target: Annotated[str, typer.Argument(callback=one_of(TARGETS), help=", ".join(TARGETS))],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="more for the last command: FIELD=VALUE")
    ] = None,
    profile: Annotated[
        Literal["small", "tiny", "paper"],
        typer.Option(
            envvar="PROFILE", help="SmolLM2 on real text, the tiny model on synthetic text, the paper's models"
        ),
    ] = "small",
    data: Annotated[
        str | None, typer.Option(envvar="DATA", callback=one_of(DATA), help=f"of the small profile: {', '.join(DATA)}")
    ] = None,
    traces: Annotated[Path | None, typer.Option(envvar="TRACES", help="replay these recorded answers")] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            envvar="STORE", help="of drafters: answers that preloaded methods know; of recordings: LongBench's rows"
        ),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(envvar="TOKENIZER", help="of these answers, for Figure 3 and recordings")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            envvar="MODEL",
            help="of Table 1: of the paper profile a name in configs/model, vicuna_7b without; of the small one also a "
            "folder, a GGUF file or a hub id",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(envvar="OUTPUT", help="folder of Table 1")] = None,
    rows: Annotated[
        Literal["main", "all"] | None, typer.Option(envvar="ROWS", help="of the small profile's Table 1: its methods")
    ] = None,
    sessions: Annotated[int, typer.Option(envvar="SESSIONS", min=1, help="how often all of Table 1 is measured")] = 1,
    anyway: Annotated[
        bool,
        typer.Option("--anyway", envvar="ANYWAY", help="of the paper profile: without a GPU or what has no answer"),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the commands and do nothing")] = False,
) -> None:
    """Make a table or figure of the papers, and first what it needs. Finished parts are skipped.

      python -m scripts.reproduce table1
      python -m scripts.reproduce table1 --data spec_bench datasets.spec_bench_rag.limit=2
      python -m scripts.reproduce table1 --model qwen2.5_coder_0.5b
      python -m scripts.reproduce table2 --traces FILE --dry-run
      python -m scripts.reproduce table1 --profile paper --model vicuna_7b --dry-run

    `make reproduce-TARGET` does the same and takes the options as variables: make reproduce-table1 DATA=spec_bench
    """
    if traces and not traces.exists():
        raise ConfigError(f"--traces {traces}: no such file or folder")
    if target == "drafters" and not (traces and store):
        raise ConfigError("drafters: give recorded answers and those to other questions, --traces FILE --store FILE")
    if target == "engines" and not traces:
        raise ConfigError("engines: give a copy of github SpecDecode-Bench/simulator, --traces FOLDER")
    if target == "recordings" and not (traces and tokenizer):
        raise ConfigError("recordings: give them and the tokenizer of their model, --traces FILE --tokenizer FOLDER")
    if profile == "paper":
        if target not in PAPER:
            raise ConfigError(
                f"--profile paper: for table1 and table4, not {target}; give recorded answers: --traces FILE"
            )
        others = {"DATA": data, "ROWS": rows, "TRACES": traces, "STORE": store, "TOKENIZER": tokenizer}
        for name, value in others.items():
            if value:
                raise ConfigError(
                    f"{name}={value}: not of the paper profile; leave out by ~datasets.NAME, ~methods.NAME"
                )
        from ngram_trie.cli.road import Road  # takes seconds to import

        model = model or "vicuna_7b"
        if model not in choices()["model"]:
            raise ConfigError(f"MODEL={model}: {near(model, list(choices()['model']))}")
        if composed([f"model={model}"]).model.path.endswith(".gguf"):
            raise ConfigError(f"MODEL={model}: of the small profile, leave out PROFILE=paper")
        sys.exit(Road(PAPER[target], model, arguments or [], output, sessions, anyway).go(dry_run))
    if anyway:
        raise ConfigError("ANYWAY: of PROFILE=paper, leave it out")
    if data and profile != "small":
        raise ConfigError(f"DATA={data}: not of PROFILE={profile}, leave out one of the two")
    if model == "smollm2_135m" and profile == "small":
        model = None
    if model and (target != "table1" or profile != "small" or rows == "all"):
        raise ConfigError(f"MODEL={model}: of table1 with the main rows, without PROFILE or with PROFILE=paper")
    asked = Asked(profile, data or "docs", traces, store, tokenizer, output, sessions, rows or "main", model)
    check_use(target, asked, arguments or [])
    for about, commands in steps(target, asked, arguments or []):
        print(f"== {about}", flush=True)
        for name, *options in commands:
            module = ["ngram_trie", name] if name in COMMANDS else [f"scripts.{name}"]
            print(f"   python -m {shlex.join([*module, *options])}", flush=True)
            if not dry_run and (status := call(*module, *options)):
                sys.exit(status)


if __name__ == "__main__":
    run(main)
