"""Likely tokens beside traces: what the model said along the answer, on disk and in a replay."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.forced import MANIFEST
from support.tiny import VOCABULARY, Scripted, adversarial_tree, tiny_target

from ngram_trie.baselines.logitspec import LogitSpec
from ngram_trie.baselines.medusa import Medusa
from ngram_trie.baselines.prompt_lookup import PromptLookup
from ngram_trie.baselines.sam_token_recycling import SAMTokenRecycling
from ngram_trie.baselines.token_recycling import TokenRecycling
from ngram_trie.blend.variants import BlendLogitsDrafter
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafter import LIKELY_TOKENS, Drafter, Likely, WrappedDrafter
from ngram_trie.drafters import NoDraft
from ngram_trie.engines import forced, replay
from ngram_trie.engines.likely_file import LikelyFile, LikelyRows, LikelyWriter, companion, fingerprint
from ngram_trie.engines.recording import KeepsLikely
from ngram_trie.engines.traces import Trace, read_traces, write_traces
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree

K = 16
LENGTH = 16
#: All but 0, the padding: behind it alone all tokens are equally likely, in no order.
tokens = st.integers(1, VOCABULARY - 1)
prompts = st.one_of(
    st.lists(tokens, min_size=1, max_size=24), st.lists(tokens, min_size=1, max_size=4).map(lambda ids: ids * 20)
)


def truth_of(ids: list[int]) -> list[int]:
    """The tiny model's answer, longer than it is recorded."""
    decoder = SpeculativeDecoder(tiny_target("llama"), NoDraft())
    return decoder.generate(Prompt(np.array(ids)), Stop(LENGTH + 20)).output_ids


def scripted(ids: list[int], trees: Sequence[Any]) -> Scripted:
    truth = truth_of(ids)
    return Scripted([lambda text, make=make: make(truth, len(text) - len(ids), text[-1]) for make in trees])


def recorded(folder: Path, questions: Sequence[list[int]], drafter: Drafter | None = None, k: int = K) -> Path:
    """A file of the tiny model's answers with their likely tokens beside it."""
    path, traces = folder / "answers.jsonl", []
    keeps = KeepsLikely(drafter or NoDraft(), k)
    decoder = SpeculativeDecoder(tiny_target("llama"), keeps)
    file = LikelyWriter(companion(path), k, VOCABULARY)
    for number, ids in enumerate(questions):
        prompt = Prompt(np.array(ids), {}, "qa", str(number))
        result = decoder.generate(prompt, Stop(LENGTH))
        room = min(LENGTH, decoder.target.context_limit - len(ids))
        traces.append(Trace("tiny", prompt, result.output_ids, room, result.stop_reason))
        keeps.write(file, traces[-1])
    file.close()
    write_traces(path, traces)
    return path


def one(ids: list[int], **options: Any) -> Trace:
    """The trace of one answer, its likely tokens in memory: the file goes at once."""
    with TemporaryDirectory() as folder:
        (trace,) = read_traces(recorded(Path(folder), [ids], **options))
        rows = np.array(trace.likely.map())

    class InMemory(LikelyRows):
        def map(self) -> np.ndarray:
            return rows

    return replace(trace, likely=InMemory(**vars(trace.likely)))


# ---- what is recorded ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(ids=prompts, trees=st.lists(adversarial_tree(), max_size=12))
@settings(max_examples=10)
def test_rows_are_what_the_model_says_whoever_drafts(ids: list[int], trees: list[Any]) -> None:
    trace = one(ids, drafter=scripted(ids, trees))
    assert trace.output_ids == truth_of(ids)[: len(trace.output_ids)]
    text = [*ids, *trace.output_ids]
    rows = trace.likely.map()
    assert len(rows) == len(text) - 1
    with torch.inference_mode():
        said = tiny_target("llama").model(torch.tensor([text[:-1]])).logits[0].log_softmax(-1).numpy()
    # of two that are nearly equal either may come first
    np.testing.assert_allclose(rows["logprobs"], -np.sort(-said)[:, :K], rtol=2e-3, atol=2e-3)
    chosen = np.take_along_axis(said, rows["tokens"].astype(np.int64), -1)
    np.testing.assert_allclose(chosen, rows["logprobs"], rtol=3e-3, atol=3e-3)
    assert all(len(set(row)) == K for row in rows["tokens"].tolist())
    assert rows["tokens"][len(ids) - 1 :, 0].tolist() == trace.output_ids


# ---- what a replay hands over ----------------------------------------------------------------------------------------


class Watching(WrappedDrafter):
    """Keeps what the target says when tokens come."""

    def __init__(self, drafter: Drafter) -> None:
        super().__init__(drafter)
        self.reads = LIKELY_TOKENS  # type: ignore[misc]
        self.said: list[tuple[DraftTree | None, list[int], Likely]] = []

    def bind(self, target: Any) -> None:
        super().bind(target)
        self.target = target

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self.in_prompt = self.target.likely_in_prompt(np.arange(len(prompt.ids)), 5)

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        self.said.append((self.target.last.tree, list(self.target.last.path), self.target.likely(5)))

    def propose(self, budget: int) -> DraftTree:
        return self.drafter.propose(budget)


def alike(ours: Likely, theirs: Likely) -> None:
    assert ours.places.tolist() == theirs.places.tolist()
    assert ours.tokens.tolist() == theirs.tokens.tolist()
    np.testing.assert_allclose(ours.probs, theirs.probs, rtol=5e-3, atol=1e-4)


@pytest.mark.slow
@given(ids=prompts, trees=st.lists(adversarial_tree(), max_size=12))
@settings(max_examples=10)
def test_rows_on_the_answer_are_the_live_ones_and_others_missing(ids: list[int], trees: list[Any]) -> None:
    trace = one(ids)
    live, replayed = (Watching(scripted(ids, trees)) for _ in range(2))
    target = tiny_target("llama")
    SpeculativeDecoder(target, live).generate(trace.prompt, Stop(LENGTH))
    replay.replay(replayed, trace, target.max_draft)
    alike(replayed.in_prompt, live.in_prompt)
    assert len(replayed.said) == len(live.said)
    text, done = trace.output_ids, 0
    for (tree, path, ours), (live_tree, live_path, theirs) in zip(replayed.said, live.said, strict=True):
        if tree is None or live_tree is None:
            assert tree is live_tree and path == live_path == []
            alike(ours, theirs)
            continue
        assert (tree.tokens.tolist(), path) == (live_tree.tokens.tolist(), live_path)
        spelt = {node: tree.tokens[tree.path_to(node)].tolist() for node in range(len(tree))}
        on = [n for n, part in spelt.items() if part == text[done : done + len(part)] and done + len(part) < len(text)]
        alike(ours, Likely(*(array[on] for array in theirs)))
        done += len(path)


class Followers(Drafter):
    """Drafts, two at each node, what the model held likeliest behind a token when it was last accepted."""

    reads = LIKELY_TOKENS

    def bind(self, target: Any) -> None:
        self.target = target

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        likely = self.target.likely_in_prompt(np.arange(len(prompt.ids)), 2)
        self.after = dict(zip(prompt.ids.tolist(), likely.tokens.tolist(), strict=True))

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        last, likely = self.target.last, self.target.likely(2)
        for node, row in zip(likely.places.tolist(), likely.tokens.tolist(), strict=True):
            if last.tree is not None and node in last.path:
                self.after[int(last.tree.tokens[node])] = row

    def propose(self, budget: int) -> DraftTree:
        level = [[]]
        paths: list[list[int]] = []
        for _ in range(3):
            level = [[*path, token] for path in level for token in self.after.get((path or [self.root])[-1], [])]
            paths += level
        return DraftTree.from_paths(self.root, paths)


@pytest.mark.slow
@given(ids=prompts)
@settings(max_examples=10)
def test_a_drafter_that_reads_accepted_nodes_alone_replays_exactly(ids: list[int]) -> None:
    trace, target = one(ids), tiny_target("llama")
    live = SpeculativeDecoder(target, Followers()).generate(trace.prompt, Stop(LENGTH))
    replayed = replay.replay(Followers(), trace, target.max_draft)
    assert (replayed.output_ids, replayed.accept_lengths) == (live.output_ids, live.accept_lengths)
    assert replayed.tree_sizes == live.tree_sizes


def test_its_drafts_are_accepted() -> None:
    """Else the property above would say little."""
    assert max(replay.replay(Followers(), one([7, 8] * 20)).accept_lengths) > 1


def test_a_prompt_drafted_in_prefill_has_the_same_rows() -> None:
    trace = one([3, 4, 5, 6])
    later, earlier = replay.TraceTarget(trace), replay.TraceTarget(trace.drafted_in_prefill())
    later.prefill(trace.prompt.ids)
    earlier.prefill(trace.prompt.ids[:-1])
    tree = DraftTree.chain(6, [trace.output_ids[0]])
    earlier.verify(tree)
    assert earlier.likely(4).tokens[0].tolist() == later.likely(4).tokens[0].tolist()
    assert earlier.likely(4).places.tolist() == [0, 1]


# ---- methods ---------------------------------------------------------------------------------------------------------

METHODS = {
    "token_recycling": TokenRecycling(),
    "warm": TokenRecycling(keep_between_prompts=True),
    "sam_token_recycling": SAMTokenRecycling(),
    "blend_logits": BlendLogitsDrafter(prompt_step=3),
    "pld": PromptLookup(),
}


def test_methods_of_likely_tokens_are_replayed_and_called_lower_bounds(tmp_path: Path) -> None:
    path = recorded(tmp_path, [[3, 4, 5, 6] * 5, [7, 8, 9], [3, 4, 5, 6] * 5 + [3]])
    replay.check_replayable(METHODS, path)
    traces = {trace.key: trace for trace in read_traces(path)}
    engine = replay.Replay(MANIFEST, "", METHODS, traces, ["qa"], 1, num_jobs=2)
    found = list(engine.answers(engine.keys, {}))
    assert len(found) == len(METHODS) * len(traces) and not any(record.failure for record in found)
    assert {record.method for record in found if record.lower_bound} == set(METHODS) - {"pld"}
    steps = {name: sum(len(r.accept_lengths) for r in found if r.method == name) for name in METHODS}
    assert steps["warm"] <= steps["token_recycling"] < 3 * (LENGTH - 1)


def test_forced_forwards_have_the_recorded_rows() -> None:
    trace, target = one([3, 4, 5, 6] * 5), tiny_target("llama")
    replayed = replay.replay(TokenRecycling(), trace, target.max_draft)
    run = forced.answer(TokenRecycling(), trace, target)
    assert (run.accept_lengths, run.tree_sizes) == (replayed.accept_lengths, replayed.tree_sizes)


def test_which_methods_are_refused(tmp_path: Path) -> None:
    path = recorded(tmp_path, [[3, 4, 5]])
    with pytest.raises(ValueError, match=r"method medusa drafts from the model's hidden states.*use engine=live"):
        replay.check_replayable({"medusa": Medusa.__new__(Medusa)}, path)
    with pytest.raises(ValueError, match=r"method ls reads the 64 likeliest tokens at a place, and 16 were recorded"):
        replay.check_replayable({"ls": LogitSpec()}, path)
    companion(path).unlink()
    with pytest.raises(ValueError, match=r"method tr drafts from the model's likely tokens, which were not recorded"):
        replay.check_replayable({"pld": PromptLookup(), "tr": TokenRecycling()}, path)
    (old,) = read_traces(path)
    assert old.likely is None and replay.replay(PromptLookup(), old).output_ids == old.output_ids
    with pytest.raises(ValueError, match=r"answer \('qa', '0', 0\) was recorded without the model's likely tokens"):
        replay.replay(TokenRecycling(), old)


def test_more_than_was_recorded_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the 8 likeliest tokens were asked for, and 4 were recorded"):
        replay.replay(TokenRecycling(), one([3, 4, 5], k=4))


# ---- the file --------------------------------------------------------------------------------------------------------


@st.composite
def answers(draw: st.DrawFn) -> list[tuple[np.ndarray, list[int], list[Likely]]]:
    """Prompts, answers, and their rows in one part or two."""
    made = []
    for number in range(draw(st.integers(1, 4))):
        prompt, output = draw(st.lists(tokens, min_size=1, max_size=5)), draw(st.lists(tokens, min_size=1, max_size=5))
        size, cut = len(prompt) + len(output), draw(st.integers(1, 3))
        rng = np.random.default_rng(number)
        rows = Likely(np.arange(size), rng.integers(0, 2**31, (size, 3)), rng.random((size, 3)))
        parts = [Likely(*(a[:cut] for a in rows)), Likely(*(a[cut:] for a in rows))]
        made.append((np.array([number, *prompt]), output, parts))
    return made


@given(answers(), st.data())
def test_what_is_written_is_read_back_and_a_kill_costs_one_answer(made: Any, data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "new" / "a.likely"
        file = LikelyWriter(path, 3, 2**31)
        ends = [path.stat().st_size]
        for each in made:
            file.add(*each)
            ends.append(path.stat().st_size)  # flushed
        file.close()
        whole = path.read_bytes()
        begun = LikelyFile.open(path)
        for prompt, output, parts in made:
            rows = pickle.loads(pickle.dumps(begun.rows[fingerprint(prompt, output)])).map()
            assert rows["tokens"].tolist() == np.concatenate([part.tokens for part in parts]).tolist()
            logs = np.log(np.concatenate([part.probs for part in parts]))
            np.testing.assert_allclose(rows["logprobs"], logs, rtol=1e-3)
        cut = data.draw(st.integers(ends[0], len(whole)))
        path.write_bytes(whole[:cut])
        left = list(LikelyFile.open(path).rows.values())
        assert len(left) == sum(end <= cut for end in ends[1:])
        file = LikelyWriter(path, 3, 2**31, left)
        for each in made[len(left) :]:
            file.add(*each)
        file.close()
        assert path.read_bytes() == whole


@pytest.mark.parametrize(("vocabulary", "size"), [(2**16, 2), (2**16 + 1, 4)])
def test_tokens_are_as_short_as_the_vocabulary_allows(tmp_path: Path, vocabulary: int, size: int) -> None:
    file = LikelyWriter(tmp_path / "a.likely", 2, vocabulary)
    file.add(np.array([5]), [6], [Likely(np.array([0]), np.array([[vocabulary - 1, 1]]), np.array([[1.0, 0.0]]))])
    file.close()
    (rows,) = LikelyFile.open(tmp_path / "a.likely").rows.values()
    assert rows.end - rows.offset == 2 * (size + 2)
    assert rows.map()["tokens"].tolist() == [[vocabulary - 1, 1]]
    assert np.exp(rows.map()["logprobs"]).tolist() == [[1, 0]]


def test_a_part_of_the_traces_is_read_and_other_answers_are_not(tmp_path: Path) -> None:
    path = recorded(tmp_path, [[3, 4, 5], [6, 7, 8]])
    first, second = read_traces(path)
    write_traces(path, [second])
    (again,) = read_traces(path)
    assert again.likely == second.likely != first.likely
    write_traces(path, [first, replace(second, output_ids=[1, 2])])
    with pytest.raises(ValueError, match=r"answers\.likely: has no likely tokens of the answer \('qa', '1', 0\)"):
        read_traces(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a file of likely tokens"),
        (b"\x00\xff\n", "not a file of likely tokens"),
        (b'{"k": 16}\n', "not a file of likely tokens"),
        (b'{"version": 1, "k": 16, "token": "x"}\n', "not a file of likely tokens"),
        (b'{"version": 1, "k": 16, "token": "<u2"}\n', "version 1 of files of likely tokens, expected 2"),
    ],
)
def test_another_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.likely").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.likely: {message}"):
        LikelyFile.open(tmp_path / "a.likely")


def test_a_changed_row_is_noticed(tmp_path: Path) -> None:
    path = recorded(tmp_path, [[3, 4, 5], [7, 8, 9]])
    whole = companion(path).read_bytes()
    for at in (len(whole) // 3, len(whole) - 5):
        companion(path).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=r"answers\.likely: the rows of its answer [12] were changed"):
            read_traces(path)
