"""Servers under load: what is asked, what is kept of the answers, what goes wrong, and what follows from the trials."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.openai_server import OpenAIServer

from ngram_trie.bench.config import checked
from ngram_trie.bench.schemas import ServerRun
from ngram_trie.bench.server import Server, Unreachable, read_counters
from ngram_trie.bench.server_load import TRIAL, Load, ServerAnswer, Trial, plan
from ngram_trie.cli.overrides import layered
from ngram_trie.data.bundled import MODEL
from ngram_trie.data.prompts import Question
from ngram_trie.methods import ConfigError
from ngram_trie.report import servers as report
from ngram_trie.targets.load import load_tokenizer
from scripts.bench_server import asked_of, bench


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def run(folder: Path, servers: dict[str, str], *overrides: str) -> list[Trial]:
    listed = ", ".join(f'{name}: "{url}"' for name, url in servers.items())
    settings = [f"servers={{{listed}}}", "model=tiny", "dataset.limit=5", "rounds=1", "concurrency=[2]"]
    settings.append(f"output={folder}")
    kept = [each for each in settings if each.partition("=")[0] not in {o.partition("=")[0] for o in overrides}]
    bench(checked(layered([*kept, *overrides], "server"), ServerRun))
    return [TRIAL.validate_json(line) for line in (folder / "trials.jsonl").read_text().splitlines()]


def test_a_chat_is_sent_with_its_system_message_and_functions_are_not() -> None:
    tokenizer = load_tokenizer(str(MODEL))
    question = Question("d", "1", "", "", "What?", system="Be brief.", history=(("Hi", "Hello"),), turn=1)
    (asked,) = asked_of([question, replace(question, history=(("Hi", None),))], tokenizer, "chat")
    said = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "What?")]
    assert asked.prompt == [{"role": role, "content": text} for role, text in said]
    (ids,) = asked_of([question], tokenizer, "completions")
    assert isinstance(ids.prompt, list) and len(ids.prompt) == ids.num_prompt_tokens == asked.num_prompt_tokens
    with pytest.raises(ValueError, match=r"^dataset=d: its functions are not sent in a chat"):
        asked_of([replace(question, tools=({"type": "function"},))], tokenizer, "chat")


def test_a_trial_holds_every_answer_with_its_times(tmp_path: Path) -> None:
    under_way, at_once = [], []

    def slowly(body: Any) -> list[str]:
        under_way.append(body)
        at_once.append(len(under_way))
        time.sleep(0.1)
        under_way.pop()
        return ["one ", "two three ", "four"]

    with OpenAIServer(answer=slowly, metrics=True) as server:
        (trial,) = run(tmp_path, {"mine": server.url})
    assert max(at_once) == 2
    assert len(server.requests) == 6  # one to warm up
    body = server.requests[1]
    assert all(isinstance(token, int) for token in body["prompt"]) and body["temperature"] == 0 and body["stream"]
    assert (body["model"], body["max_tokens"], set(server.paths)) == ("stand-in", 128, {"/v1/completions"})
    assert trial.key == ("mine", "concurrency 2", 0) and len(trial.answers) == 5
    for answer in trial.answers:
        assert answer.failure is None and (answer.num_tokens, answer.counted, answer.pieces) == (4, "server", 3)
        assert 0 < answer.first <= answer.seconds and answer.sent + answer.seconds <= trial.seconds
        assert answer.finish_reason == "stop" and answer.num_accepted == 3
    assert len({answer.text_hash for answer in trial.answers}) == 1
    assert trial.counters == {
        "drafts": 10, "draft_tokens": 30, "accepted_tokens": 15, "accepted_at 0": 10, "accepted_at 1": 5,
    }  # fmt: skip
    assert "servers" in json.loads((tmp_path / "manifest.json").read_text())["config"]
    assert "127.0.0.1" not in (tmp_path / "manifest.json").read_text()
    table = (tmp_path / "table.md").read_text()
    assert all(cell in table for cell in ("| mine |", "10: 30, 15", "| 4.00 |", "1.00 0.50", "5/5"))


def test_a_chat_is_sent_as_messages_and_counted_here_where_the_server_does_not(tmp_path: Path) -> None:
    with OpenAIServer(counts=False) as server:
        (trial,) = run(tmp_path, {"mine": server.url}, "endpoint=chat", "concurrency=[]", "rates=[50.0]")
    assert set(server.paths) == {"/v1/chat/completions"}
    assert server.requests[0]["messages"][-1]["role"] == "user" and "prompt" not in server.requests[0]
    assert trial.load == "rate 50" and {answer.counted for answer in trial.answers} == {"tokenizer"}
    assert trial.counters == {} and all(answer.num_tokens > 1 for answer in trial.answers)
    assert [answer.sent for answer in trial.answers] == sorted(answer.sent for answer in trial.answers)


def test_servers_are_compared_by_text_and_what_fails_is_told(tmp_path: Path) -> None:
    failing = {1: "429", 2: "500", 3: "drop", 4: "not json", 5: "no reason"}
    with (
        OpenAIServer() as first,
        OpenAIServer(answer=lambda body: ["other"]) as second,
        OpenAIServer(fail=failing) as third,
    ):
        servers = {"none": first.url, "other": second.url, "failing": third.url}
        trials = {trial.server: trial for trial in run(tmp_path, servers, "concurrency=[1]")}
    kinds = [answer.failure.kind if answer.failure else "" for answer in trials["failing"].answers]
    assert kinds == ["http 429", "http 500", "cut_short", "not_json", "cut_short"]
    first_failure = trials["failing"].answers[0].failure
    assert first_failure and first_failure.message == "too much to do"
    rows = report.rows(list(trials.values()), report.Bound(1e4, 1e4)).set_index("server")
    assert rows.same.to_dict() == {"none": 5, "other": 0, "failing": 0}
    assert rows.failures.to_dict() == {"none": 0, "other": 0, "failing": 5}
    assert rows.goodput["none"] > 0 == rows.goodput["failing"]
    assert "failing, concurrency 1, failed: 1 http 429" in (tmp_path / "table.md").read_text()


def call(number: int, **function: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "id": f"call-{number}", "function": function}]}


def test_an_answer_is_all_that_is_streamed() -> None:
    """Reasoning, refusals and calls of tools count from their first piece on and are compared; a call's id is not."""
    numbers = itertools.count()
    kinds: dict[str, list[Any]] = {
        "reasoning": [{"reasoning": "so ", "reasoning_content": "so "}, {"reasoning_content": "be it"}, "text"],
        "other reasoning": [{"reasoning": "so be that"}, "text"],
        "not reasoning": ["so be it", "text"],
        "call": [call(next(numbers), name="look", arguments='{"at'), call(next(numbers), arguments='": 1}')],
        "the same call": [call(next(numbers), name="look", arguments='{"at": 1}')],
        "refusal": [{"role": "assistant", "content": ""}, {"refusal": "no"}, "text"],
    }

    def slowly(body: Any) -> Iterator[Any]:
        for piece in kinds[body["messages"]]:
            yield piece
            time.sleep(0.05)

    async def ask(server: Server) -> dict[str, Any]:
        async with server.opened() as client:
            return {kind: await server.ask(client, kind, 9) for kind in kinds}  # type: ignore[arg-type]

    with OpenAIServer(answer=slowly, counts=False) as stand_in:
        told = asyncio.run(ask(Server("mine", stand_in.url, "chat")))
    assert json.loads(told["reasoning"].text) == {"reasoning": "so be it", "text": "text"}
    assert json.loads(told["call"].text) == {"call 0": 'look{"at": 1}'} and told["not reasoning"].text == "so be ittext"
    assert told["call"].text == told["the same call"].text and len({each.text for each in told.values()}) == 5
    assert [each.pieces for each in told.values()] == [3, 2, 2, 2, 1, 2]
    # the first piece of the one comes at once, of the other behind a delta that holds nothing
    assert told["reasoning"].seconds - told["reasoning"].first > 0.09 and told["refusal"].first > 0.045


def test_an_interrupted_run_goes_on_with_the_trial_that_is_missing(tmp_path: Path) -> None:
    with OpenAIServer() as server:
        loads = "concurrency=[1,2]"
        whole = run(tmp_path, {"mine": server.url}, loads)
        path = tmp_path / "trials.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text(lines[0] + lines[1][:200])  # killed while it wrote
        asked = len(server.requests)
        again = run(tmp_path, {"mine": server.url}, loads)
        assert len(server.requests) == asked + 6  # one to warm up and the second trial
        assert [trial.key for trial in again] == [trial.key for trial in whole] and again[0] == whole[0]
        run(tmp_path, {"mine": server.url}, loads)
        assert len(server.requests) == asked + 6
        with pytest.raises(FileExistsError, match=r"holds another run: .*force=true"):
            run(tmp_path, {"mine": server.url}, "max_new_tokens=5")
        (trial,) = run(tmp_path, {"mine": server.url}, "max_new_tokens=5", "force=true")
        assert trial.load == "concurrency 2"


def test_the_key_comes_from_the_environment_and_goes_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenAIServer(key="secret-key") as server:
        with pytest.raises(Unreachable, match=r"answers HTTP 401; set OPENAI_API_KEY$"):
            run(tmp_path, {"mine": server.url})
        monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
        run(tmp_path, {"mine": server.url})
    assert not [path for path in tmp_path.iterdir() if "secret-key" in path.read_text()]


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["servers={}"], r"servers: give at least one"),
        (['servers={mine: "http://me:word@127.0.0.1/v1"}'], r"servers\.mine: an address without a password"),
        (['servers={mine: "http://127.0.0.1:9/v1"}'], r"server mine: nobody answers at http://127\.0\.0\.1:9/v1"),
        (["concurrency=[]"], r"concurrency=\[\]: give a load"),
        (["server_model=other"], r"server_model=other: server mine has stand-in"),
    ],
)
def test_a_wrong_setting_is_one_line(overrides: list[str], line: str, tmp_path: Path) -> None:
    with OpenAIServer() as server, pytest.raises((ValueError, ConfigError, OSError), match=line) as error:
        run(tmp_path, {"mine": server.url}, *overrides)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("server", "line"),
    [
        (OpenAIServer(models=None), r"/models is no list of models; does the address end in /v1\?$"),
        (OpenAIServer(models=("a", "b")), r"^server_model: server mine has a, b; name one$"),
        (OpenAIServer(fail={0: "500"}), r"^server mine: the first answer failed: http 500: too much to do$"),
    ],
)
def test_a_server_that_is_none_is_one_line(server: OpenAIServer, line: str, tmp_path: Path) -> None:
    with server, pytest.raises((ValueError, OSError), match=line):
        run(tmp_path, {"mine": server.url})


def test_trials_take_turns() -> None:
    found = plan(["a", "b"], [Load("concurrency", 1), Load("rate", 2.0)], 2)
    assert [(server, load.value, number) for server, load, number in found] == [
        ("a", 1, 0), ("b", 1, 0), ("b", 2, 0), ("a", 2, 0),
        ("b", 1, 1), ("a", 1, 1), ("a", 2, 1), ("b", 2, 1),
    ]  # fmt: skip


def answer(question: int, first: float, seconds: float, tokens: int, **fields: Any) -> ServerAnswer:
    return ServerAnswer("d", str(question), 0, 10, 0.0, first, seconds, tokens, text_hash="x", **fields)


def test_numbers_by_hand() -> None:
    slow = Trial("r", "slow", "concurrency 1", 0, 4.0, [answer(1, 0.5, 1.5, 11), answer(2, 1.0, 2.5, 16)])
    fast = Trial(
        "r", "fast", "concurrency 1", 0, 2.0, [answer(1, 0.5, 0.75, 11), answer(2, 0.5, 1.25, 16)],
        {"drafts": 4.0, "draft_tokens": 12.0, "accepted_tokens": 6.0, "accepted_at 0": 4.0, "accepted_at 1": 2.0},
    )  # fmt: skip
    rows = report.rows([slow, fast], report.Bound(ttft_ms=500, tpot_ms=60)).set_index("server")
    assert rows.tokens_per_second.to_dict() == {"slow": 27 / 4, "fast": 27 / 2}
    assert rows.speedup.to_dict() == {"slow": 1.0, "fast": pytest.approx(2.0)} and rows.low["fast"] == pytest.approx(2)
    assert rows.tpot_p50.to_dict() == {"slow": pytest.approx(100), "fast": pytest.approx(37.5)}
    assert rows.ttft_p50.to_dict() == {"slow": 750, "fast": 500}
    assert rows.goodput.to_dict() == {"slow": 0.0, "fast": 1.0}
    assert rows.accept_length["fast"] == 2.5 and math.isnan(rows.accept_length["slow"])
    assert rows.accepted_at.to_dict() == {"slow": "", "fast": "1.00 0.50"}


def test_counters_of_several_engines_are_added() -> None:
    text = "".join(f'vllm:spec_decode_num_drafts_total{{engine="{n}"}} {n}.0\n' for n in (1, 2))
    assert read_counters(text + "vllm:other_total 5\n") == {"drafts": 3.0}
