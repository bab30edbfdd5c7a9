"""transformers' own `generate`, as a control of the project's loop, and its prompt lookup as an outside system.

Both own their loop, so they show what the loop itself costs, not only what the drafts bring.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from ngram_trie.decoding import Decoder, GenerationResult, PhaseSeconds, Stop
from ngram_trie.drafter import check_int
from ngram_trie.prompt import Prompt
from ngram_trie.targets.internals import cache_in
from ngram_trie.targets.model import TargetModel


class HFGenerate(Decoder):
    """Greedy `model.generate`, plain or with transformers' prompt lookup.

    Args:
        prompt_lookup_num_tokens: tokens drafted after a match; None decodes plainly.
        max_matching_ngram_size: longest n-gram that prompt lookup matches (transformers' default is 2).
        cache_implementation: of `generate`; None is its default, a cache that grows. Over a "static" one, here of the
            context limit's size so that there is one shape, it compiles its steps on a GPU.

    With prompt lookup accept lengths come from the forwards that `generate` makes. Its first forward reads the prompt
    and verifies a draft at once; what it accepts there is counted with the next step.
    """

    def __init__(
        self,
        *,
        prompt_lookup_num_tokens: int | None = None,
        max_matching_ngram_size: int = 2,
        cache_implementation: str | None = None,
    ) -> None:
        check_int("max_matching_ngram_size", max_matching_ngram_size, 1)
        self.options: dict[str, Any] = {}
        self.cache_implementation = cache_implementation
        if prompt_lookup_num_tokens is not None:
            check_int("prompt_lookup_num_tokens", prompt_lookup_num_tokens, 1)
            self.options["prompt_lookup_num_tokens"] = prompt_lookup_num_tokens
            self.options["max_matching_ngram_size"] = max_matching_ngram_size

    def bind(self, target: TargetModel) -> None:
        self.target = target
        target.model.generation_config.max_length = None  # `generate` warns of it for every answer
        if self.cache_implementation:
            self.options |= {"cache_implementation": self.cache_implementation, "max_cache_len": target.context_limit}

    @torch.inference_mode()
    def generate(self, prompt: Prompt, stop: Stop) -> GenerationResult:
        room = self.room(prompt)
        ids = torch.from_numpy(prompt.ids)[None].to(self.target.device)
        options = greedy_options(prompt, stop, room) | self.options
        first = FirstForward(self.target)
        options["stopping_criteria"].append(first)
        calls = ForwardCalls(self.target.model)
        self.target.synchronize()
        started = perf_counter()
        drafts = "prompt_lookup_num_tokens" in self.options
        # a model that is compiled must not be watched
        with calls.noted() if drafts else contextlib.nullcontext():
            output = self.target.model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        emitted = output[0, len(prompt.ids) :].tolist()
        total = perf_counter() - started
        kept, reason = stop.trim([], emitted, room)
        assert reason, "generate stopped for a reason of its own"
        accept_lengths, tree_sizes = [1] * (len(kept) - 1), [0] * (len(kept) - 1)
        if drafts:
            accept_lengths, tree_sizes = calls.steps(len(prompt.ids), len(kept))
        seconds = PhaseSeconds(total, prefill=first.ended - started)
        return GenerationResult(kept, accept_lengths, tree_sizes, seconds, reason)


def greedy_options(prompt: Prompt, stop: Stop, room: int) -> dict[str, Any]:
    """`generate`'s options for greedy decoding until `stop`, in answers of at most `room` tokens."""
    return {
        "do_sample": False,
        # a hub model's own generation config may ask for more than greedy decoding
        "num_beams": 1,
        "repetition_penalty": 1.0,
        "no_repeat_ngram_size": 0,
        "max_new_tokens": min(stop.max_new_tokens, room),
        "eos_token_id": sorted(stop.eos_ids) or None,
        "pad_token_id": 0,
        "stopping_criteria": StoppingCriteriaList([StopStrings(stop, len(prompt.ids))] * bool(stop.stop_strings)),
    }


class HFPromptLookup(HFGenerate):
    """transformers' prompt lookup: `HFGenerate` that drafts.

    Args:
        prompt_lookup_num_tokens, max_matching_ngram_size: as in `HFGenerate`.
    """

    def __init__(self, *, prompt_lookup_num_tokens: int = 10, max_matching_ngram_size: int = 3) -> None:
        check_int("prompt_lookup_num_tokens", prompt_lookup_num_tokens, 1)
        super().__init__(
            prompt_lookup_num_tokens=prompt_lookup_num_tokens, max_matching_ngram_size=max_matching_ngram_size
        )

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        return {"prompt_lookup_num_tokens": num_nodes}


class StopStrings(StoppingCriteria):
    """Ends `generate` once the answer holds a stop string (EOS and limits are `generate`'s own)."""

    def __init__(self, stop: Stop, num_prompt: int) -> None:
        self.stop, self.num_prompt, self.checked = stop, num_prompt, 0

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs: Any) -> Any:
        answer = input_ids[0, self.num_prompt :].tolist()
        ended = any(self.stop.reason(answer[:end]) for end in range(self.checked + 1, len(answer) + 1))
        self.checked = len(answer)
        return torch.tensor([ended], device=input_ids.device)


class FirstForward(StoppingCriteria):
    """Notes when the first forward has ended, and never ends `generate`."""

    def __init__(self, target: TargetModel) -> None:
        self.target, self.ended = target, 0.0
        self.never = torch.zeros(1, dtype=torch.bool, device=target.device)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs: Any) -> Any:
        if not self.ended:
            self.target.synchronize()
            self.ended = perf_counter()
        return self.never


class ForwardCalls:
    """Notes, within `noted`, each forward of the model: the tokens cached before it and the tokens given to it."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.cached: list[int] = []
        self.given: list[int] = []

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """While this is entered, forwards are noted."""
        with self.model.register_forward_pre_hook(self._before, with_kwargs=True):
            yield

    def _before(self, module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        cache = cache_in(kwargs)
        self.cached.append(0 if cache is None else int(cache.get_seq_length()))
        self.given.append(kwargs["input_ids"].shape[1])

    def steps(self, num_prompt: int, num_output: int) -> tuple[list[int], list[int]]:
        """Accept length and number of drafted nodes of each forward after the first, for the tokens that were kept."""
        # Before a forward, all but the last emitted token are cached.
        emitted = [min(cached - num_prompt + 1, num_output) for cached in self.cached[1:]] + [num_output]
        accept_lengths = [after - before for before, after in itertools.pairwise(emitted)]
        if accept_lengths:
            accept_lengths[0] += emitted[0] - 1
        elif num_output > 1:  # the first forward did it all
            accept_lengths = [num_output - 1]
        return accept_lengths, [given - 1 for given in self.given[1:]]
