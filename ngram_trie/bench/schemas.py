"""What a run's configuration may hold: the fields of configs/config.yaml, their types and ranges."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from ngram_trie.data.noise import NoiseSettings


class _Fields(BaseModel):
    """No field beside these, and no conversion: "8" is no integer. Nothing is written to it."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Whole(_Fields):
    """A whole configuration."""

    #: What it was made of, as it was written: 0 stays 0, no default is filled in. Identities are hashes of it.
    plain: dict[str, Any] = Field(alias="*")  # no setting is called so

    @model_validator(mode="before")
    @classmethod
    def keep(cls, plain: dict[str, Any]) -> dict[str, Any]:
        return {"*": plain, **plain}

    @model_validator(mode="after")
    def names_of_their_own(self) -> Self:
        names = {key: part.get("name", key) for key, part in self.plain["datasets"].items()}
        if twice := [key for key, name in names.items() if list(names.values()).count(name) > 1]:
            one, other = twice[:2]
            raise ValueError(f"datasets.{one}, {other}: both are called {names[one]}; give datasets.{other}.name=NAME")
        return self


#: Ranges: what is drafted in a step, how often and how long something is done, and processes and threads.
Nodes = Annotated[int, Field(gt=0, le=1 << 13)]
Length = Annotated[int, Field(gt=0, le=1 << 20)]
Times = Annotated[int, Field(gt=0, le=1000)]
Workers = Annotated[int, Field(gt=0, le=1024)]


def _plain(name: str) -> str:
    # files and folders are named after it
    if not name.strip() or name.startswith(".") or not name.isprintable() or set(name) & set("/\\"):
        raise ValueError("must be a plain name: no slash, no dot in front")
    return name


Name = Annotated[str, AfterValidator(_plain)]


class Part(BaseModel):
    """What `_target_` builds; its other fields are checked by that."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)
    target: str = Field(alias="_target_")


class NamedPart(Part):
    """A method or a data set."""

    name: Name


def _folder(path: str) -> str:
    if not path:
        raise ValueError("must be a folder, or null for one named after the run")
    return path


def _device(name: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name):
        raise ValueError("must be auto, cpu, cuda, cuda:N or mps")
    return name


def _tokenizer_options(options: dict[str, Any]) -> dict[str, Any]:
    if "trust_remote_code" in options:
        raise ValueError("trust_remote_code: no code of a checkpoint is run")
    return options


def _named(path: object) -> object:
    if path in (None, ""):
        raise ValueError("give a GGUF file, a folder with a model, or a hub id")
    return path


class Model(_Fields):
    """`model=`: a target, in configs/model."""

    name: Name
    path: Annotated[str, BeforeValidator(_named)]
    revision: str | None
    dtype: Literal["float32", "bfloat16", "float16"]
    device: Annotated[str, AfterValidator(_device)]
    attention: Literal["sdpa", "eager"]
    weights: Literal["pretrained", "random"]
    architecture: str
    context_limit: Annotated[int, Field(gt=0)] | None
    stop_strings: list[str]
    stop_ids: list[NonNegativeInt]
    chat_template: str | None
    tokenizer: Annotated[dict[str, Any], AfterValidator(_tokenizer_options)]
    licence: str = ""
    gated: bool = False
    download_gb: Annotated[FiniteFloat, Field(ge=0)] = 0.0
    synthetic: bool = False


def _given(traces: object) -> object:
    if not traces:
        raise ValueError("give a file of recorded answers; a live run writes traces.jsonl to its folder")
    return traces


Traces = Annotated[str, BeforeValidator(_given)]


class Live(_Fields):
    """`engine=live`: forwards of the target."""

    name: Literal["live"]
    max_draft: Nodes
    verify: Literal["tree", "rows"]
    backend: Literal["auto", "stock", "cuda_graph", "cpu"]
    num_threads: Workers | None

    @model_validator(mode="after")
    def rows_are_stock(self) -> Self:
        if self.verify == "rows" and self.backend in ("cuda_graph", "cpu"):
            raise ValueError(f"backend={self.backend} verifies trees; verify=rows needs backend=stock or auto")
        return self


class TeacherForced(Live):
    """`engine=teacher_forced`: forwards of the target along recorded answers."""

    name: Literal["teacher_forced"]  # type: ignore[assignment]
    traces: Traces
    categories: list[str] | None
    parity: Literal["odd", "even"] | None


class Replay(_Fields):
    """`engine=replay`: recorded answers without a target."""

    name: Literal["replay"]
    max_draft: Nodes
    draft_in_prefill: bool
    num_jobs: Workers | None
    traces: Traces
    categories: list[str] | None
    parity: Literal["odd", "even"] | None


class Published(_Fields):
    """`budget=published`: the methods' own sizes."""

    rule: Literal["published"]


class Equal(_Fields):
    """`budget=equal`: the same number of nodes for all."""

    rule: Literal["equal"]
    num_nodes: Nodes


class Auto(_Fields):
    """`budget=auto`: an adaptive draft length (`ngram_trie.budget.adaptive`)."""

    rule: Literal["auto"]
    max_nodes: Nodes
    num_nodes: Nodes | None


class Measure(_Fields):
    """`measure=`: how often and how long answers are."""

    repeats: Times
    sessions: Times
    session_pause_s: Annotated[FiniteFloat, Field(ge=0, le=7 * 86400)]
    max_new_tokens: Length
    share_prefill: bool
    truncation: Literal["fail", "end", "middle"]


class Run(_Whole):
    """All of configs/config.yaml. Fields of methods, data sets and costs are checked by the classes they name."""

    model: Model
    dataset: NamedPart
    datasets: dict[Name, NamedPart]
    method: NamedPart
    methods: dict[Name, NamedPart]
    engine: Annotated[Live | Replay | TeacherForced, Field(discriminator="name")]
    budget: Annotated[Published | Equal | Auto, Field(discriminator="rule")]
    shape: Literal["tree", "chain"]
    cost: Part
    measure: Measure
    grid: dict[str, list[Any]] | None
    noise: NoiseSettings | None
    paper_tables: list[Literal[1, 2, 3, 4, 5, 6]]
    output: Annotated[str, AfterValidator(_folder)] | None
    shard: Annotated[str, Field(pattern=r"^(auto|\d+/[1-9]\d*)$")] | None
    force: bool
    samples: bool
    dry_run: bool

    @property
    def live(self) -> Live:
        """The settings of an engine that runs the model; a ValueError where it runs none."""
        if isinstance(self.engine, Replay):
            raise ValueError("engine=replay runs no model; give engine=live")
        return self.engine

    @model_validator(mode="after")
    def one_source_of_methods(self) -> Self:
        if self.grid == {}:
            raise ValueError("grid={}: must have a field with values, or be null")
        if self.grid and self.methods:
            raise ValueError("grid: it varies the one method; an experiment with methods of its own has none")
        if self.grid and self.budget.rule != "published":
            raise ValueError("grid: its cells have sizes of their own; give budget=published")
        return self


class Bounds(_Fields):
    """`bound=`: which answers goodput counts."""

    ttft_ms: Annotated[float, Field(gt=0)]
    tpot_ms: Annotated[float, Field(gt=0)]


class ServerRun(_Whole):
    """All of configs/server.yaml. Fields of data sets are checked by the classes they name."""

    model: Model
    dataset: dict[str, Any]
    datasets: dict[str, dict[str, Any]]
    servers: dict[str, str] | None
    endpoint: Literal["completions", "chat"]
    server_model: str | None
    concurrency: list[PositiveInt]
    rates: list[Annotated[float, Field(gt=0)]]
    rounds: PositiveInt
    max_new_tokens: PositiveInt
    warmup: PositiveInt
    timeout_s: Annotated[float, Field(gt=0)]
    bound: Bounds
    output: str | None
    force: bool

    @model_validator(mode="after")
    def something_to_do(self) -> Self:
        if not self.servers:
            raise ValueError("servers: give at least one, 'servers={mine: http://127.0.0.1:8000/v1}'")
        if not self.concurrency and not self.rates:
            raise ValueError("concurrency=[]: give a load, concurrency=[1] or rates=[0.5]")
        return self
