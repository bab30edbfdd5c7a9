"""200 random cases answer as `model.generate`."""

from __future__ import annotations

import pytest
from adversarial import fuzz


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 200, 50))
def test_drafted_answers_are_those_of_generate(start: int) -> None:
    assert not list(fuzz.differing(range(start, start + 50)))


def test_a_wrong_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in map(fuzz.Case.of, range(200)) if case.length > 20 and case.ending == "none")
    generated = fuzz.generated
    monkeypatch.setattr(fuzz, "generated", lambda *args, **options: [*generated(*args, **options)[:-1], 60])
    assert dict(fuzz.differing(range(case.seed, case.seed + 1)))
