"""Where the recorded answers lie that replays are checked against; tests skip where they are absent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[2] / "shared"
TRACES = SHARED / "traces" / "spec_bench.vicuna-7b-v1.3.jsonl"
PLD_RECORDED = SHARED / "traces" / "spec_bench.vicuna-7b-v1.3.pld_recorded.jsonl"


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
