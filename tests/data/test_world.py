"""The text world and the bundled prompts: well-formed, held out, answerable."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from ngram_trie.data import bundled, world
from ngram_trie.data.bundled import BundledDataset
from ngram_trie.data.prompts import Question, build_prompt
from ngram_trie.store.files import PROJECT
from scripts.studies.tiny import make_prompts

MODEL = PROJECT / "data" / "tiny" / "model"


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(MODEL)


def test_training_never_sees_a_held_out_subject() -> None:
    rng = random.Random(0)
    for _ in range(300):
        subject = world.draw_subject(rng, lambda name: not world.is_held_out(name))
        assert not world.is_held_out(subject.name)
    held_out = world.draw_subject(rng, world.is_held_out)
    assert world.is_held_out(held_out.name)


@pytest.mark.parametrize("task", world.TASKS)
def test_bundled_prompts(task: str, tokenizer) -> None:
    dataset = BundledDataset(task)
    assert len(dataset.questions) >= 40 and len(dataset.warmup) == 2
    assert len({q.question_id for q in dataset.questions}) == len(dataset.questions)
    assert len({q.message for q in [*dataset.questions, *dataset.warmup]}) == len(dataset.questions) + 2
    for question in dataset.questions:
        assert all(fact in question.context and fact in question.reference for fact in question.key_facts)
        prompt = build_prompt(question, tokenizer)
        assert 300 <= len(prompt.ids) <= 900
        assert prompt.ids[0] == tokenizer.bos_token_id != prompt.ids[1]
        assert tokenizer.decode(prompt.part("context")).strip() == question.context.strip()
        assert question.message.strip() in tokenizer.decode(prompt.part("user"))


def test_limits_and_unknown_tasks() -> None:
    assert len(BundledDataset("rag", 3).questions) == 3
    with pytest.raises(ValueError, match="limit"):
        BundledDataset("rag", 0)
    with pytest.raises(FileNotFoundError, match="There are: attributed_qa"):
        BundledDataset("nothing")


def test_a_doubled_bos_is_detected(tokenizer) -> None:
    import copy

    doubled = copy.deepcopy(tokenizer)
    doubled.chat_template = "<s>" + tokenizer.chat_template
    with pytest.raises(ValueError, match="two BOS"):
        build_prompt(Question("d", "q", "", "some text", ""), doubled)
    doubled.chat_template = None
    with pytest.raises(ValueError, match="chat template"):
        build_prompt(Question("d", "q", "", "some text", ""), doubled)


@pytest.mark.slow
def test_the_bundled_prompts_are_what_the_script_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = {file.name: file.read_text(encoding="utf-8") for file in bundled.FOLDER.glob("*.jsonl")}
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    make_prompts.main()
    assert {file.name: file.read_text(encoding="utf-8") for file in tmp_path.glob("*.jsonl")} == committed
