"""The three skills and their bundled prompts: well-formed, held out, right."""

from __future__ import annotations

import ast
import random
import re

import pytest

from ngram_trie.data import skills
from ngram_trie.data.bundled import BundledDataset


def test_training_and_test_share_nothing() -> None:
    rng = random.Random(0)

    def asked(sample) -> str:
        return sample.messages()[0]["content"]

    trained = {asked(skills.training_sample(rng)) for _ in range(2000)}
    assert not trained & {asked(skills.held_out_sample(rng)) for _ in range(300)}


def test_functions_do_what_their_examples_say() -> None:
    for seed in range(25):
        sample = skills.held_out_sample(random.Random(seed), "code")
        code = sample.turns[0].answer.removeprefix("```python\n").removesuffix("```")
        assert code.startswith(sample.context.removesuffix('"""').rstrip())
        space: dict[str, object] = {}
        exec(compile(code, "answer", "exec"), space)  # written by our own grammar
        examples = re.findall(r">>> (\w+)\((.*)\)\n    (.+)", sample.context)
        assert len(examples) == 2
        for name, arguments, result in examples:
            given = ast.literal_eval(f"({arguments},)")
            assert space[name](*given) == ast.literal_eval(result)  # type: ignore[operator]


def test_word_problems_are_worked_out_right() -> None:
    results = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__}
    for seed in range(25):
        turn = skills.held_out_sample(random.Random(seed), "math").turns[0]
        steps = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", turn.answer)
        assert len(steps) >= 2
        for left, operation, right, result in steps:
            assert results[operation](int(left), int(right)) == int(result) > 0
        assert turn.answer.endswith(f"#### {turn.key_facts[0]}") and steps[-1][3] == turn.key_facts[0]


@pytest.mark.parametrize("task", skills.TASKS)
def test_bundled_questions(task: str) -> None:
    dataset = BundledDataset(task)
    turns = 2 if task == "chat" else 1
    assert len(dataset.questions) == 20 * turns and len(dataset.warmup) == 2 * turns
    assert len({question.question_id for question in dataset.questions}) == 20
    for question in dataset.questions:
        assert question.reference and len(question.history) == question.turn
    odd, even = (BundledDataset(task, parity=parity).questions for parity in ("odd", "even"))
    assert {q.question_id for q in odd} | {q.question_id for q in even} == {q.question_id for q in dataset.questions}
    assert len(odd) == len(even) == 10 * turns
    assert [q.question_id for q in BundledDataset(task, limit=2, parity="even").questions[::turns]] == [
        f"{task}-002",
        f"{task}-004",
    ]


def test_later_turns_follow_what_was_said() -> None:
    first, second = BundledDataset("chat").questions[:2]
    assert (first.turn, second.turn) == (0, 1) and first.question_id == second.question_id
    assert second.history == ((first.message, first.reference),)
    with pytest.raises(ValueError, match=r"dataset.parity=both: must be odd or even"):
        BundledDataset("chat", parity="both")
