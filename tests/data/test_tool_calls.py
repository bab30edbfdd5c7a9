"""BFCL: its functions as chat templates take them, the published request."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.datasets import configured, write_lines

from ngram_trie.data.prompts import CALLING, build_prompt
from ngram_trie.methods import ConfigError
from ngram_trie.store.files import PROJECT
from ngram_trie.targets.load import load_tokenizer


def function(of: str, size: str) -> dict[str, Any]:
    """A function with a parameter that is called "type"."""
    parameters = {"type": of, "properties": {"type": {"type": "string", "enum": ["dict"]}, "size": {"type": size}}}
    return {"name": "area", "description": "Area of a square.", "parameters": parameters}


FUNCTION, SCHEMA = function("dict", "float"), function("object", "number")


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
    assert one.tools == two.tools == ({"type": "function", "function": SCHEMA},) * 2
    assert (one.system, two.system) == ("", "Be brief.")
    assert (two.message, two.history) == ("Four?", (("One.\n\nTwo?", "Three."),))


@pytest.mark.parametrize("system", ["", "Be brief."])
def test_the_template_of_the_model_describes_functions_and_else_the_system_message(tmp_path: Path, system: str) -> None:
    asked = ([("system", system)] if system else []) + [("user", "How large?")]
    path = bfcl(tmp_path, [says(*asked)], [says(("user", "x"))])
    (question,) = configured("bfcl", path=path, warmup=1).questions
    tokenizer = load_tokenizer(str(PROJECT / "data" / "tiny" / "model"))
    without = build_prompt(question, tokenizer)
    described = CALLING + f"{json.dumps(SCHEMA)}\n{json.dumps(SCHEMA)}"
    told = "\n\n".join(filter(None, (described, system)))
    assert without.ids.tolist() == build_prompt(replace(question, tools=(), system=told), tokenizer).ids.tolist()
    tokenizer.chat_template = (
        "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}"
        "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}[assistant]"
    )
    with_tools = build_prompt(question, tokenizer)
    text = tokenizer.decode(with_tools.ids)
    assert text.startswith("<tools>[{") and text.count('"type": "object"') == 2 and CALLING not in text
    first, end = with_tools.spans["user"]
    assert tokenizer.decode(with_tools.ids[first:end]) == "How large?"
    first, end = with_tools.spans["system"]
    assert tokenizer.decode(with_tools.ids[first:end]).startswith("<tools>[{")


def test_what_cannot_be_asked_is_one_line(tmp_path: Path) -> None:
    path = bfcl(tmp_path, [says(("user", "a")), says(("user", "b"))])
    with pytest.raises(ConfigError, match=r"\.json:1 needs the results of calls"):
        configured("bfcl", path=path)
    with pytest.raises(ConfigError, match=r"\.json:1: question: Field required"):
        configured("bfcl", path=write_lines(Path(path), [{"id": "a"}]))
    for roles in (["system"], ["user", "assistant"]):
        with pytest.raises(ConfigError, match=r"\.json:1: question: user and assistant must take turns, .* user last"):
            configured("bfcl", path=bfcl(tmp_path, [says(*((role, "x") for role in roles))]))


@pytest.mark.parametrize("name", ["bfcl", "speed_bench"])
def test_a_missing_copy_is_named(name: str, tmp_path: Path) -> None:
    for path in (None, str(tmp_path / "gone")):
        with pytest.raises((ConfigError, FileNotFoundError), match="path"):
            configured(name, path=path)
