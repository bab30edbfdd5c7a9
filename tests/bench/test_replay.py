"""Replay: what a live run recorded gives back its steps, for every drafter that reads tokens alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.teacher_forced import MANIFEST
from support.tiny import VOCABULARY, Scripted, adversarial_tree, tiny_target

from ngram_trie.baselines.prompt_lookup import PromptLookup
from ngram_trie.bench import config, replay
from ngram_trie.bench.live import Live
from ngram_trie.bench.measure import measure
from ngram_trie.bench.records import PromptRecord, RecordKey, RecordWriter, RunManifest, read_records
from ngram_trie.bench.traces import Trace
from ngram_trie.cli.overrides import composed
from ngram_trie.decoding import GenerationResult, SpeculativeDecoder, Stop
from ngram_trie.drafter import Drafter, Traits
from ngram_trie.drafters import NgramTrieDrafter, NoDraft, ReleasedNgramTrieDrafter
from ngram_trie.prompt import Prompt
from ngram_trie.report import derive
from ngram_trie.tree import DraftTree
from scripts import run

# ---- any drafter, any model ------------------------------------------------------------------------------------------

tokens = st.integers(0, VOCABULARY - 1)
families = st.sampled_from(["llama", "qwen2"])
# Random models do not repeat themselves, but prompts do; some leave the context room for a few tokens only.
prompts = st.one_of(
    st.lists(tokens, min_size=1, max_size=24),
    st.lists(tokens, min_size=1, max_size=4).map(lambda ids: ids * 5),
    st.lists(tokens, min_size=3, max_size=8).map(lambda ids: (ids * 53)[:153]),
)
drafters = st.one_of(
    st.just(NoDraft()),
    st.builds(PromptLookup, max_ngram=st.integers(1, 3), num_draft=st.integers(1, 12), require_full=st.booleans()),
    st.builds(
        NgramTrieDrafter,
        n=st.integers(3, 13),
        prefix_len=st.integers(1, 2),
        num_draft=st.integers(1, 80),
        update_with_output=st.booleans(),
    ),
    st.builds(ReleasedNgramTrieDrafter, num_draft=st.integers(1, 64), no_match_id=tokens),
)


def recorded(family: str, prompt: Prompt, stop: Stop) -> tuple[GenerationResult, Trace]:
    """Vanilla's live answer, and the trace that a run makes of it."""
    target = tiny_target(family)
    vanilla = SpeculativeDecoder(target, NoDraft())
    result = vanilla.generate(prompt, stop)
    reason, room = result.stop_reason, min(stop.max_new_tokens, target.context_limit - len(prompt.ids))
    return result, Trace("tiny", prompt, result.output_ids, room, reason)


def check_replay_is_live(family: str, drafter: Drafter, prompt: Prompt, stop: Stop, trace: Trace) -> GenerationResult:
    target = tiny_target(family)
    live = SpeculativeDecoder(target, drafter).generate(prompt, stop)
    replayed = replay.replay(drafter, trace, target.max_draft)
    for name in ("output_ids", "accept_lengths", "tree_sizes", "stop_reason"):
        assert getattr(replayed, name) == getattr(live, name), name
    return live


@pytest.mark.slow
@given(family=families, ids=prompts, drafter=drafters, limit=st.integers(1, 30), eos=st.frozensets(tokens, max_size=2))
@settings(max_examples=30)
def test_replay_is_what_happened_live(family, ids, drafter, limit, eos) -> None:
    prompt, stop = Prompt(np.array(ids, np.int64)), Stop(limit, eos)
    _, trace = recorded(family, prompt, stop)
    check_replay_is_live(family, drafter, prompt, stop, trace)


@pytest.mark.slow
@given(
    family=families, ids=prompts, trees=st.lists(adversarial_tree(), max_size=12), eos=st.frozensets(tokens, max_size=2)
)
@settings(max_examples=30)
def test_replay_is_what_happened_live_for_any_tree(family, ids, trees, eos) -> None:
    """Trees of the true continuation with wrong tails, twins among siblings, and drafts beyond the end."""
    prompt, stop = Prompt(np.array(ids, np.int64)), Stop(24, eos)
    truth = recorded(family, prompt, Stop(34))[0].output_ids
    _, trace = recorded(family, prompt, stop)
    scripted = Scripted([lambda text, make=make: make(truth, len(text) - len(ids), text[-1]) for make in trees])
    check_replay_is_live(family, scripted, prompt, stop, trace)


def test_replay_accepts_long_drafts() -> None:
    """The properties above would hold for drafters that are never right, too."""
    prompt, stop = Prompt(np.array([1, 2, 3])), Stop(24)
    result, trace = recorded("llama", prompt, stop)
    truth = result.output_ids
    tree = lambda text: DraftTree.from_paths(text[-1], [[60, 60], truth[1:8]])  # noqa: E731
    live = check_replay_is_live("llama", Scripted([tree]), prompt, stop, trace)
    assert (live.accept_lengths[0], live.tree_sizes[0]) == (8, 9)


def trace_of(prompt: list[int], output: list[int], **about: object) -> Trace:
    return Trace("toy", Prompt(np.array(prompt, np.int64), {}, "qa", "1"), output, **about)  # type: ignore[arg-type]


def test_steps_by_hand() -> None:
    trace = trace_of([1, 2, 3, 4, 5, 6, 1], [2, 3, 4, 9, 1, 2], stop_reason="eos")
    result = replay.replay(PromptLookup(max_ngram=2, num_draft=3), trace)
    # Prefill gives 2. "1 2" was followed by 3 4 5: 3 and 4 are right, 9 comes instead of 5. After "9" no match, so a
    # plain step gives 1. "1" was followed by 2 3 4: with 2 the answer is over.
    assert (result.accept_lengths, result.tree_sizes) == ([3, 1, 1], [3, 0, 3])
    assert (result.output_ids, result.stop_reason) == ([2, 3, 4, 9, 1, 2], "eos")
    # With no room behind the answer the last drafts are cut to it.
    cut = replay.replay(PromptLookup(max_ngram=2, num_draft=3), replace(trace, max_output_tokens=6))
    assert (cut.accept_lengths, cut.tree_sizes) == ([3, 1, 1], [3, 0, 0])
    # Drafted in prefill: "6 1" has no match but "1" has, and 2 3 4 are right.
    early = replay.replay(PromptLookup(max_ngram=2, num_draft=3), trace.drafted_in_prefill())
    assert (early.accept_lengths, early.tree_sizes) == ([4, 1, 1], [3, 0, 3])


# ---- a run of many answers -------------------------------------------------------------------------------------------


def toy_traces(count: int = 45) -> dict[str, list[Trace]]:
    """Answers that repeat parts of their prompts."""
    rng = np.random.default_rng(0)
    groups: dict[str, list[Trace]] = {"qa": [], "rag": []}
    for question in range(count):
        text = rng.integers(3, 9, 60)
        dataset = ("qa", "rag")[question % 2]
        prompt = Prompt(text[:40], {"user": (1, 30)}, dataset, str(question))
        groups[dataset].append(Trace("toy", prompt, [*text[5:20].tolist(), *text[40:].tolist()]))
    return groups


METHODS = {"vanilla": NoDraft(), "pld": PromptLookup(), "ngram_trie": NgramTrieDrafter(num_draft=8, context="user")}


def engine(methods: dict[str, Drafter], groups: dict[str, list[Trace]], num_jobs: int = 1) -> replay.Replay:
    items = {trace.key: trace for part in groups.values() for trace in part}
    return replay.Replay(MANIFEST, "", methods, items, list(groups), 1, num_jobs=num_jobs)


def measured(folder: Path, groups: dict[str, list[Trace]], num_jobs: int = 1) -> list[PromptRecord]:
    folder.mkdir(exist_ok=True)
    with RecordWriter(folder / "records.jsonl", "run") as writer:
        measure(engine(METHODS, groups, num_jobs), writer)
    return list(read_records(folder / "records.jsonl"))


def untimed(records: Sequence[PromptRecord]) -> list[PromptRecord]:
    """Without the clock's readings, which differ from run to run, in the order of their keys."""
    return sorted((replace(r, seconds=None, draft_us=[]) for r in records), key=lambda r: r.key)


def test_records_hold_what_a_replay_gives(tmp_path: Path) -> None:
    groups = toy_traces(3)
    records = measured(tmp_path, groups)
    assert len(records) == len({r.key for r in records}) == 9
    by_key = {r.key: r for r in records}
    for name, drafter in METHODS.items():
        for trace in (trace for part in groups.values() for trace in part):
            record, result = by_key[RecordKey(name, *trace.key)], replay.replay(drafter, trace)
            assert record.accept_lengths == result.accept_lengths and record.tree_sizes == result.tree_sizes
            assert record.output_ids == trace.output_ids
            assert len(record.draft_us) == len(record.tree_sizes) and min(record.draft_us, default=1) >= 0
            assert record.num_prompt_tokens == 40 and record.seconds is not None
            assert (record.model, record.kind, record.state, record.failure) == ("toy", "drafter", "cold", None)
    assert max(by_key[RecordKey("ngram_trie", *groups["qa"][0].key)].accept_lengths) > 3


@pytest.mark.slow
def test_several_processes_give_what_one_gives(tmp_path: Path) -> None:
    groups = toy_traces(45)  # three jobs a method
    one, two = measured(tmp_path / "one", groups), measured(tmp_path / "two", groups, num_jobs=2)
    assert [r.key for r in one] == [r.key for r in two]  # and in the same order
    assert untimed(one) == untimed(two)


def test_an_empty_answer_becomes_a_failure(tmp_path: Path) -> None:
    groups = toy_traces(2)
    groups["qa"].insert(0, trace_of([1, 2], []))
    records = measured(tmp_path, {**groups, "none": []})
    failed = [r for r in records if r.failure]
    assert [(r.method, r.question_id, r.failure.kind) for r in failed if r.failure] == [
        (name, "1", "empty_answer") for name in METHODS
    ]
    assert len(records) == 9


class Counting(Drafter):
    """Drafts how many prompts it has met: right only if it met them all, one by one."""

    traits = Traits(state="warm")
    met = 0

    def start(self, prompt: Prompt) -> None:
        self.met += 1

    def observe(self, new_ids: Sequence[int]) -> None:
        self.last = int(new_ids[-1])

    def propose(self, budget: int) -> DraftTree:
        return DraftTree.chain(self.last, [self.met] * 5)


def test_a_drafter_that_remembers_meets_every_prompt_in_order_even_when_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = [replace(trace, output_ids=[number] * 6) for number, trace in enumerate(toy_traces(60)["qa"], 1)]
    path = tmp_path / "records.jsonl"
    jobs: list[int] = []
    replay_job = replay._replay_job

    def counted(run: str, name: str, drafter: Drafter, part: list[Trace], max_draft: int) -> list:
        jobs.append(len(part))
        return replay_job(run, name, drafter, part, max_draft)

    monkeypatch.setattr(replay, "_replay_job", counted)
    for _ in range(2):
        with RecordWriter(path, "run") as writer:
            measure(engine({"warm": Counting()}, {"qa": traces}), writer)
        records = list(read_records(path))
        assert [r.question_id for r in records] == [t.prompt.question_id for t in traces]
        assert [r.accept_lengths for r in records] == [[5]] * 30
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:27]))  # and once more from there
    assert jobs == [30, 30]  # one job each time: another process would not remember


# ---- the tiny model, live and replayed ---------------------------------------------------------------------------

TASKS = ["summarization", "rag", "open_qa", "attributed_qa"]


def test_a_drafter_that_remembers_knows_nothing_of_the_other_kind_of_noise(tmp_path: Path) -> None:
    """Also where both are replayed in one process."""
    traces = [replace(trace, output_ids=[number] * 6) for number, trace in enumerate(toy_traces(20)["qa"], 1)]
    noisy = [replace(trace, prompt=replace(trace.prompt, noise_kind="passages")) for trace in traces]
    with RecordWriter(tmp_path / "records.jsonl", "run") as writer:
        measure(engine({"warm": Counting()}, {"qa": traces, "qa+passages": noisy}), writer)
    assert [r.accept_lengths for r in read_records(tmp_path / "records.jsonl")] == [[5]] * 20


def token_only() -> list[str]:
    """All methods that there are, but for those that need a store to be built first."""
    names = sorted(path.stem for path in (config.CONFIGS / "method").glob("*.yaml"))
    methods = {name: config.build(composed([f"method={name}"]).plain["method"], name) for name in names}
    return [
        name
        for name, method in methods.items()
        if isinstance(method, Drafter) and method.traits.reads == "tokens" and method.traits.state != "preloaded"
        if all(part.exists() for part in method.parts())  # a package that is not installed
    ]


TOKEN_ONLY = token_only()
ALL_METHODS = [f"+method@methods.{name}={name}" for name in TOKEN_ONLY]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Every token-only method on a prompt of each task."""
    folder = tmp_path_factory.mktemp("live")
    tasks = [part for task in TASKS for part in (f"+dataset@datasets.{task}={task}", f"datasets.{task}.limit=1")]
    small = ["model.device=cpu", "measure.repeats=1", "measure.max_new_tokens=60", f"output={folder}"]
    warm_up = Live.warm_up

    def without_prompts(engine: Live) -> None:
        """Drafters that remember answers would know those of the warm-up, which a replay does not have."""
        engine.warmup = []
        warm_up(engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Live, "warm_up", without_prompts)
        patch.setattr(derive, "write", lambda *_: "")
        patch.setattr(derive, "main_tables", lambda *_: "")
        run.measure(composed([*ALL_METHODS, *tasks, *small]))
    yield folder


@pytest.mark.slow
def test_replay_gives_the_live_steps_of_every_method(live: Path, tmp_path: Path) -> None:
    run.measure(
        composed([
            *ALL_METHODS, "engine=replay", f"engine.traces={live / 'traces.jsonl'}", "engine.num_jobs=1",
            f"output={tmp_path}",
        ])
    )  # fmt: skip
    replayed = {r.key: r for r in read_records(tmp_path / "records.jsonl")}
    lived = {r.key: r for r in read_records(live / "records.jsonl")}
    assert {"vanilla", "pld", "ngram_trie", "ngram_trie_released"} <= set(TOKEN_ONLY)
    assert replayed.keys() == lived.keys() and len(lived) == len(TASKS) * len(TOKEN_ONLY)
    for key, record in lived.items():
        again = replayed[key]
        assert again.accept_lengths == record.accept_lengths, key
        assert again.tree_sizes == record.tree_sizes, key
        assert (again.output_ids, again.prompt_hash) == (record.output_ids, record.prompt_hash)
        assert (again.state, again.stop_reason) == (record.state, record.stop_reason)
    assert max(length for key, r in replayed.items() if key[0] == "ngram_trie" for length in r.accept_lengths) > 4


# ---- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trace_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "toy.jsonl"
    path.write_text("".join(t.to_json() + "\n" for part in toy_traces(7).values() for t in part))
    return path


def cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["run", "engine=replay", "engine.num_jobs=1", *arguments])
    run.cli()


def test_the_table_has_a_row_for_each_category_and_all(trace_file, tmp_path, monkeypatch, capsys) -> None:
    arguments = [f"engine.traces={trace_file}", "method=pld", "method.num_draft=4", f"output={tmp_path}"]
    cli(monkeypatch, *arguments)
    table = pd.read_csv(tmp_path / "table.csv")
    assert list(zip(table.method, table.dataset, table.num_prompts, strict=True)) == [
        ("pld", "qa", 4), ("pld", "rag", 3), ("pld", "all", 7),
    ]  # fmt: skip
    assert "predicted speedup" in capsys.readouterr().out
    manifest = RunManifest.read(tmp_path / "manifest.json")
    assert manifest.config["engine"]["traces"] == "toy.jsonl" and manifest.config["method"]["num_draft"] == 4
    assert "model" not in manifest.config and "dataset" not in manifest.config
    cli(monkeypatch, *arguments[:-1], "engine.draft_in_prefill=true", f"output={tmp_path / 'early'}")
    early = pd.read_csv(tmp_path / "early" / "table.csv")
    assert early.num_steps.iloc[-1] != table.num_steps.iloc[-1]
    # A finished run is not run again, and its report is derived from the records.
    before = (tmp_path / "records.jsonl").read_bytes(), (tmp_path / "table.csv").read_bytes()
    cli(monkeypatch, *arguments)
    assert ((tmp_path / "records.jsonl").read_bytes(), (tmp_path / "table.csv").read_bytes()) == before
