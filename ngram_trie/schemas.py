"""What a run's configuration may hold: the fields of configs/config.yaml, their types and ranges."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, NonNegativeFloat, PositiveInt, model_validator
from pydantic.dataclasses import dataclass

Kind = Literal["paragraph", "passages"]


class _Fields(BaseModel):
    """No field beside these, and no conversion: "8" is no integer."""

    model_config = ConfigDict(strict=True, extra="forbid")


def _named(path: object) -> object:
    if path is None:
        raise ValueError("give a GGUF file, a folder with a model, or a hub id")
    return path


class Model(_Fields):
    """`model=`: a target, in configs/model."""

    name: str
    path: Annotated[str, BeforeValidator(_named)]
    revision: str | None
    dtype: Literal["float32", "bfloat16", "float16"]
    device: str
    attention: Literal["sdpa", "eager"]
    weights: Literal["pretrained", "random"]
    architecture: str
    context_limit: PositiveInt | None
    stop_strings: list[str]
    stop_ids: list[int]
    chat_template: str | None
    tokenizer: dict[str, Any]
    licence: str = ""
    gated: bool = False
    download_gb: NonNegativeFloat = 0.0
    synthetic: bool = False


def _given(traces: object) -> object:
    if not traces:
        raise ValueError("give a file of recorded answers; a live run writes traces.jsonl to its folder")
    return traces


Traces = Annotated[str, BeforeValidator(_given)]


class Live(_Fields):
    """`engine=live`: forwards of the target."""

    name: Literal["live"]
    max_draft: PositiveInt
    verify: Literal["tree", "rows"]
    backend: Literal["auto", "stock", "static", "packed"]
    num_threads: PositiveInt | None

    @model_validator(mode="after")
    def rows_are_stock(self) -> Self:
        if self.verify == "rows" and self.backend in ("static", "packed"):
            raise ValueError(f"backend={self.backend} verifies trees; verify=rows needs backend=stock or auto")
        return self


class Forced(Live):
    """`engine=forced`: forwards of the target along recorded answers."""

    name: Literal["forced"]  # type: ignore[assignment]
    traces: Traces
    categories: list[str] | None
    parity: Literal["odd", "even"] | None


class Replay(_Fields):
    """`engine=replay`: recorded answers without a target."""

    name: Literal["replay"]
    max_draft: PositiveInt
    draft_in_prefill: bool
    num_jobs: PositiveInt | None
    traces: Traces
    categories: list[str] | None
    parity: Literal["odd", "even"] | None


class Published(_Fields):
    """`budget=published`: the methods' own sizes."""

    rule: Literal["published"]


class Equal(_Fields):
    """`budget=equal`: the same number of nodes for all."""

    rule: Literal["equal"]
    num_nodes: PositiveInt


class Auto(_Fields):
    """`budget=auto`: what pays, by constants from a file (`scripts.fit_budgets`)."""

    rule: Literal["auto"]
    max_nodes: PositiveInt
    constants: str


class Measure(_Fields):
    """`measure=`: how often and how long answers are."""

    repeats: PositiveInt
    sessions: PositiveInt
    session_pause_s: NonNegativeFloat
    max_new_tokens: PositiveInt
    share_prefill: bool
    truncation: Literal["fail", "end", "middle"]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class NoiseSettings:
    """`noise=`: how contexts are made noisy.

    Attributes:
        kinds: "paragraph", unrelated text behind what tries are built from, as in the paper's released code;
            "passages", unrelated passages in the context.
        share: of a context with "passages", how much is noise; at least 0, below 1.
        seed: which passages, and where they go.
    """

    kinds: list[Kind]
    share: Annotated[float, Field(strict=True, ge=0, lt=1)] = 0.3
    seed: Annotated[int, Field(strict=True)] = 0


class Run(_Fields):
    """All of configs/config.yaml. Fields of methods, data sets and costs are checked by the classes they name."""

    model: Model
    dataset: dict[str, Any]
    datasets: dict[str, dict[str, Any]]
    method: dict[str, Any]
    methods: dict[str, dict[str, Any]]
    engine: Annotated[Live | Replay | Forced, Field(discriminator="name")]
    budget: Annotated[Published | Equal | Auto, Field(discriminator="rule")]
    shape: Literal["tree", "chain"]
    cost: dict[str, Any]
    measure: Measure
    grid: dict[str, list[Any]] | None
    noise: NoiseSettings | None
    paper_tables: list[int]
    output: str | None
    force: bool
    samples: bool
    log: Literal["mlflow", "wandb", "tensorboard", "trackio"] | None
    dry_run: bool
    likely: PositiveInt | None

    @model_validator(mode="after")
    def one_source_of_methods(self) -> Self:
        if self.grid and self.methods:
            raise ValueError("grid: it varies the one method; an experiment with methods of its own has none")
        if self.grid and self.budget.rule != "published":
            raise ValueError("grid: its cells have sizes of their own; give budget=published")
        return self


class Bounds(_Fields):
    """`bound=`: which answers goodput counts."""

    ttft_ms: Annotated[float, Field(gt=0)]
    tpot_ms: Annotated[float, Field(gt=0)]


class ServerRun(_Fields):
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
