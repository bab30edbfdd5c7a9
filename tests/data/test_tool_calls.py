"""BFCL: one system message with the functions, the published request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.datasets import configured, write_lines

from ngram_trie.data.tool_calls import SYSTEM
from ngram_trie.methods import ConfigError

FUNCTION = {"name": "area", "description": "Area of a square.", "parameters": {"type": "dict", "properties": {}}}


def says(*messages: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in messages]


def bfcl(tmp_path: Path, *questions: Any) -> str:
    rows = [
        {"id": f"simple_{i}", "question": question, "function": [FUNCTION, FUNCTION]}
        for i, question in enumerate(questions)
    ]
    return write_lines(tmp_path / "BFCL_v4_simple_python.json", rows)


def test_a_question_of_bfcl(tmp_path: Path) -> None:
    several = says(
        ("system", "Be brief."), ("user", "One."), ("user", "Two?"), ("assistant", "Three."), ("user", "Four?\n")
    )
    path = bfcl(tmp_path, [says(("user", "How large?"))], [several], [says(("user", "x"))])
    for place in (path, str(tmp_path)):
        one, two = configured("bfcl", path=place, warmup=1).questions
    assert (one.question_id, one.message, one.history) == ("simple_0", "How large?", ())
    assert one.system == SYSTEM + f"{json.dumps(FUNCTION)}\n{json.dumps(FUNCTION)}"
    assert two.system.endswith("\n\nBe brief.")
    assert (two.message, two.history) == ("Four?", (("One.\n\nTwo?", "Three."),))


def test_what_cannot_be_asked_is_one_line(tmp_path: Path) -> None:
    path = bfcl(tmp_path, [says(("user", "a")), says(("user", "b"))])
    with pytest.raises(ConfigError, match=r"\.json:1 needs the results of calls"):
        configured("bfcl", path=path)
    with pytest.raises(ConfigError, match=r"\.json:1: question: Field required"):
        configured("bfcl", path=write_lines(Path(path), [{"id": "a"}]))


@pytest.mark.parametrize("name", ["bfcl", "speed_bench"])
def test_a_missing_copy_is_named(name: str, tmp_path: Path) -> None:
    for path in (None, str(tmp_path / "gone")):
        with pytest.raises((ConfigError, FileNotFoundError), match="path"):
            configured(name, path=path)
