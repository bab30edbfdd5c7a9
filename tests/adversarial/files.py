"""Damaged and foreign files, made once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TRACE: dict[str, Any] = {
    "model": "m", "dataset": "rag", "question_id": "q-1", "turn": 0, "prompt_token_ids": [5, 6, 7, 5, 6],
    "output_token_ids": [7, 5, 6, 9], "spans": {"user": [0, 5]}, "max_output_tokens": 8, "stop_reason": "eos",
}  # fmt: skip


def traces() -> dict[str, str | bytes]:
    """Files of traces by name; all but the first are wrong."""

    def row(**changes: Any) -> str:
        return json.dumps({name: value for name, value in (TRACE | changes).items() if value is not ...}) + "\n"

    return {
        "traces": row() + row(question_id="q-2"),
        "deep": "[" * 100_000 + "]" * 100_000 + "\n",
        "nothing": "",
        "huge_ids": row(output_token_ids=[2**40]),
        "beyond": row(output_token_ids=[7, 5, 99_999]),
    }


TEMPLATES = {
    "template_raises": "{{ raise_exception('no turn for you') }}",
    "template_huge": "{{ 'a' * 999999999999 }}",
    "template_escapes": "{{ messages.__class__.__mro__[1].__subclasses__() }}",
    "template_silent": "hello",
}

CURVE: dict[str, Any] = {
    "device": "d", "nodes": [0, 8], "contexts": [1], "step_seconds": [[0.1], [0.2]], "prefill_lengths": [0, 10],
    "prefill_seconds": [0.0, 0.1],
}  # fmt: skip


def make(folder: Path) -> dict[str, str]:
    """Write all of them below `folder`; returns their paths by name."""
    found = {"long_name": str(folder / ("x" * 300))}

    def put(name: str, content: str | bytes, file: str = "") -> None:
        path = folder / name / file if file else folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        found[name.partition(".")[0]] = str(folder / name)

    for name, content in traces().items():
        put(f"{name}.jsonl", content)
    for name, template in TEMPLATES.items():
        put(f"{name}.jinja", template)
    put("text", "These are plain words.\n")
    put("binary", bytes(range(256)) * 8)
    put("broken_gguf.gguf", b"GGUF" + bytes(40))
    put("list_json.json", "[1]")
    put("foreign_config", '{"model_type": "no_such_model"}', "config.json")
    put("store_foreign", '{"name": "another program"}', "header.json")
    put("store_half", '{"tokens": 5', "header.json")
    put("curve_nan", json.dumps(CURVE | {"step_seconds": [[float("nan")], [0.2]]}), "curve.json")
    put("curve_half", '{"device": "d", "no', "curve.json")
    (folder / "empty").mkdir()
    found["empty"] = str(folder / "empty")
    return found
