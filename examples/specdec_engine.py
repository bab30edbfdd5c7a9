"""NVIDIA's harness `specdec_bench` (examples/specdec_bench of github.com/NVIDIA/Model-Optimizer): any drafter under its
metrics. Copy this file beside its run.py, and add two lines there, before the arguments are parsed:

    from specdec_engine import Model
    engines_available["NGRAM_TRIE"] = Model
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer

from ngram_trie.drafter import Shape
from ngram_trie.generate import Budget, Speculator
from ngram_trie.methods import choices, near, settings_of, sizes
from ngram_trie.targets.load import load_pretrained

#: What the harness gives every engine, and this one has no use for.
_UNUSED = (
    "draft_model_dir", "speculative_num_draft_tokens", "tensor_parallel_size", "moe_expert_parallel_size",
    "trust_remote_code", "tokenizer_path",
)  # fmt: skip


class _Clock(BaseStreamer):
    """When the request began, and when each token of its answer was known."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        if value.ndim < 2:  # the prompt is (1, l)
            self.times.append(time.perf_counter())

    def end(self) -> None:
        return


class Model:
    """What the harness calls an engine: one request at a time, greedy unless a temperature is given.

    Args:
        model_dir: what `load_pretrained` takes.
        max_concurrent_requests: the harness's --concurrency; 1.
        sampling_kwargs: temperature, top_p, top_k.
        speculative_algorithm: --speculative_algorithm; NONE decodes without drafts.
        speculative_num_steps: --draft_length: most nodes of a draft, in the fields that the method has for it.
        drafter, shape, budget: as in `speculative_generate`; these, dtype and device are given as engine_args in the
            file of --runtime_params.

    Raises:
        ValueError: an option that does not exist or does not fit; one line.
    """

    def __init__(
        self,
        model_dir: str,
        max_concurrent_requests: int = 1,
        sampling_kwargs: Mapping[str, Any] | None = None,
        speculative_algorithm: str = "NGRAM",
        speculative_num_steps: int = 32,
        drafter: str = "blend",
        shape: Shape = "tree",
        budget: Budget = "fixed",
        dtype: str = "float32",
        device: str = "auto",
        **others: Any,
    ) -> None:
        if max_concurrent_requests != 1:
            raise ValueError(f"--concurrency {max_concurrent_requests}: one request at a time is answered; give 1")
        for name in set(others) - set(_UNUSED):
            raise ValueError(f"engine_args.{name}: {near(name, ['drafter', 'shape', 'budget', 'dtype', 'device'])}")
        name = "vanilla" if speculative_algorithm == "NONE" else drafter
        if name not in (known := choices()["method"]):
            raise ValueError(f"engine_args.drafter={name}: {near(name, list(known))}")
        self._config = {"name": name, **sizes(settings_of(known[name]), speculative_num_steps)}
        self._sampling = dict(sampling_kwargs or {})
        self._sampling["do_sample"] = bool(self._sampling.get("temperature"))
        if not self._sampling["do_sample"]:
            self._sampling.pop("temperature", None)
        model, tokenizer = load_pretrained(model_dir, dtype, device)
        self._speculator = Speculator(model, self._config, tokenizer, shape=shape, budget=budget)

    async def run(
        self, prompt_ids: Sequence[int], max_length: int, end_id: int, request_id: Any, turn_id: int
    ) -> dict[str, Any]:
        """The answer to (l,) token ids.

        Returns:
            output_ids: [[chunk, ...]], what each forward emitted, prefill's token first, without the token `end_id`;
            token_times: seconds when the request began, and when each chunk was known.
        """
        clock, begun = _Clock(), time.perf_counter()
        ids, answer = self._speculator(
            list(prompt_ids), streamer=clock, max_new_tokens=max_length, eos_token_id=end_id, **self._sampling
        )
        ends = list(itertools.accumulate([1, *answer.accept_lengths]))
        if ids[-1] == end_id:
            ends[-1] -= 1
        chunks = [ids[start:end] for start, end in itertools.pairwise([0, *ends])]
        times = [begun, *(clock.times[max(end, 1) - 1] for end in ends)]
        if not chunks[-1]:  # the last forward gave the end alone
            chunks, times = chunks[:-1], times[: max(len(times) - 1, 1)]
        return {"output_ids": [chunks], "output_logits": None, "token_times": times}

    def get_serving_config(self) -> dict[str, Any]:
        """The drafter and its size, for the harness's configuration.json."""
        return self._config

    def stop(self) -> None:
        """Nothing runs beside the requests."""
