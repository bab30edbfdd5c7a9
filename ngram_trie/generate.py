"""The library: `speculative_generate` for a transformers model, and `custom_generate` for transformers' `generate`.

Both go through `model.generate`, which resolves the options (defaults, the model's generation config, logits
processors, stopping criteria), and through the project's decoding loop.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import ArrayLike
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.generation import EosTokenCriteria, GenerateDecoderOnlyOutput, GenerationMode, MaxLengthCriteria
from transformers.generation.streamers import BaseStreamer

from ngram_trie import compile_beside
from ngram_trie.budget.adaptive import AdaptiveDrafter, Learned
from ngram_trie.budget.compiling import kinds, warm_up
from ngram_trie.decoding import GenerationResult, SpeculativeDecoder, Stop
from ngram_trie.drafter import MAX_SEED, Drafter, Shape, check_choice, check_int
from ngram_trie.methods import DrafterLike, make_drafter
from ngram_trie.prompt import Prompt
from ngram_trie.targets.chat import render
from ngram_trie.targets.choose import network_for
from ngram_trie.targets.internals import CACHE_ARGUMENTS, attention_of, cache_in
from ngram_trie.targets.load import longest_text
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.sampling import LogitsSampler
from ngram_trie.targets.stock import tree_refusal
from ngram_trie.targets.top_k import GROUP, top_k_rows

#: Whether drafts are cut to what pays, or have all the nodes that the drafter proposes.
Budget = Literal["auto", "fixed"]
#: Token ids (l,) or (1, l), what a tokenizer returns, a text, a chat, or a prompt whose parts are known.
Inputs = ArrayLike | torch.Tensor | str | Sequence[Mapping[str, Any]] | Mapping[str, Any] | Prompt


@dataclass
class Answer(GenerationResult):
    """An answer and how it came about: `output_ids`, `accept_lengths` and `tree_sizes` of each step, `seconds` by
    phase, `stop_reason` ("eos", "stop_string", "max_new_tokens", "context_limit", "criterion").

    Attributes:
        text: the answer decoded without special tokens; empty where no tokenizer was given.
    """

    text: str = ""

    @property
    def accept_length(self) -> float:
        """Tokens emitted a step, on average; plain decoding has 1. NaN for an answer of one token, which took none."""
        return float(np.mean(self.accept_lengths)) if self.accept_lengths else float("nan")


@dataclass
class SpeculativeOutput(GenerateDecoderOnlyOutput):
    """What transformers' `generate` returns, and the `Answer` behind it."""

    result: Answer | None = None


@dataclass(frozen=True)
class CriteriaStop(Stop):
    """A `Stop` that also asks transformers' stopping criteria, after every token.

    Attributes:
        prompt_ids: what the criteria see before the answer.
        criteria: any that look at the text alone.
        device: where they expect the text: the model's.
    """

    prompt_ids: tuple[int, ...] = ()
    criteria: tuple[StoppingCriteria, ...] = ()
    device: torch.device | str = "cpu"

    def reason(self, output_ids: Sequence[int]) -> str | None:
        found = super().reason(output_ids)
        if found or not self.criteria:
            return found
        text = torch.tensor([[*self.prompt_ids, *output_ids]], device=self.device)
        return "criterion" if any(bool(torch.as_tensor(ends(text, None)).all()) for ends in self.criteria) else None


#: What was learned of each model, by what decides the times of its steps and by drafter.
_LEARNED: WeakKeyDictionary[PreTrainedModel, dict[tuple[Any, ...], Learned]] = WeakKeyDictionary()


def _learned(model: PreTrainedModel, drafter: Drafter) -> Learned:
    """What earlier answers of this model with such a drafter taught, and later ones will."""
    key = (model.device, model.dtype, attention_of(model.config), torch.get_num_threads(), *kinds(drafter))
    return _LEARNED.setdefault(model, {}).setdefault(key, Learned())


class Speculator:
    """A model with a drafter, to be asked again and again: the cache's buffers stay, and so does what a warm drafter
    remembers of earlier answers.

    Args:
        model: a causal language model with eager or SDPA attention; it is put in evaluation mode.
        drafter: a name of `method=`, the name with fields, or an object; None takes `blend_logits`, for a model that
            changes its logits in a way that is not known here without the prompt's distributions.
        tokenizer: for texts, chats, stop strings and `Answer.text`.
        num_draft: most nodes of a draft, in place of the named drafter's own.
        shape: "chain" to draft only the best path of each tree (`ngram_trie.budget.rule.ChainDrafter`).
        budget: "auto" drafts the nodes that pay on this machine, none where none does, as it learns from its own steps
            (`budget.adaptive`); "fixed" all that the drafter proposes. A drafter that doesn't say how likely its
            nodes are (`Traits.scores_nodes`) is fixed.

    Raises:
        ValueError: a drafter that does not exist or does not fit, a model that cannot verify drafts; one line.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        drafter: DrafterLike | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        num_draft: int | None = None,
        shape: Shape = "tree",
        budget: Budget = "auto",
    ) -> None:
        model = getattr(model, "_orig_mod", model)  # of torch.compile: a step of drafts is another function
        if hasattr(model, "get_base_model"):  # a PeftModel: its adapters lie in the modules of the model within
            if model.active_peft_config.is_prompt_learning:
                raise ValueError("model: its adapter puts tokens before the prompt; use the model's own generate")
            model = model.get_base_model()
        if reason := tree_refusal(model):
            raise ValueError(reason)
        self.model, self.tokenizer = model, tokenizer
        check_choice("budget", budget, get_args(Budget))
        self._budget, self._fallback_drafter = budget, None
        if drafter is None:
            drafter, self._fallback_drafter = (
                "blend_logits",
                functools.partial(make_drafter, "blend_logits_answer", num_draft, shape),
            )
        made = make_drafter(drafter, num_draft, shape)
        self.drafter = self._sized(made)
        self._unbound_copy = None if isinstance(drafter, Drafter) else made  # of the caller's own no copy is made
        self._capacity = 0
        self._decoder: SpeculativeDecoder | None = None
        self._answering = threading.Lock()

    def _sized(self, drafter: Drafter) -> Drafter:
        """The drafter under the budget that was asked for."""
        if self._budget == "fixed" or not drafter.traits.scores_nodes or isinstance(drafter, AdaptiveDrafter):
            return drafter
        return AdaptiveDrafter(drafter, _learned(self.model, drafter))

    def __call__(
        self,
        inputs: Inputs | None = None,
        *,
        streamer: BaseStreamer | None = None,
        stop_strings: str | Sequence[str] | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> tuple[list[int], Answer]:
        """Answer one prompt; see `speculative_generate`."""
        if options.get("assistant_model") is not None:  # which `generate` gives no custom one
            raise ValueError("assistant_model: drafts come from drafter=; a draft model is drafter='sps'")
        if any(options.get(name) is not None for name in CACHE_ARGUMENTS):
            raise ValueError("past_key_values: the loop has a cache of its own")
        config = options.get("generation_config") or self.model.generation_config
        if options.get("token_healing", config.token_healing):
            raise ValueError(
                "token_healing: it changes the prompt's end; change it before, or use the model's generate"
            )
        is_masked = options.get("attention_mask") is not None
        inputs = _without_keywords(inputs, options)
        prompt = self.read(inputs)
        is_bare = not isinstance(inputs, str | Mapping | Prompt) and not _is_chat(inputs)
        if is_bare and not is_masked and (pad := self._padding(prompt.ids, config, options)) is not None:
            raise ValueError(
                f"inputs: token {pad} is the model's padding: give one text without padding, or "
                "attention_mask=torch.ones(1, l) if it belongs to the text"
            )
        ids = torch.from_numpy(prompt.ids)[None].to(self.model.device)
        ends, options = self.take_stop_strings(stop_strings, options)
        decode = functools.partial(self._decode, prompt=prompt, streamer=streamer, ends=ends, seed=seed)
        generate = generate_of(self.model)
        answer: Answer = generate(ids, attention_mask=torch.ones_like(ids), custom_generate=decode, **options)
        return answer.output_ids, answer

    def custom_generate(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        *,
        stream_to: BaseStreamer | None = None,
        stop_strings: str | Sequence[str] | None = None,
        seed: int | None = None,
        **settled: Any,
    ) -> torch.Tensor | SpeculativeOutput:
        """For `model.generate(..., custom_generate=speculator.custom_generate)`; see `ngram_trie.custom_generate`.
        `settled` is what `generate` gives any method.
        """
        if model is not self.model:
            raise ValueError("custom_generate: this Speculator was made for another model")
        answer = self._decode(model, input_ids, streamer=stream_to, ends=stop_strings, seed=seed, **settled)
        output = torch.tensor([answer.output_ids], device=input_ids.device)
        sequences = torch.cat([input_ids, output], dim=1)
        if settled["generation_config"].return_dict_in_generate:
            return SpeculativeOutput(sequences=sequences, result=answer)
        return sequences

    def take_stop_strings(
        self, given: str | Sequence[str] | None, options: Mapping[str, Any]
    ) -> tuple[str | Sequence[str] | None, dict[str, Any]]:
        """The stop strings that hold, those given or else the config's, and the options of `generate` without any: it
        wants a tokenizer for them, and gives none on.
        """
        options = dict(options)
        config, default = options.get("generation_config"), self.model.generation_config
        strings = [given, config and config.stop_strings, default.stop_strings]
        if config and (config.stop_strings or default.stop_strings):  # it takes a config or single options, not both
            del options["generation_config"]
            values = {name: value for name, value in vars(config).items() if name[0] != "_" and value is not None}
            options = {name: value for name, value in values.items() if name != "transformers_version"} | options
        if any(strings[1:]):
            options["stop_strings"] = None
        return next((each for each in strings if each is not None), None), options

    def read(self, inputs: Inputs) -> Prompt:
        """The prompt in `inputs`.

        Raises:
            ValueError: more than one text, none, padding, tokens that the model has not, or a missing tokenizer.
        """
        prompt = inputs if isinstance(inputs, Prompt) else Prompt(_one_text(self._tokenised(inputs)))
        vocabulary = self.model.get_input_embeddings().num_embeddings
        if not len(prompt.ids) or prompt.ids.min() < 0 or prompt.ids.max() >= vocabulary:
            raise ValueError(f"inputs: at least one token id is needed, each from 0 to {vocabulary - 1}")
        return prompt

    def _padding(self, ids: np.ndarray, config: GenerationConfig, options: Mapping[str, Any]) -> int | None:
        """What of these bare ids `generate` would take for padding, from which it infers a mask."""
        sources = (options, vars(config), vars(self.model.generation_config))
        pad, eos = (
            next((source[name] for source in sources if source.get(name) is not None), None)
            for name in ("pad_token_id", "eos_token_id")
        )
        is_padding = pad is not None and pad in ids and pad not in (eos if isinstance(eos, list) else [eos])
        return pad if is_padding else None

    def _tokenised(self, inputs: Any) -> Any:
        """Token ids of a text, a chat or a tokenizer's output; whatever else it is."""
        if isinstance(inputs, Mapping):
            if "input_ids" not in inputs:
                raise ValueError(f"inputs: a mapping needs input_ids, this one has {', '.join(map(str, inputs))}")
            _check_mask(inputs.get("attention_mask", 1))
            return inputs["input_ids"]
        is_chat = _is_chat(inputs)
        if not isinstance(inputs, str) and not is_chat:
            return inputs
        if self.tokenizer is None:
            raise ValueError(f"inputs: a {'chat' if is_chat else 'text'} needs the model's tokenizer: tokenizer=...")
        if isinstance(inputs, str):
            return self.tokenizer(inputs)["input_ids"]
        if not self.tokenizer.chat_template:
            raise ValueError("inputs: this tokenizer has no chat template; set one, or give a text or token ids")
        return render(self.tokenizer, inputs, add_generation_prompt=True, return_dict=False)

    @contextlib.contextmanager
    def _reserved(self, prompt: Prompt, num_new: int) -> Iterator[SpeculativeDecoder]:
        """The loop, for one answer alone, over a cache for `num_new` tokens, or for as many as the model can take
        behind such a prompt; a new one for a model that was changed. All that it needs is compiled.

        Raises:
            RuntimeError: another answer is under way.
        """
        if not self._answering.acquire(blocking=False):
            raise RuntimeError("this Speculator is at another answer: make one for each thread, and for each streamer")
        try:
            longest = longest_text(self.model.config, sys.maxsize)
            num_tokens = len(prompt.ids) + num_new
            is_short = self._capacity < min(num_tokens, longest)
            capacity = min(max(num_tokens, 2 * self._capacity), longest) if is_short else self._capacity
            is_default = self._fallback_drafter is not None and self._unbound_copy is not None
            compiling = compile_beside.begin() if is_default else None
            network = network_for(self.model, capacity)
            if self._decoder is None or is_short or network is not self._decoder.target.network:
                if self._decoder is not None:  # its memory is free before more is taken
                    del self._decoder.target.cache
                    self._decoder = None
                target = TargetModel(self.model, context_limit=capacity, network=network)
                if self._fallback_drafter and not target.knows_head():
                    self.drafter, self._fallback_drafter = self._sized(self._fallback_drafter()), None
                if compiling:
                    top_k_rows(np.zeros(1, np.int64), torch.zeros(1, GROUP), 1)  # compiled here meanwhile
                    compiling.wait()
                if self._unbound_copy is not None:
                    warm_up(self._unbound_copy, prompt, target)
                    self._unbound_copy = None
                self._decoder, self._capacity = SpeculativeDecoder(target, self.drafter), capacity
            self._decoder.target.context_limit = min(self._capacity, longest)
            yield self._decoder
        finally:
            self._answering.release()

    def _decode(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        prompt: Prompt | None = None,
        streamer: BaseStreamer | None = None,
        ends: str | Sequence[str] | None = None,
        seed: int | None = None,
        **model_kwargs: Any,
    ) -> Answer:
        """What `generate` calls once it has settled everything; `ends` are the stop strings, under a name that it
        does not know.
        """
        check_supported(generation_config, model_kwargs)
        if seed is not None:
            check_int("seed", seed, 0, MAX_SEED)
        prompt = prompt or Prompt(_one_text(input_ids))
        # limits and EOS tokens are among the criteria; a limit of the caller's own takes the place of generate's
        lengths = [kind.max_length for kind in stopping_criteria if isinstance(kind, MaxLengthCriteria)]
        eos = [kind.eos_token_id.tolist() for kind in stopping_criteria if isinstance(kind, EosTokenCriteria)]
        others = [kind for kind in stopping_criteria if not isinstance(kind, MaxLengthCriteria | EosTokenCriteria)]
        if ends and self.tokenizer is None:
            raise ValueError("stop_strings: finding them needs the model's tokenizer: tokenizer=...")
        stop = CriteriaStop(
            max_new_tokens=min(lengths, default=generation_config.max_length) - len(prompt.ids),
            eos_ids=frozenset(itertools.chain.from_iterable(eos)),
            stop_strings=(ends,) if isinstance(ends, str) else tuple(ends or ()),
            decode=self.tokenizer.decode if self.tokenizer else None,
            prompt_ids=tuple(prompt.ids.tolist()),
            criteria=tuple(others),
            device=model.device,
        )
        sampler = None
        if generation_config.do_sample or logits_processor:
            generator = None if seed is None else torch.Generator(model.device).manual_seed(seed)
            sampler = LogitsSampler(logits_processor, generation_config.do_sample, generator)
        with self._reserved(prompt, stop.max_new_tokens) as decoder:
            if streamer is None:
                result = decoder.generate(prompt, stop, sampler)
            else:
                streamer.put(input_ids.cpu())
                result = decoder.generate(prompt, stop, sampler, functools.partial(_put, streamer))
                streamer.end()
        text = self.tokenizer.decode(result.output_ids, skip_special_tokens=True) if self.tokenizer else ""
        return Answer(**vars(result), text=text)


def generate_of(model: Any) -> Callable[..., Any]:
    """The model's `generate`; its class's, where transformers has put in its place what the model's repository brings
    along as `custom_generate`, ours among it.
    """
    own = vars(model).get("generate")
    is_brought = isinstance(own, functools.partial) and own.keywords.get("model") is model
    return functools.partial(type(model).generate, model) if is_brought else model.generate


def check_supported(config: GenerationConfig, model_kwargs: Mapping[str, Any]) -> None:
    """Raises:
    ValueError: `generate` was asked for something that the loop does not do.
    """
    mode = config.get_generation_mode()
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE) or (config.num_return_sequences or 1) > 1:
        raise ValueError(
            f"num_beams={config.num_beams}, num_return_sequences={config.num_return_sequences}, mode {mode.value}: "
            "drafts are verified for one answer, by greedy decoding or sampling"
        )
    for option in ("output_scores", "output_logits", "output_attentions", "output_hidden_states"):
        if getattr(config, option):
            raise ValueError(f"{option}=True: a step verifies many tokens at once and keeps none of these")
    if config.remove_invalid_values:
        raise ValueError(
            "remove_invalid_values=True: a logit that is NaN or infinite ends an answer here; set it to False"
        )
    # an empty mapping stands for the pictures that there are not
    given = {
        name: value
        for name, value in model_kwargs.items()
        if value is not None and not (isinstance(value, Mapping) and not value)
    }
    if "attention_mask" in given:  # generate drops a mask that hides nothing
        raise ValueError("attention_mask: it hides tokens; give one text without padding")
    cache = cache_in(given)
    if cache is not None and cache.get_seq_length():
        raise ValueError("past_key_values: the loop has a cache of its own and starts with an empty one")
    positions = given.get("position_ids")
    # of models for pictures there is a row for each of several dimensions, which of text alone are equal
    if positions is not None and not (positions == torch.arange(positions.shape[-1]).to(positions)).all():
        raise ValueError("position_ids: they count up from 0 here")
    unknown = set(given) - {*CACHE_ARGUMENTS, "position_ids", "use_cache", "logits_to_keep"}
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))}: the loop gives the model token ids and nothing else")


def speculative_generate(
    model: PreTrainedModel,
    inputs: Inputs | None = None,
    drafter: DrafterLike | None = None,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    num_draft: int | None = None,
    shape: Shape = "tree",
    budget: Budget = "auto",
    streamer: BaseStreamer | None = None,
    stop_strings: str | Sequence[str] | None = None,
    seed: int | None = None,
    **options: Any,
) -> tuple[list[int], Answer]:
    """What `model.generate` would answer to one prompt, in fewer forwards.

    Args:
        model: a causal language model of transformers, with eager or SDPA attention; it is put in evaluation mode.
        inputs: one text: token ids (l,) or (1, l), what a tokenizer returns, a string, a chat (a list of messages with
            "role" and "content"), or a `Prompt`, for drafters that read a part of it. What a tokenizer returns may also
            be given as keywords, as `generate` takes it: input_ids, attention_mask.
        drafter: a name of `method=` in configs/method, the name with fields ({"name": "ngram_trie", "n": 8}), or a
            `Drafter`; None for `Speculator`, which keeps it, and the cache, from prompt to prompt.
        tokenizer, num_draft, shape, budget: as in `Speculator`.
        streamer: of transformers; is given the prompt, then each token as soon as it is known.
        stop_strings: the answer ends with the token that completes one of them.
        seed: of the draws; None takes torch's own generator, as transformers does.
        options: those of transformers' `generate`, with its defaults: max_new_tokens, do_sample, temperature, top_k,
            top_p, eos_token_id, repetition_penalty, generation_config, stopping_criteria, ...

    Returns:
        The answer's token ids, without the prompt, and an `Answer`: text, accept lengths, seconds.

    Raises:
        ValueError: an option, an input or a drafter that does not fit; one line.
        PromptTooLong: the prompt fills the model's context.
    """
    speculator = Speculator(model, drafter, tokenizer, num_draft=num_draft, shape=shape, budget=budget)
    return speculator(inputs, streamer=streamer, stop_strings=stop_strings, seed=seed, **options)


def custom_generate(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    *,
    drafter: DrafterLike | None = None,
    num_draft: int | None = None,
    shape: Shape = "tree",
    budget: Budget = "auto",
    stream_to: BaseStreamer | None = None,
    seed: int | None = None,
    **settled: Any,
) -> torch.Tensor | SpeculativeOutput:
    """For `model.generate(**inputs, custom_generate=custom_generate, drafter="blend", max_new_tokens=100)`.

    Args:
        drafter, num_draft, shape, budget, seed: as in `speculative_generate`; beside the options of
            `generate`.
        stream_to: the streamer. transformers (5.23) gives a callable neither its `streamer` nor its `tokenizer`; for
            stop strings give `stopping_criteria=[StopStringCriteria(...)]`, or take `Speculator.custom_generate`.

    Returns:
        What `generate` returns: prompt and answer (1, l), or with `return_dict_in_generate` a `SpeculativeOutput`.
    """
    speculator = Speculator(model, drafter, num_draft=num_draft, shape=shape, budget=budget)
    return speculator.custom_generate(model, input_ids, stream_to=stream_to, seed=seed, **settled)


def _without_keywords(inputs: Any, options: dict[str, Any]) -> Any:
    """The prompt, which may stand among the `options` of `generate`; what a tokenizer gives is taken out of these."""
    keywords = {
        name: options.pop(name) for name in ("input_ids", "attention_mask", "token_type_ids") if name in options
    }
    if inputs is None:
        inputs = keywords.pop("input_ids", None)
    if inputs is None:
        raise ValueError("inputs: give a prompt: a text, a chat, or token ids")
    if "input_ids" in keywords:
        raise ValueError("inputs: given twice; give them as inputs or as input_ids")
    _check_mask(keywords.get("attention_mask", 1))
    return inputs


def _is_chat(inputs: Any) -> bool:
    return isinstance(inputs, Sequence) and len(inputs) > 0 and isinstance(inputs[0], Mapping)


def _check_mask(mask: Any) -> None:
    if not np.all(torch.as_tensor(1 if mask is None else mask).numpy(force=True)):
        raise ValueError("inputs: the attention mask hides tokens; give one text without padding")


def _one_text(ids: Any, field: str = "inputs") -> np.ndarray:
    """(l,) token ids out of (l,) or (1, l).

    Raises:
        ValueError: it is something else.
    """
    try:
        array = np.asarray(ids.numpy(force=True) if isinstance(ids, torch.Tensor) else ids)
    except ValueError:
        raise ValueError(
            f"{field}: rows of different length; token ids of one text are needed, (l,) or (1, l)"
        ) from None
    if array.ndim == 2 and len(array) == 1:
        array = array[0]
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ValueError(
            f"{field}: token ids of one text are needed, (l,) or (1, l), not {array.dtype} of shape {array.shape}: "
            "answer the texts of a batch one by one"
        )
    return array.astype(np.int64)


def _put(streamer: BaseStreamer, new_ids: list[int]) -> None:
    """Token by token, as `generate` does it."""
    for token in new_ids:
        streamer.put(torch.tensor([token]))
