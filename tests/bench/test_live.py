"""Runs over a tiny model: interleaved, resumable, honest about failures and differences."""

from __future__ import annotations

import copy
import dataclasses
import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from support.teacher_forced import MANIFEST
from support.tiny import tiny_model, tiny_target
from transformers import LlamaConfig

from ngram_trie.baselines.hf_generate import HFGenerate
from ngram_trie.bench import live, metrics, prepare, room
from ngram_trie.bench import measure as loop
from ngram_trie.bench import others as watching
from ngram_trie.bench.cost import CostCurve
from ngram_trie.bench.measure import by_key, measure, open_run
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.bench.records import RecordWriter, RunManifest, item_key, read_records
from ngram_trie.budget.adaptive import AdaptiveDrafter, Learned
from ngram_trie.cli.overrides import composed
from ngram_trie.decoding import Decoder, SpeculativeDecoder, Stop
from ngram_trie.drafter import State, Traits
from ngram_trie.drafters import NgramTrieDrafter, NoDraft
from ngram_trie.integrations.library import Library
from ngram_trie.methods import build
from ngram_trie.prompt import LaterTurn, Prompt
from ngram_trie.report import derive
from ngram_trie.store.files import content_hash
from ngram_trie.targets.model import TargetModel

WARM = ["token_recycling_warm", "stand_warm", "racer", "sam_token_recycling", "suffix_warm", "blend_warm",
        "blend_logits_warm"]  # fmt: skip
METHODS = {"vanilla": NoDraft(), "ngram_trie": NgramTrieDrafter(num_draft=8), "hf_generate": HFGenerate()}


def prompt(question: str, length: int = 20) -> Prompt:
    return Prompt(np.resize(np.arange(3, 9), length).astype(np.int64), {}, "toy", question)


def load_tiny(path: str | None, revision: str | None) -> TargetModel:
    return tiny_target(path or "llama")


def make_run(
    methods: Mapping[str, object] = METHODS, repeats: int = 2, prompts: Sequence | None = None, **fields: Any
) -> live.Live:
    prompts = prompts or [prompt(f"q{i}", 20 + i) for i in range(3)]
    return live.Live(
        MANIFEST, "tiny", methods, by_key((item_key(p), p) for p in prompts), ["toy"], repeats,
        stop=Stop(16), context_limit=160, decode=str,
        **{"load": load_tiny, "warmup": [prompt("warmup"), prompt("second warmup")], **fields},
    )  # fmt: skip


def measured(run: live.Live, folder: Path) -> list:
    with RecordWriter(folder / "records.jsonl", "run") as writer:
        measure(run, writer)
    return list(read_records(folder / "records.jsonl"))


def test_every_answer_is_recorded_once_and_methods_are_interleaved(tmp_path: Path) -> None:
    records = measured(make_run(), tmp_path)
    assert len(records) == len({r.key for r in records}) == 3 * 2 * 3
    assert [r.question_id for r in records] == sorted(r.question_id for r in records)
    for start in range(0, len(records), 3):
        assert {r.method for r in records[start : start + 3]} == set(METHODS)
    first = [records[start].method for start in range(0, len(records), 3)]
    assert first[0] == "vanilla" and len(set(first)) > 1
    assert all(r.lossless.verdict == "identical" for r in records if r.lossless)
    assert not any("warmup" in r.question_id for r in records)


def test_generate_over_a_static_cache_is_an_answer_like_others(tmp_path: Path) -> None:
    methods = {"vanilla": NoDraft(), "hf_generate_static": HFGenerate(cache_implementation="static")}
    records = measured(make_run(methods, repeats=1), tmp_path)
    for record in records:
        assert record.failure is None and record.seconds.total > record.seconds.prefill > 0
        assert record.accept_lengths == [1] * (len(record.output_ids) - 1)
    assert {r.lossless.verdict for r in records if r.lossless} == {"identical"}


def test_an_interrupted_run_goes_on_without_losing_or_repeating(tmp_path: Path) -> None:
    full = measured(make_run(), tmp_path)
    path = tmp_path / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:7]) + lines[7][:30])  # killed in the middle of the eighth record
    resumed = measured(make_run(), tmp_path)
    assert [r.key for r in resumed] == [r.key for r in full]
    assert [r.output_ids for r in resumed] == [r.output_ids for r in full]
    assert path.read_text().splitlines(keepends=True)[:7] == lines[:7]
    assert [r.key for r in measured(make_run(), tmp_path)] == [r.key for r in full]  # nothing left to do


def test_what_is_not_alike_never_shares_a_folder(tmp_path: Path) -> None:
    def engine(n: int, **fields: object) -> live.Live:
        manifest = make_manifest({"n": n}, "model", "prompts", "cpu")
        return dataclasses.replace(make_run(), manifest=dataclasses.replace(manifest, **{"dirty": False, **fields}))

    open_run(tmp_path, engine(2))
    with open_run(tmp_path, engine(1)) as writer:  # what has answered nothing is in nobody's way
        measure(engine(1), writer)
    open_run(tmp_path, engine(1))
    with pytest.raises(FileExistsError, match="force=true"):
        open_run(tmp_path, engine(2))
    (tmp_path / "records.jsonl").write_text("".join((tmp_path / "records.jsonl").read_text().splitlines(True)[:-1]))
    for other in ({"commit": "other code"}, {"device": "other machine"}):
        with pytest.raises(FileExistsError, match="other"):
            open_run(tmp_path, engine(1, **other))
    open_run(tmp_path, engine(1, dirty=True))
    assert RunManifest.read(tmp_path / "manifest.json").dirty
    open_run(tmp_path, engine(2), force=True)
    assert RunManifest.read(tmp_path / "manifest.json").config == {"n": 2}


def test_a_finished_run_is_opened_by_other_code_and_a_doubled_record_hides_no_missing_one(tmp_path: Path) -> None:
    records = measured(make_run(), tmp_path)
    MANIFEST.write(tmp_path / "manifest.json")
    later = dataclasses.replace(make_run(), manifest=dataclasses.replace(MANIFEST, commit="other code"))
    assert len(open_run(tmp_path, later).records) == len(records)
    path = tmp_path / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:-1], lines[0]]))
    with pytest.raises(ValueError, match=f"jsonl:{len(lines)}: the answer of line 1 again"):
        open_run(tmp_path, later)
    path.write_text("".join(lines[:-1]))
    with pytest.raises(FileExistsError, match="other code here"):
        open_run(tmp_path, later)


def test_a_question_id_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="dataset toy: question id 'q1', turn 0, is there twice"):
        make_run(prompts=[prompt("q1"), prompt("q1", 30)])


def test_a_warm_up_prompt_that_is_too_long_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured(make_run(warmup=[prompt("long warmup", 400), prompt("warmup")]), tmp_path)
    assert "warning: warm-up prompt long warmup left out: 400 prompt tokens" in capsys.readouterr().err


def test_the_run_is_what_its_manifest_hashes() -> None:
    one = make_manifest({"n": 1}, "model", "prompts", "cpu")
    assert one.run == content_hash({"config": {"n": 1}, "model": "model", "prompts": "prompts"})
    assert make_manifest({"n": 1}, "model", "others", "cpu").run != one.run
    assert make_manifest({"n": 1}, "retrained", "prompts", "cpu").run != one.run


class Lying(SpeculativeDecoder):
    """Changes one token: what a bug would do."""

    def generate(self, prompt: Prompt, stop: Stop):
        result = super().generate(prompt, stop)
        result.output_ids[5] += 1
        return result


def test_a_method_that_changes_the_output_ends_the_run_with_an_error(tmp_path: Path) -> None:
    run = make_run({"vanilla": NoDraft(), "ngram_trie": Lying(tiny_target("llama"), NoDraft())})
    records = measured(run, tmp_path)
    assert len(records) == 12
    with pytest.raises(live.LosslessError, match="ngram_trie on q0 from token 5"):
        live.check_lossless(records)
    ours = metrics.to_frame([r for r in records if r.method == "ngram_trie"])
    assert str(metrics.lossless(ours)) == "0/3, 3 DIFFERENT"


def test_a_prompt_that_is_too_long_becomes_a_failure_record(tmp_path: Path) -> None:
    records = measured(make_run(repeats=1, prompts=[prompt("q0"), prompt("long", 160)]), tmp_path)
    failed = [r for r in records if r.failure]
    assert {r.question_id for r in failed} == {"long"} and len(failed) == 3
    assert failed[0].failure.kind == "prompt_too_long"


def test_vanilla_is_required() -> None:
    with pytest.raises(ValueError, match="vanilla"):
        make_run({"ngram_trie": NgramTrieDrafter()})


class Guesser(NoDraft):
    """Comes with a model of its own, a Qwen2 in place of the run's Llama."""

    traits = Traits(own_model="qwen2")


def test_a_method_with_a_model_of_its_own_is_compared_with_that_models_vanilla(tmp_path: Path) -> None:
    records = measured(make_run({"vanilla": NoDraft(), "own": Guesser()}), tmp_path)
    assert [r.method for r in records[:3]] == ["vanilla", "own_vanilla", "own"]
    assert make_run({"vanilla": NoDraft(), "own": Guesser()}).names == ["vanilla", "own_vanilla", "own"]
    outputs = {r.method: r.output_ids for r in records if r.repeat == 0 and r.question_id == "q0"}
    assert outputs["own"] == outputs["own_vanilla"] != outputs["vanilla"]
    assert {r.method: r.baseline for r in records} == {
        "vanilla": "vanilla",
        "own_vanilla": "own_vanilla",
        "own": "own_vanilla",
    }
    assert all(r.lossless.verdict == "identical" for r in records if r.method == "own")
    frame = metrics.to_frame(records)
    own = frame[frame.method == "own"]
    base = frame[frame.method == "own_vanilla"]
    expected = (own.num_tokens.sum() / own.seconds.sum()) / (base.num_tokens.sum() / base.seconds.sum())
    assert metrics.speedup(frame, "own").ratio == pytest.approx(expected)


class Needy(NoDraft):
    """Lacks a part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def parts(self) -> dict[Path, str]:
        return {self.folder: "run `make it`"}


def test_a_missing_part_is_named_and_the_other_methods_stay(tmp_path: Path) -> None:
    methods = {"vanilla": NoDraft(), "needy": Needy(tmp_path / "absent"), "fed": Needy(tmp_path)}
    there, missing = live.split_missing(methods)
    assert list(there) == ["vanilla", "fed"]
    assert missing == {"needy": f"{tmp_path / 'absent'}: not there; run `make it`"}
    (tmp_path / "config.json").write_text("1")
    before = live.part_hashes(there)
    (tmp_path / "config.json").write_text("2")
    assert before.keys() == {"fed"} and before != live.part_hashes(there)


class Failing(NgramTrieDrafter):
    """Fails where it is told to."""

    def __init__(self, when: str, error: type[Exception] = KeyError) -> None:
        super().__init__(num_draft=8)
        self.when, self.error = when, error

    def bind(self, target: TargetModel) -> None:
        if self.when == "bind":
            raise self.error("no room")

    def start(self, prompt: Prompt) -> None:
        if self.when == "ready" or (self.when == "answer" and prompt.question_id == "q1"):
            raise self.error("a slip")
        super().start(prompt)


def test_the_table_has_a_row_for_what_did_not_run_and_says_what_a_resume_has_cost(tmp_path: Path) -> None:
    full = {
        "vanilla": NoDraft(),
        "failing": Failing("bind", torch.OutOfMemoryError),
        "pld": NgramTrieDrafter(num_draft=8),
    }
    run = make_run(full, repeats=1)
    run.notes["resumed: pld"] = "it went on without its memory"
    manifest = {"engine": {"name": "live"}, "methods": {"vanilla": {}, "failing": {}, "absent": {}, "pld": {}}}
    dataclasses.replace(MANIFEST, config=manifest, environment={"not run: absent": "no weights"}).write(
        tmp_path / "manifest.json"
    )
    with RecordWriter(tmp_path / "records.jsonl", MANIFEST.run) as writer:
        measure(run, writer)
    derive.write(tmp_path)
    page = (tmp_path / "table.md").read_text()
    assert "Not run: absent: no weights" in page and "Not run: failing: no room" in page
    assert "Resumed: pld: it went on without its memory" in page
    lines = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| ")}
    assert "not run" in lines["absent"] and "not run" in lines["failing"] and "not run" not in lines["pld"]


@pytest.mark.parametrize(("when", "answered"), [("bind", 0), ("ready", 0), ("answer", 2)])
def test_what_one_method_does_ends_nothing_else(when: str, answered: int, tmp_path: Path) -> None:
    methods = {"vanilla": NoDraft(), "failing": Failing(when), "ngram_trie": NgramTrieDrafter(num_draft=8)}
    records = measured(make_run(methods, repeats=1), tmp_path)
    assert len(records) == 9
    failures = {r.question_id: r.failure for r in records if r.method == "failing"}
    assert sum(failure is None for failure in failures.values()) == answered
    assert all(failure.kind in ("KeyError", "DrafterError") for failure in failures.values() if failure)
    assert not any(r.failure for r in records if r.method != "failing")
    if answered:
        live.check_answered(records)
    else:
        with pytest.raises(live.MethodError, match=r"no prompt was answered by failing: \w+: .*(slip|room)"):
            live.check_answered(records)


def test_no_room_for_a_method_is_no_error_and_the_only_method_s_error_ends_the_run(tmp_path: Path) -> None:
    full = {"vanilla": NoDraft(), "failing": Failing("bind", torch.OutOfMemoryError)}
    with pytest.raises(torch.OutOfMemoryError):
        measured(make_run(full), tmp_path)
    records = measured(make_run(full | {"ngram_trie": NgramTrieDrafter(num_draft=8)}, repeats=1), tmp_path)
    assert {r.failure.kind for r in records if r.method == "failing"} == {"out_of_memory"}
    live.check_answered(records)


def test_models_of_their_own_come_last_and_are_checked_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str | None] = []

    def load(path: str | None, revision: str | None, verify: str | None = None) -> TargetModel:
        loaded.append(path)
        return tiny_target("llama")

    class Own(NoDraft):
        traits = Traits(own_model="own")

    class Heads(NgramTrieDrafter):
        def bind(self, target: TargetModel) -> None:
            loaded.append("heads")

    methods = {"vanilla": NoDraft(), "own": Own(), "heads": Heads()}
    assert live.bind_methods(methods, tiny_target("llama"), load)[1] == {} and loaded == ["heads", "own"]
    monkeypatch.setattr(live, "check_room", lambda method, _: check_gpu(method))
    decoders, failures = live.bind_methods(methods, tiny_target("llama"), load)
    assert loaded == ["heads", "own", "heads"]  # it was not even read
    assert list(decoders) == ["vanilla", "heads"] and set(failures) == {"own", "own_vanilla"}
    assert "13.5 GB" in failures["own"].message and failures["own"].kind == "out_of_memory"


def test_a_disturbed_answer_is_measured_again_and_the_least_disturbed_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of two seconds, from each of which others take a share of a core; reading memory takes one."""
    now, others, shares, forgotten, pauses = [0.0], [0.0], list[float](), list[int](), list[float]()
    monkeypatch.setattr(watching, "_seconds_of_others", lambda: others[0])
    monkeypatch.setattr(watching, "perf_counter", lambda: now[0])
    monkeypatch.setattr(watching.psutil, "cpu_count", torch.get_num_threads)
    monkeypatch.setattr(watching.Others, "_reading", lambda _: readings.pop() if readings else 1.0)
    monkeypatch.setattr(live.time, "sleep", lambda pause: (pauses.append(pause), now.append(now.pop() + pause)))
    run, readings = make_run({"vanilla": NoDraft()}), list[float]()
    run._others = watching.Others()
    learned, begun = Learned(), list[list[float]]()

    def generate(*_: object) -> float:
        begun.append(list(learned.drafting))
        learned.drafting.append(now[0])
        now[0] += 2
        others[0] += 2 * shares[0]
        return shares.pop(0)

    def measured(*taken: float, name: str = "vanilla", state: State = "cold") -> Any:
        shares[:] = taken
        target, traits = SimpleNamespace(forget=lambda: forgotten.append(len(shares))), Traits(state=state)
        made = SimpleNamespace(generate=generate, target=target, traits=traits, baseline="vanilla", learned=learned)
        return run._measured(made, prompt("q"), name), len(shares)

    assert measured(0.5, 0.0) == ((0.5, 0.5), 1)  # waiting would take more than a quarter of the run's time
    run._others._answering_s = 240.0
    assert measured(0.04, 0.0) == ((0.04, 0.04), 1)
    assert measured(0.5, 0.0, state="warm") == ((0.5, 0.5), 1)  # it has met the answer
    assert measured(0.5, 0.25, 0.3) == ((0.25, 0.25), 0)
    assert len(begun[-1]) == 3 and begun[-3:] == 3 * begun[-1:]  # each with what the three answers before had taught
    assert forgotten == [2, 1]  # the prompt, too, is read again
    assert measured(0.5, 0.21, 0.0, name="trie") == ((0.0, 0.0), 0) and len(forgotten) == 2
    assert measured(0.5, 0.0) == ((0.5, 0.5), 1)  # that quarter is over
    run._others._answering_s = 400.0
    readings[:] = [1.0, 1.0, 1.5]  # memory is slower behind the first answer
    assert measured(0.0, 0.0) == ((0.0, 0.0), 0)
    run._others._spare = 1
    assert measured(0.9, 0.0) == ((0.0, 0.9), 1)  # a core was free
    run._others = None  # a GPU
    assert measured(0.9, 0.0) == ((None, 0.9), 1)
    monkeypatch.undo()
    assert pauses == [5, 20, 5, 20, 5]


def test_a_model_of_a_smaller_vocabulary_is_not_even_read(tmp_path: Path) -> None:
    LlamaConfig(vocab_size=100).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"has 100 tokens, the tokenizer of tiny \d+"):
        prepare.load_target(composed(["profile=tiny", "model.device=cpu"]), str(tmp_path))


def check_gpu(method: object) -> None:
    """On a GPU with 9 GB left, where a model of its own takes 13.5."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "method_gb", lambda method: 13.5 if method.traits.own_model else 0.0)
        patch.setattr(torch.cuda, "mem_get_info", lambda device: (9e9, 24e9))
        room.check_room(method, torch.device("cuda"))


def test_what_is_neither_drafter_nor_decoder_is_refused() -> None:
    with pytest.raises(TypeError, match="neither"):
        live.bind_methods({"vanilla": NoDraft(), "object": object()}, tiny_target("llama"), load_tiny)


@pytest.mark.parametrize("made", [HFGenerate, lambda: HFGenerate(prompt_lookup_num_tokens=5), Library])
@pytest.mark.parametrize("limit", [1, 2, 24])
def test_loops_of_others_agree_and_account_for_their_steps(made: Callable[[], Decoder], limit: int) -> None:
    target, decoder = tiny_target("llama"), made()
    decoder.bind(target)
    reference = SpeculativeDecoder(target, NoDraft()).generate(prompt("q", 30), Stop(limit))
    result = decoder.generate(prompt("q", 30), Stop(limit))
    assert result.output_ids == reference.output_ids
    assert sum(result.accept_lengths) + 1 == len(result.output_ids)
    if made is HFGenerate:
        assert result.accept_lengths == [1] * (limit - 1)
        assert result.tree_sizes == [0] * (limit - 1)
    assert 0 < result.seconds.prefill <= result.seconds.total


@pytest.mark.parametrize("made", [lambda: HFGenerate(prompt_lookup_num_tokens=5), Library])
def test_loops_of_others_stop_at_eos_and_stop_strings(made: Callable[[], Decoder]) -> None:
    target, decoder = tiny_target("llama"), made()
    decoder.bind(target)
    vanilla = SpeculativeDecoder(target, NoDraft())
    truth = vanilla.generate(prompt("q", 30), Stop(24)).output_ids
    decode = lambda ids: "".join(f"<{i}>" for i in ids)  # noqa: E731
    for stop in (Stop(24, frozenset({truth[9], 1000})), Stop(24, stop_strings=(decode(truth[4:6]),), decode=decode)):
        expected = vanilla.generate(prompt("q", 30), stop)
        result = decoder.generate(prompt("q", 30), stop)
        assert (result.output_ids, result.stop_reason) == (expected.output_ids, expected.stop_reason)


def test_the_library_is_charged_for_the_reading_that_all_share() -> None:
    target, library = TargetModel(tiny_model("llama")), Library()
    library.bind(target)
    target.keeps_prompt = True
    result = library.generate(prompt("q", 30), Stop(8))
    assert result.seconds.prefill == target.prefill(prompt("q", 30).ids).saved_seconds > 0
    vanilla = SpeculativeDecoder(target, NoDraft()).generate(prompt("q", 30), Stop(8))
    assert vanilla.output_ids == result.output_ids and vanilla.seconds.prefill > result.seconds.prefill
    assert result.seconds.total > result.seconds.prefill + result.seconds.verify
    assert library.learned.times is not None  # by its drafter


def test_verdicts_in_half_precision() -> None:
    """A difference is excused only where both tokens tie, and never when one answer just ends early."""
    config = tiny_target("llama").model.config
    torch.manual_seed(0)
    model = type(tiny_target("llama").model)(config).to(torch.bfloat16)
    with torch.no_grad():  # tokens 0 and 1 share their logits, and so do 2 and 3, with the opposite sign
        model.lm_head.weight.zero_()
        model.lm_head.weight[:2] = 10 * torch.linspace(0.1, 1, config.hidden_size)
        model.lm_head.weight[2:4] = -model.lm_head.weight[:2]
    target = TargetModel(model, max_draft=4)
    text = prompt("q")
    truth = SpeculativeDecoder(target, NoDraft()).generate(text, Stop(6))
    top = truth.output_ids[2]
    rival = {0: 1, 1: 0, 2: 3, 3: 2}[top]
    other = (top + 2) % 4

    def verdict(*output: int) -> str:
        result = dataclasses.replace(truth, output_ids=list(output))
        return live.compare(result, truth.output_ids, text, target).verdict

    before, after = truth.output_ids[:2], truth.output_ids[3:]
    assert verdict(*truth.output_ids) == "identical"
    assert verdict(*before, other, *after) == "different"
    assert verdict(*before) == "different"
    assert verdict(*before, rival, *after) == "tie"


def test_later_turns_follow_vanillas_answers_in_every_session_and_resume(tmp_path: Path) -> None:
    def build(answers: list[list[int]]) -> Prompt:
        ids = np.concatenate([np.resize(np.arange(3, 9), 20), *answers]).astype(np.int64)
        return Prompt(ids, {}, "toy", "q", len(answers))

    def run() -> list:
        later = LaterTurn("toy", "q", 1, ["asked", "asked again"], build)
        return measured(make_run(prompts=[build([]), later], repeats=1, sessions=2), tmp_path)

    records = run()
    answer = next(r for r in records if r.method == "vanilla" and r.turn == 0).output_ids
    later = [r for r in records if r.turn == 1]
    assert {r.prompt_hash for r in later} == {content_hash(build([answer]).ids.tolist())}
    assert len(later) == 2 * len(METHODS) and not any(r.failure for r in records)
    path = tmp_path / "records.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:4]))  # killed within the second turn
    assert [r.output_ids for r in run()] == [r.output_ids for r in records]


def test_a_turn_after_a_failed_one_is_a_failure(tmp_path: Path) -> None:
    later = LaterTurn("toy", "long", 1, ["asked"], lambda answers: prompt("never built"))
    records = measured(make_run(prompts=[prompt("long", 400), later]), tmp_path)
    kinds = {(r.turn, r.failure.kind) for r in records if r.failure}
    assert kinds == {(0, "prompt_too_long"), (1, "earlier_turn_failed")}
    assert len(records) == 2 * 2 * len(METHODS)


# ---- sessions --------------------------------------------------------------------------------------------------------


def test_a_session_is_the_whole_run_once_more(tmp_path: Path) -> None:
    loaded: list[str] = []

    def load(path: str | None, revision: str | None) -> TargetModel:
        loaded.append("load")
        target = copy.copy(load_tiny(path, revision))  # which is kept for other tests
        targets.append(weakref.ref(target))
        return target

    def unload() -> None:
        gc.collect()
        loaded.append("unload" if targets[-1]() is None else "unload: somebody holds the target")

    targets: list[weakref.ref[TargetModel]] = []
    run = make_run(copy.deepcopy(METHODS), sessions=3, load=load, unload=unload)
    MANIFEST.write(tmp_path / "manifest.json")
    records = measured(run, tmp_path)
    assert [r.session for r in records] == sorted(r.session for r in records)
    assert len(records) == len({r.key for r in records}) == 3 * 3 * 2 * 3
    (tmp_path / "once").mkdir()
    once = {r.key for r in measured(make_run(), tmp_path / "once")}
    for session in range(3):
        assert {r.key._replace(session=0) for r in records if r.session == session} == once
    assert loaded == ["load", "unload", "load", "unload", "load"]
    firsts = {next(r.method for r in records if r.session == s and r.method != "vanilla") for s in range(3)}
    assert len(firsts) > 1  # none always runs first
    # vanilla's own first answer of every session is what the others of that session are compared with
    for session in range(3):
        own = [r for r in records if r.session == session]
        assert len([r for r in own if r.lossless is None]) == 3
        assert all(r.lossless.verdict == "identical" for r in own if r.lossless)
    assert set(RunManifest.read(tmp_path / "manifest.json").environment) == {"session 0", "session 1", "session 2"}


class Remembering(NoDraft):
    """Writes down, for all its copies, what it knew when a prompt began."""

    traits = Traits(state="warm", uses_device=True)
    told: ClassVar[list[tuple[str, list[str]]]] = []

    def __init__(self) -> None:
        self.known: list[str] = []

    def start(self, prompt: Prompt) -> None:
        self.told.append((prompt.question_id, list(self.known)))
        self.known.append(prompt.question_id)
        super().start(prompt)


class Begun(NoDraft):
    def __init__(self) -> None:
        self.began: list[str] = []

    def start(self, prompt: Prompt) -> None:
        self.began.append(prompt.question_id)
        super().start(prompt)


class OnDevice(Begun):
    traits = Traits(uses_device=True)


CURVE = CostCurve("toy", [0, 10], [1, 200], [[1.0, 2.0], [3.0, 6.0]], [1, 200], [0.5, 1.5])


class Scored(Begun):
    traits = Traits(scores_nodes=True)


def test_what_needs_a_model_begins_a_prompt_that_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that needs tokens alone does not: vanilla has begun over the same target, and a copy was compiled. Under an
    adaptive length it does, since what it learns there of steps and drafts others learn, too."""
    monkeypatch.setattr(TargetModel, "step_costs", lambda *_: CURVE)
    tokens, device, scored = Begun(), OnDevice(), Scored()
    methods = {"vanilla": NoDraft(), "tokens": tokens, "device": device, "adaptive": AdaptiveDrafter(scored)}
    records = measured(make_run(methods, repeats=1), tmp_path)
    assert device.began == scored.began == ["warmup", "q0", "q1", "q2"] and tokens.began == ["q0", "q1", "q2"]
    assert {record.question_id for record in records} == {"q0", "q1", "q2"}


def test_a_session_begins_without_what_was_remembered_and_resumes_where_it_was_cut(tmp_path: Path) -> None:
    methods = {"vanilla": NoDraft(), "warm": Remembering()}
    slept: list[float] = []
    run = make_run(methods, repeats=1, sessions=2, pause=7.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.time, "sleep", slept.append)
        records = measured(run, tmp_path)
        expected = ["q0", "q1", "q2"]
        assert [question for question, _ in Remembering.told] == 2 * ["warmup", "second warmup", *expected]
        assert [known for _, known in Remembering.told] == 2 * [[], ["warmup"], *(expected[:n] for n in range(3))]
        assert slept == [7.0]
        path = tmp_path / "records.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:9]))  # the second session has answered q0, and vanilla q1
        Remembering.told.clear()
        methods = {"vanilla": NoDraft(), "warm": Remembering()}
        resumed = measured(make_run(methods, repeats=1, sessions=2, pause=7.0), tmp_path)
        assert slept == [7.0]  # it is in its session already
    assert [r.key for r in resumed] == [r.key for r in records]
    assert Remembering.told == [
        ("warmup", []), ("second warmup", ["warmup"]), ("q0", []), ("q1", ["q0"]), ("q2", ["q0", "q1"]),
    ]  # fmt: skip
    # a session that was not begun is waited for
    path.write_text("".join(lines[:6]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.time, "sleep", slept.append)
        measured(make_run({"vanilla": NoDraft(), "warm": Remembering()}, repeats=1, sessions=2, pause=7.0), tmp_path)
    assert slept == [7.0, 7.0]


def test_a_drafter_that_remembers_meets_no_question_again(tmp_path: Path) -> None:
    Remembering.told.clear()
    questions = [dataclasses.replace(prompt(f"q{i}"), noise_kind=noise) for noise in ("", "page") for i in range(2)]
    methods = {"vanilla": NoDraft(), "warm": Remembering()}
    records = measured(make_run(methods, repeats=2, prompts=questions, sessions=2), tmp_path)
    assert len(records) == 2 * 2 * 2 * 4
    told = [("q0", []), ("q0", []), ("q1", ["q0"]), ("q1", ["q0"])]  # each repeat, each kind of noise
    assert Remembering.told == 2 * [("warmup", []), ("second warmup", ["warmup"]), *told, *told]


@pytest.mark.parametrize("name", WARM)
def test_no_method_has_the_answer_to_its_own_question(name: str, tmp_path: Path) -> None:
    method = build(composed([f"method={name}"]).plain["method"], name)
    questions = [
        dataclasses.replace(prompt(f"q{i}", 20 + i), noise_kind=kind) for kind in ("", "page") for i in range(3)
    ]
    run = make_run({"vanilla": NoDraft(), name: method}, repeats=2, prompts=questions)
    by_question: dict[tuple[str, int], set] = {}
    for record in measured(run, tmp_path):
        if record.method == name:
            about = record.question_id, record.turn
            by_question.setdefault(about, set()).add((*record.accept_lengths, "of", *record.tree_sizes))
    assert [len(different) for different in by_question.values()] == [1, 1, 1]  # as often as it is asked


def test_answers_are_compared_with_vanillas_of_their_session(tmp_path: Path) -> None:
    """A model that changes between sessions, which none does, would be seen as no method's fault."""
    count = iter(range(10))

    def load(path: str | None, revision: str | None) -> TargetModel:
        return tiny_target(("llama", "qwen2")[next(count)])

    methods = {"vanilla": NoDraft(), "ngram_trie": NgramTrieDrafter(num_draft=8)}
    records = measured(make_run(methods, repeats=1, sessions=2, load=load), tmp_path)
    outputs = {(r.session, r.method): r.output_ids for r in records if r.question_id == "q0"}
    assert outputs[0, "vanilla"] == outputs[0, "ngram_trie"] != outputs[1, "vanilla"] == outputs[1, "ngram_trie"]
    assert all(r.lossless.verdict == "identical" for r in records if r.lossless)
