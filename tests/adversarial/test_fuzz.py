"""200 random cases answer as `model.generate`; `adversarial.run_all` tries more."""

from __future__ import annotations

import pytest
from adversarial import fuzz


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 200, 50))
def test_drafted_answers_are_those_of_generate(start: int) -> None:
    assert not list(fuzz.differing(range(start, start + 50)))


def test_a_case_is_its_seed_and_all_kinds_come() -> None:
    cases = [fuzz.Case.of(seed) for seed in range(2000)]
    assert cases[:50] == [fuzz.Case.of(seed) for seed in range(50)]
    assert {case.drafter for case in cases} == set(fuzz.drafters()) and len(fuzz.drafters()) >= 20
    assert len({(case.model[0], case.ending) for case in cases}) == 4 * 8


def test_a_wrong_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in map(fuzz.Case.of, range(200)) if case.length > 20 and case.ending == "none")
    generated = fuzz.generated
    monkeypatch.setattr(fuzz, "generated", lambda *args, **options: [*generated(*args, **options)[:-1], 60])
    assert dict(fuzz.differing(range(case.seed, case.seed + 1)))
