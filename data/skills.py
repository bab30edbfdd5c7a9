"""Three kinds of text that a general assistant is asked for: conversations, Python functions and word problems.

The counterpart, at the size of a CPU, of the sets that N-Grammys is measured on (section 5): `chat` is like MT-Bench
(an open request and a follow-up), `code` like HumanEval (a signature and a docstring with examples, to be completed),
`math` like GSM8K (a word problem, answered step by step). The general model is trained on endless fresh samples and
tested on combinations that training never sees (`is_held_out`). The grammar is data (`data/tiny/skills.yaml`).
"""

from __future__ import annotations

import functools
import operator
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ngram_trie.data.world import SLOT, Sample, Turn, is_held_out, sentence

GRAMMAR = Path(__file__).parent / "tiny" / "skills.yaml"
TASKS = ("chat", "code", "math")
Accept = Callable[[str], bool]


@functools.cache
def grammar() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load(GRAMMAR.read_text(encoding="utf-8"))
    return parsed


class Draws:
    """The words of one sample: a slot is drawn when it is first met and repeated wherever it stands again.

    Args:
        rng: draws them.
        known: slots that are given.
    """

    def __init__(self, rng: random.Random, **known: object) -> None:
        self.rng = rng
        self.known: dict[str, str] = {slot: str(word) for slot, word in known.items()}

    def __getitem__(self, slot: str) -> str:
        if slot not in self.known:
            kind = slot.rstrip("0123456789")  # {town2} is another town than {town}
            taken = {word for other, word in self.known.items() if other.rstrip("0123456789") == kind}
            self.known[slot] = self.rng.choice([word for word in grammar()["lists"][kind] if word not in taken])
        return self.known[slot]

    def fill(self, pattern: str) -> str:
        """`pattern` with all its slots replaced."""
        return SLOT.sub(lambda slot: self[slot[1]], pattern)


def chat_sample(rng: random.Random, accept: Accept) -> Sample:
    """A request for a guide, letter, speech or answer about a topic, and a follow-up that repeats part of it."""
    words = grammar()["chat"]
    while True:
        form, topic = rng.choice(list(words["forms"])), rng.choice(list(words["topics"]))
        draws = Draws(rng, topic=topic)
        ask = draws.fill(words["forms"][form]["ask"])
        if accept(ask):
            break
    about, spec = words["topics"][topic], words["forms"][form]
    # Which three of the four points are given follows from the form, so that the answer is well defined.
    left_out = list(words["forms"]).index(form)
    points = [point for number, point in enumerate(about["points"]) if number != left_out]
    draws.known["end"] = about["end"]
    parts = [draws.fill(spec["open"])]
    for number, ((what, why), link) in enumerate(zip(points, spec["links"], strict=True), 1):
        draws.known |= {"p": what, "r": why, f"p{number}": what, f"r{number}": why, f"P{number}": sentence(what)}
        parts.append(draws.fill(link))
    first = Turn(ask, " ".join([*parts, draws.fill(spec["close"])]), (topic,))
    question, answer = (draws.fill(pattern) for pattern in rng.choice(words["follow_ups"]))
    return Sample("chat", ask, "", "", [first, Turn(question, answer, ())])


#: What the functions of the grammar do: from their arguments to their result.
RULES: Mapping[str, Callable[..., Any]] = {
    "keep_above": lambda xs, limit: [x for x in xs if x > limit],
    "keep_below": lambda xs, limit: [x for x in xs if x < limit],
    "count_above": lambda xs, limit: sum(x > limit for x in xs),
    "scale": lambda xs, factor: [x * factor for x in xs],
    "total_of_even": lambda xs: sum(x for x in xs if x % 2 == 0),
    "spread": lambda xs: max(xs) - min(xs),
    "running_totals": lambda xs: [sum(xs[: place + 1]) for place in range(len(xs))],
    "unique": lambda xs: list(dict.fromkeys(xs)),
    "long_words": lambda words, length: [word for word in words if len(word) > length],
    "initials": lambda words: "".join(word[0] for word in words),
    "reversed_words": lambda words: [word[::-1] for word in words],
}


def code_sample(rng: random.Random, accept: Accept) -> Sample:
    """A function to complete; the answer is the whole function, as instruct models give it."""
    words = grammar()["code"]
    while True:
        function = rng.choice(words["functions"])
        thing, word = rng.choice(list(words["things"].items())), rng.choice(list(words["words"].items()))
        draws = Draws(rng, xs=thing[0], x=thing[1], ws=word[0], w=word[1])
        name, style = draws.fill(rng.choice(function["name"])), rng.randrange(2)
        if accept(f"{name} {style}"):
            break
    examples = []
    for _ in range(2):
        if "list[str]" in function["arguments"]:
            given: list[Any] = [rng.sample(words["samples"], 3)]
        else:
            given = [[rng.randrange(1, 10) for _ in range(3)]]
        if function["arguments"].count(":") == 2:
            given.append(rng.randrange(2, 6))
        examples += [f">>> {name}({', '.join(map(repr, given))})", repr(RULES[function["make"]](*given))]
    lines = [draws.fill(function["doc"][style]), "", *examples]
    stub = f"def {name}({draws.fill(function['arguments'])}) -> {function['returns']}:\n"
    stub += '    """' + "\n    ".join(lines).replace("\n    \n", "\n\n") + '\n    """\n'
    body = "".join(f"    {line}\n" for line in draws.fill(function["body"][style]).split("\n"))
    answer = f"```python\n{stub}{body}```"
    return Sample("code", rng.choice(words["ask"]) + "\n\n", stub.rstrip("\n"), "", [Turn("", answer, (body.strip(),))])


_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
}


def math_sample(rng: random.Random, accept: Accept) -> Sample:
    """A word problem; the answer works it out step by step and ends with `#### ` and the number, as GSM8K's do."""
    words = grammar()["math"]
    problems = words["problems"]
    while True:
        number = rng.randrange(len(problems))
        problem = problems[number]
        values = {slot: rng.randrange(low, high + 1, step) for slot, (low, high, step) in problem["numbers"].items()}
        if "product" in problem:
            made, left, right = problem["product"]
            values[made] = values[left] * values.pop(right)
        for made, left, operation, right, _ in problem["steps"]:
            values[made] = _OPERATIONS[operation](values[left], values[right])
        if min(values.values()) < 1:
            continue
        draws = Draws(rng, **values)
        text = draws.fill(problem["text"])
        if accept(f"{number} {draws['name']} {draws['item']}"):
            break
    ask = draws.fill(problem["ask"])
    result = str(values[problem["steps"][-1][0]])
    steps = [draws.fill(step[-1]) for step in problem["steps"]]
    answer = " ".join([words["open"][number % len(words["open"])], *steps]) + f"\n#### {result}"
    return Sample("math", "", text, " " + ask, [Turn(ask, answer, (result,))])


MAKE = {"chat": chat_sample, "code": code_sample, "math": math_sample}


def training_sample(rng: random.Random) -> Sample:
    """A fresh sample of a random task, about nothing that is held out."""
    return MAKE[rng.choice(TASKS)](rng, lambda about: not is_held_out(about))


def held_out_sample(rng: random.Random, task: str | None = None) -> Sample:
    """A fresh sample, of `task` or of a random one, about something that training never sees."""
    return MAKE[task or rng.choice(TASKS)](rng, is_held_out)
