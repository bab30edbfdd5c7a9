"""The paper's Tables 1 and 4 with the paper's models and data, from nothing: what they need, in which order they are
made, and how one table grows from several runs.

What needs least comes first: Spec-Bench and HAGRID with the methods that need no datastore; then those with one, beside
a vanilla of their own; TriviaQA last, whose passages come from an index over Wikipedia. A method or data set that
cannot be had, does not fit or fails says so in the table, and ends nothing else.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from huggingface_hub import constants
from omegaconf import DictConfig, OmegaConf

from ngram_trie.bench import config as configuration
from ngram_trie.bench import parts, room
from ngram_trie.bench.records import is_sealed
from ngram_trie.bench.schemas import Run
from ngram_trie.cli import plan
from ngram_trie.cli.app import INTERRUPTED, call
from ngram_trie.cli.estimate import WEIGHTS_GB
from ngram_trie.cli.overrides import composed, layered, parse
from ngram_trie.cli.plan import Need, Room, hub_need, url_need
from ngram_trie.data.documents import SHAREGPT
from ngram_trie.data.sources import cache_folder
from ngram_trie.drafter import Drafter
from ngram_trie.methods import ConfigError
from ngram_trie.report import derive
from ngram_trie.store.files import CONFIGS, PROJECT, relative
from ngram_trie.targets.hub import fetch

LOCAL = PROJECT / "results" / "local"
#: Where TriviaQA's passages are, for all models.
TRIVIAQA = LOCAL / "triviaqa"
SHAREGPT_ID = "Aeala/ShareGPT_Vicuna_unfiltered"
#: Gigabytes of what is built: vectors and index over Wikipedia, its text as the library `datasets` keeps it, a
#: datastore and results. The vectors and the text are of no use once the passages are found.
INDEX_GB, TEXT_GB, STORE_GB, RESULTS_GB = 45.0, 18.0, 2.0, 0.5
#: Hours on an RTX 4090, by arithmetic: 21 million passages; a search and 82 questions reranked; a datastore, on any
#: machine; an answer of a model of 13.5 GB with up to 1,024 tokens.
ENCODING, RETRIEVAL, STORE, ANSWER, ANSWER_GB = 8.0, 0.5, 0.35, 2.5 / 3600, 13.5
#: Prompts of a data set without a limit.
PROMPTS = 80


@dataclass(frozen=True)
class Step:
    """Something that is done.

    Attributes:
        about: what, in words.
        hours: how long it may take.
        command: arguments of `python -m`; empty for weights, which are fetched here.
        done: a file that says that it was done; a run knows by itself.
        part: of a run, its place in the table.
        leaves_out: methods that a failure leaves out.
        dataset: data set that a failure leaves out.
    """

    about: str
    hours: float
    command: tuple[str, ...] = ()
    done: Path | None = None
    part: parts.Part | None = None
    leaves_out: tuple[str, ...] = ()
    dataset: str = ""

    @property
    def is_done(self) -> bool:
        return bool(self.done and self.done.exists()) or bool(self.part and is_sealed(self.part.folder))


@dataclass
class Road:
    """A table of one model.

    Attributes:
        table: 1 or 4.
        model: a name in configs/model.
        settings: FIELD=VALUE, of runs and of the retrieval.
        output: where the table goes; None for the experiment's own place.
        sessions: how often everything is measured.
        anyway: go on without a GPU, and without what does not answer.
        left_out: of methods and data sets, why they are not in the table.
    """

    table: int
    model: str
    settings: Sequence[str] = ()
    output: Path | None = None
    sessions: int = 1
    anyway: bool = False
    left_out: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        retrieval = OmegaConf.load(CONFIGS / "retrieval.yaml")
        fields = {str(name) for name in retrieval} | {"corpus", "encoder", "reranker"}
        self.for_retrieval, self.for_runs = list[str](), [f"measure.sessions={self.sessions}"] * (self.sessions > 1)
        for text, override in zip(self.settings, parse(self.settings), strict=True):
            root = override.key_or_group.partition(".")[0]
            if root in ("output", "folder", "batch_size", "hydra"):
                instead = {"output": "OUTPUT=FOLDER", "batch_size": "encoder.batch_size or reranker.batch_size"}
                raise ConfigError(f"{text}: give {instead.get(root, 'another place by a link: it has one of its own')}")
            is_ours = root in fields and root != "force"  # which a run has, too
            (self.for_retrieval if is_ours else self.for_runs).append(text)

    @cached_property
    def experiment(self) -> list[str]:
        """Of a run with everything: which experiment, and its settings."""
        own = f"table{self.table}_{self.model}"
        name = own if (CONFIGS / "experiment" / f"{own}.yaml").exists() else f"table{self.table}_paper"
        return [f"experiment={name}", f"model={self.model}", *self.for_runs]

    @cached_property
    def run(self) -> Run:
        """One with everything."""
        run = composed(self.experiment)
        for name in ("methods", "datasets"):
            if not run.plain[name]:
                raise ConfigError(f"{name}: none is left")
        return run

    @cached_property
    def datasets(self) -> dict[str, dict[str, Any]]:
        """The fields of each."""
        return dict(self.run.plain["datasets"])

    @cached_property
    def retrieval(self) -> DictConfig:
        """Of TriviaQA's passages: as many questions as are asked and warmed up on."""
        return layered([*self.for_retrieval, *self.questions], "retrieval")

    @cached_property
    def questions(self) -> list[str]:
        asked = [text for text in self.for_retrieval if text.startswith("questions.limit=")]
        own = self.datasets.get("triviaqa")
        return [] if asked or not own or not own["limit"] else [f"questions.limit={own['limit'] + own['warmup']}"]

    @cached_property
    def folder(self) -> Path:
        return Path(self.output or str(self.run.output)).absolute()

    @cached_property
    def methods(self) -> dict[str, Any]:
        return configuration.build_all(self.run, "method")

    @cached_property
    def stored(self) -> list[str]:
        """The methods that draft from a datastore."""
        return [name for name, method in self.run.plain["methods"].items() if method.get("datastore")]

    @cached_property
    def store(self) -> Path:
        folders = {str(self.run.plain["methods"][name]["datastore"]) for name in self.stored}
        if len(folders) > 1:
            raise ConfigError(f"datastore: {', '.join(self.stored)} must have the same one, not {len(folders)}")
        return Path(folders.pop())

    @cached_property
    def late(self) -> list[str]:
        """The data sets whose passages are retrieved here."""
        own = str(TRIVIAQA / "contexts.jsonl")
        return [name for name, dataset in self.datasets.items() if str(dataset.get("path")) == own]

    # what it needs

    def needs(self) -> list[Need]:
        """Everything that is read, looked up where it lies."""
        model, looks = self.run.model, list[Callable[[], Need]]()
        need = Need("the model", model.path, model.download_gb)
        looks.append(partial(hub_need, need, model.revision, licence=model.licence))
        for name, method in self.methods.items():
            for path, revision in method.weights().items() if isinstance(method, Drafter) else ():
                looks.append(partial(hub_need, Need(name, path, WEIGHTS_GB.get(path, 0.0), methods=(name,)), revision))
        if self.stored and not (self.store / "header.json").exists():
            need = Need("ShareGPT, a datastore's text", SHAREGPT_ID, 0.7, methods=tuple(self.stored))
            looks.append(partial(hub_need, need, None, "dataset", SHAREGPT))
        by_url: dict[tuple[str, str], list[str]] = {}
        for name, dataset in self.datasets.items():
            if dataset.get("url") and not dataset.get("path") and dataset["checksum"]:
                by_url.setdefault((dataset["url"], dataset["checksum"]), []).append(name)
            if dataset.get("hub") and not dataset.get("path"):
                need = Need(f"{name}'s questions", dataset["hub"], 0.1, datasets=(name,))
                file = f"hagrid-v1.0-en/{dataset['split']}.jsonl" if name == "hagrid" else ""
                looks.append(partial(hub_need, need, dataset["revision"], "dataset", file))
        for (url, checksum), names in by_url.items():
            looks.append(partial(url_need, Need("Spec-Bench's questions", url, 0.0, datasets=tuple(names)), checksum))
        if self.late and not (TRIVIAQA / "recall.csv").exists():
            looks += self._retrieval_needs()
        return plan.looked_up(looks)

    def _retrieval_needs(self) -> Iterator[Callable[[], Need]]:
        corpus, questions = self.retrieval.corpus, self.retrieval.questions
        late = tuple(self.late)
        if not corpus.path:
            need = Need("Wikipedia's passages", corpus.url, 4.7, datasets=late)
            yield partial(url_need, need, f"md5:{corpus.md5}")
        for part in ("encoder", "reranker"):
            if self.retrieval[part].get("path"):
                need = Need(f"the {part}", self.retrieval[part].path, 2.3, datasets=late)
                yield partial(hub_need, need, self.retrieval[part].get("revision"))
        if not questions.path:
            need = Need("TriviaQA's questions", questions.hub, 0.1, datasets=late)
            file = f"{questions.subset}/{questions.split}-"
            yield partial(hub_need, need, questions.revision, "dataset", file)

    def rooms(self) -> list[Room]:
        """What is written beside downloads."""
        from datasets import config as datasets_config

        found = [Room("results", self.folder, RESULTS_GB, RESULTS_GB)]
        if self.stored and not (self.store / "header.json").exists():
            found.append(Room("the datastore", self.store, STORE_GB, STORE_GB))
        if self.late and not (TRIVIAQA / "recall.csv").exists():
            there = sum(file.stat().st_size for file in (LOCAL / "retrieval").rglob("*") if file.is_file()) / 1e9
            found.append(Room("vectors and index of Wikipedia", LOCAL / "retrieval", max(0.0, INDEX_GB - there)))
            found.append(Room("Wikipedia's text, unpacked", Path(datasets_config.HF_DATASETS_CACHE), TEXT_GB))
        return found

    # how it is made

    def steps(self) -> list[Step]:
        """Everything, in order, done or not."""
        factor = plan.gpu_factor(plan.gpu()[0])
        there = [name for name in self.datasets if name not in self.left_out]
        early, late = ([name for name in there if (name in self.late) == is_late] for is_late in (False, True))
        plain = [name for name in self.run.methods if name not in self.stored]
        stored = [name for name in self.stored if name not in self.left_out]
        found = [Step("weights of the model and its methods", 0.0)]
        if early:
            found.append(self._run("first", "first table", early, plain, factor))
        if stored:
            copy = ["--copy", self.run.model.path] if Path(self.run.model.path).is_dir() else []
            command = ["build_datastore", "--dataset", SHAREGPT_ID, "--file", SHAREGPT, "--tokenizer", self.model]
            found.append(Step(
                "a datastore of ShareGPT", STORE, ("scripts." + command[0], *command[1:], *copy, "--output",
                str(self.store)), self.store / "header.json", leaves_out=tuple(stored),
            ))  # fmt: skip
            if early:
                found.append(self._run("store", "methods with a datastore", early, stored, factor, self.sessions))
        if late:
            given, done = tuple(self.for_retrieval), TRIVIAQA / "recall.csv"
            found.append(Step(
                "Wikipedia's passages as vectors, and an index", ENCODING * factor, ("scripts.build_index", *given),
                done, dataset=late[0],
            ))  # fmt: skip
            command = ["scripts.retrieve", *given, *self.questions, f"output={TRIVIAQA}"]
            found.append(Step("TriviaQA's passages", RETRIEVAL, tuple(command), done, dataset=late[0]))
            found.append(self._run("triviaqa", "TriviaQA", late, plain, factor))
            if stored:
                about = "TriviaQA, methods with a datastore"
                found.append(self._run("triviaqa-store", about, late, stored, factor, self.sessions))
        return found

    def _run(
        self, name: str, about: str, datasets: Sequence[str], methods: Sequence[str], factor: float, session: int = 0
    ) -> Step:
        run, kept = self.run, [method for method in methods if method not in self.left_out]
        without = [f"~methods.{other}" for other in run.methods if other not in kept and other != "vanilla"]
        without += [f"~datasets.{other}" for other in run.datasets if other not in datasets]
        noises = 1 + (len(run.noise.kinds) if run.noise else 0)
        prompts = sum(self.datasets[each]["limit"] or PROMPTS for each in datasets) * noises
        answers = prompts * len({"vanilla", *kept}) * run.measure.repeats * run.measure.sessions
        hours = answers * ANSWER * factor * max(run.model.download_gb, 1.0) / ANSWER_GB
        folder = self.folder / "parts" / name
        command = ("scripts.run", *self.experiment, *without, f"output={folder}")
        has_stored = bool(set(kept) & set(self.stored))
        return Step(
            f"{about}: {', '.join(datasets)}; {len(kept)} methods, {answers:,} answers", hours, command,
            part=parts.Part(folder, session), leaves_out=tuple(self.stored) if has_stored else (),
            dataset=datasets[0] if datasets == self.late else "",
        )  # fmt: skip

    # its life

    def go(self, dry_run: bool) -> int:
        """Show the plan; then carry it out, unless something is in the way.

        Returns:
            The first status of a step that failed, or 0.

        Raises:
            ConfigError: something is in the way; the message says what to do.
        """
        self._check_retrieval()
        parts.check(self.folder)
        needs, rooms = self.needs(), self.rooms()
        stops = list(self._choose(needs))
        memory = plan.gpu()[1]
        on_gpu = plan.is_on_gpu(self.run.model.device)
        sizes = {
            need.methods[0]: need.gigabytes
            for need in needs
            if len(need.methods) == 1 and need.methods[0] not in self.left_out
        }
        target = needs[0].gigabytes or self.run.model.download_gb
        if on_gpu:
            self.left_out |= room.left_out(sizes, target, memory)
        needs = [
            replace(need, state="left out") if need.state in plan.FETCHED and self._is_left_out(need) else need
            for need in needs
        ]
        taken = target + room.CACHE_GB + sum(size for each, size in sizes.items() if each not in self.left_out)
        caches = {"hub": Path(constants.HF_HUB_CACHE), "plain": cache_folder()}
        stops += plan.short_of_disk(needs, rooms, caches)
        steps = self.steps()
        if not on_gpu:
            stops.append("no GPU that torch sees, and a model of this size takes days on a CPU")
        elif target + room.CACHE_GB > memory:
            stops.append(f"{self.run.model.name} needs {target + room.CACHE_GB:.0f} GB of GPU memory")
        if target > plan.ram()[0]:
            stops.append(f"the model's {target:.0f} GB are read through memory, and there are {plan.ram()[0]:.0f} GB")
        self._show(needs, rooms, steps, f"{plan.gpu_line()}; this selection takes {taken:.1f} GB of its memory")
        if dry_run:
            for why in stops:
                print(f"In the way: {why}")
            return 0
        if stops and not self.anyway:
            raise ConfigError(
                f"{'; '.join(stops)}. ANYWAY=1 goes on all the same, ARGS=--dry-run prints this plan alone"
            )
        return self._carry_out(steps)

    def _is_left_out(self, need: Need) -> bool:
        """Whether everything that needs it is left out."""
        return bool(need.methods or need.datasets) and {*need.methods, *need.datasets} <= self.left_out.keys()

    def _check_retrieval(self) -> None:
        """Raises:
        ConfigError: TriviaQA's passages were found with other settings.
        """
        note = TRIVIAQA / "settings.txt"
        if self.late and (TRIVIAQA / "recall.csv").exists():
            found = note.read_text(encoding="utf-8").splitlines() if note.exists() else []
            if found != [*self.for_retrieval, *self.questions] and (self.for_retrieval or found):
                raise ConfigError(
                    f"{relative(str(TRIVIAQA))} was made with other settings ({' '.join(found) or 'none'}): give the "
                    "same ones, delete it, or take it as it is: datasets.triviaqa.path=FILE"
                )
        elif self.late:
            _ = self.retrieval

    def _choose(self, needs: Sequence[Need]) -> Iterator[str]:
        """Leave out what cannot be had; yields what is in the way. What does not answer may be had later: the plan has
        it, unless the run goes on without it.
        """
        for need in needs:
            if need.state not in ("REFUSED", "NO ANSWER"):
                continue
            if need.state == "REFUSED" or self.anyway:
                for name in need.methods or need.datasets:
                    self.left_out.setdefault(name, f"{need.source}: {need.says}")
            if not need.methods or need.state == "NO ANSWER":
                yield f"{need.source}: {need.says}"

    def _show(self, needs: Sequence[Need], rooms: Sequence[Room], steps: Sequence[Step], gpu: str) -> None:
        fetched = sum(need.gigabytes for need in needs if need.state in plan.FETCHED)
        written, kept = sum(room.gigabytes for room in rooms), sum(room.keep for room in rooms)
        left = [step for step in steps if not step.is_done]
        total, free = plan.ram()
        hours = sum(step.hours for step in left)
        rows = [
            (str(number), step.about, "done" if step.is_done else plan.hours(step.hours))
            for number, step in enumerate(steps, 1)
        ]
        sums = [
            ("to fetch", f"{fetched:.1f} GB", f"{plan.hours(fetched * plan.HOURS_PER_GB)} at 100 Mbit/s"),
            ("to write", f"{written:.1f} GB", f"{kept:.1f} GB of it are of use afterwards"),
            ("hours", f"{hours:.1f}", "by arithmetic for an RTX 4090, scaled by memory bandwidth; not measured"),
        ]
        plan.show(
            f"Table {self.table} of {self.run.model.name}: the plan, for which nothing is fetched.",
            {
                "Needs": [*plan.need_rows(needs)],
                "Machine": [("GPU", gpu), ("RAM", f"{total:.0f} GB, {free:.0f} GB free")],
                "Written": [(room.what, f"{room.gigabytes:.1f} GB", str(room.folder)) for room in rooms],
                "Left out": [*self.left_out.items()],
                "Steps": rows,
                "Sum": sums,
            },
        )
        print(f"Results: {relative(str(self.folder))}")
        for step in left:
            if step.command:
                print(f"   python -m {shlex.join(step.command)}")

    def _carry_out(self, steps: Sequence[Step]) -> int:
        """Do what is not done, in order. What fails leaves out what needs it, and the rest goes on."""
        first, runs = 0, [step for step in steps if step.part]
        for number, step in enumerate(steps, 1):
            lost = step.dataset in self.left_out or (step.leaves_out and set(step.leaves_out) <= self.left_out.keys())
            if (step.is_done and not step.part) or lost:
                continue
            takes = f" (about {plan.hours(step.hours)})" if step.hours else ""
            print(f"\n== {number} of {len(steps)}: {step.about}{takes}", flush=True)
            if not step.command:
                self._fetch()
                continue
            status = call(*step.command)
            if status < 0 or status == INTERRUPTED:
                return INTERRUPTED
            first = first or status
            if step.part and step.part.is_begun:
                if step is not runs[-1]:
                    self._join(runs, whole=False)
            elif status and step is runs[0]:
                return status
            elif status:
                reason = f"{step.about} could not be made, see what the command says"
                self.left_out |= dict.fromkeys(step.leaves_out or [step.dataset], reason)
            elif step.command[0] == "scripts.retrieve":
                made = "\n".join([*self.for_retrieval, *self.questions])
                (TRIVIAQA / "settings.txt").write_text(made, encoding="utf-8")
        self._join(runs, whole=True)
        return first

    def _fetch(self) -> None:
        """Raises:
        FileNotFoundError: the model cannot be had.
        """
        model = self.run.model
        if not Path(model.path).exists():
            fetch(model.path, model.revision)
        for name, method in self.methods.items():
            if isinstance(method, Drafter) and name not in self.left_out:
                for path, revision in method.weights().items():
                    if not Path(path).exists():
                        try:
                            fetch(path, revision)
                        except FileNotFoundError as error:
                            self.left_out[name] = str(error)

    def _join(self, runs: Sequence[Step], whole: bool) -> None:
        """The table of what was measured so far."""
        begun = [step for step in runs if step.part and step.part.is_begun]
        if not begun:
            return
        notes = dict[str, str]()
        if not whole and not any(step.leaves_out for step in begun):
            notes |= {f"not run: {name}": "its datastore comes after this table" for name in self.stored}
        if not whole and not any(step.dataset for step in begun):
            notes |= {f"missing: {name}": "it comes after this table" for name in self.late}
        for name, why in self.left_out.items():
            notes[f"{'not run' if name in self.run.methods else 'missing'}: {name}"] = why
        found = [step.part for step in runs if step.part]
        parts.join(self.folder, found, configuration.resolve(self.run), notes, whole)
        print(derive.main_tables(derive.write(self.folder)))
        print(f"written: {relative(str(self.folder))} (table.md has all tables)", flush=True)
