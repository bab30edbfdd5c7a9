"""`speculative_generate` and `generate(custom_generate=...)` answer as transformers' `generate`, token by token."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from support.families import FAMILIES, family_model
from support.tiny import VOCABULARY, tiny_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    GenerationConfig,
    MaxLengthCriteria,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StopStringCriteria,
    TextIteratorStreamer,
)
from transformers.generation.streamers import BaseStreamer

from ngram_trie import Speculator, custom_generate, generate, speculative_generate
from ngram_trie.baselines.jacobi import Jacobi
from ngram_trie.blend.variants import BlendDrafter, BlendLogitsDrafter
from ngram_trie.budget.adaptive import AdaptiveDrafter
from ngram_trie.budget.rule import ChainDrafter
from ngram_trie.drafter import WrappedDrafter
from ngram_trie.drafters import NgramTrieDrafter
from ngram_trie.generate import CriteriaStop
from ngram_trie.methods import make_drafter
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import PROJECT
from ngram_trie.targets.load import longest_text
from ngram_trie.targets.model import TargetModel
from ngram_trie.tree import DraftTree

PROMPT = [3, 4, 5, 6, 7] * 5
DRAFTERS = ["blend", "blend_logits", "ngram_trie", "pld", "suffix"]
CHAT = [
    {"role": "user", "content": "Where was Anna Sharp born?"},
    {"role": "assistant", "content": "Anna Sharp was born in Fenford."},
    {"role": "user", "content": "Calder Works was the idea of Anna Sharp. Whose idea was Calder Works?"},
]


def plain(model: PreTrainedModel, prompt: list[int], **options: Any) -> list[int]:
    """transformers' own answer."""
    ids = torch.tensor([prompt])
    return model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, len(prompt) :].tolist()


@pytest.fixture(scope="module")
def tiny() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    folder = PROJECT / "data/tiny/model"
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def told(tiny: tuple[PreTrainedModel, PreTrainedTokenizerBase]) -> tuple[list[int], list[int]]:
    """The chat's token ids and transformers' answer to it."""
    model, tokenizer = tiny
    ids = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    return ids, plain(model, ids, max_new_tokens=30)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral", "phi3"])
def test_greedy_answers_are_those_of_generate(family: str, attention: str) -> None:
    accept_lengths, different = [], 0
    for spread in (0.3, 0.6):  # one repeats itself, so that drafts are accepted, the other does not
        model = tiny_model(family, attention, initializer_range=spread)
        expected = plain(model, PROMPT, max_new_tokens=40, eos_token_id=None)
        different = max(different, len(set(expected)))
        for drafter in DRAFTERS:
            ids, result = speculative_generate(
                model, PROMPT, drafter, budget="fixed", max_new_tokens=40, eos_token_id=None
            )
            assert speculative_generate(model, PROMPT, drafter, max_new_tokens=40, eos_token_id=None)[0] == ids
            assert ids == result.output_ids == expected
            assert sum(result.accept_lengths) + 1 == len(ids)
            assert result.stop_reason == "max_new_tokens"
            accept_lengths += result.accept_lengths
    assert max(accept_lengths) > 1
    assert different > 10


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_and_sampling_on_a_gpu(family: str) -> None:
    model = family_model(family).to("cuda")
    ids = torch.tensor([PROMPT], device="cuda")
    expected = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40)[0, len(PROMPT) :].tolist()
    assert speculative_generate(model, ids, max_new_tokens=40)[0] == expected
    options = {"max_new_tokens": 20, "do_sample": True, "temperature": 0.7, "seed": 1}
    assert speculative_generate(model, ids, **options)[0] == speculative_generate(model, ids, **options)[0]


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.3},
        {"no_repeat_ngram_size": 2, "min_new_tokens": 25},
        {"suppress_tokens": [1, 5, 9], "renormalize_logits": True},
        {"bad_words_ids": [[7], [8, 9]], "sequence_bias": {(3, 4): 2.0, (11,): 1.0}},
    ],
    ids=lambda options: next(iter(options)),
)
def test_logits_processors_see_each_node_s_own_text(drafter: str, options: dict[str, Any]) -> None:
    model = tiny_model("llama")
    expected = plain(model, PROMPT, max_new_tokens=30, **options)
    assert expected != plain(model, PROMPT, max_new_tokens=30)
    assert speculative_generate(model, PROMPT, drafter, max_new_tokens=30, **options)[0] == expected


def test_a_sampled_answer_of_temperature_near_0_is_the_greedy_one() -> None:
    model = tiny_model("llama")
    options = {"max_new_tokens": 30, "do_sample": True}
    expected = plain(model, PROMPT, max_new_tokens=30)
    for narrow in ({"temperature": 1e-4}, {"top_k": 1}, {"top_p": 1e-6}):
        assert speculative_generate(model, PROMPT, **options, **narrow)[0] == expected


def test_defaults_come_from_the_generation_config() -> None:
    model = tiny_model("llama")
    long = plain(model, PROMPT, max_new_tokens=40, eos_token_id=None)
    model.generation_config.max_new_tokens = 25
    model.generation_config.eos_token_id = [long[20], 99]
    ids, result = speculative_generate(model, PROMPT)
    assert ids == long[: long.index(long[20]) + 1]
    assert result.stop_reason == "eos"
    model.generation_config.eos_token_id = None
    assert speculative_generate(model, PROMPT)[0] == long[:25]
    assert speculative_generate(model, PROMPT, max_new_tokens=7)[0] == long[:7]


@pytest.mark.parametrize("drafter", ["sps", "medusa", "hydra", "lookahead", "jacobi", "token_recycling", "sam", "llma"])
def test_drafters_that_read_more_than_tokens(drafter: str, tiny: Any, told: tuple[list[int], list[int]]) -> None:
    model, _ = tiny
    speculator = Speculator(model, drafter, budget="fixed")
    ids, result = speculator(told[0], max_new_tokens=30)
    assert ids == told[1]
    assert result.accept_length > 1
    options = {"max_new_tokens": 15, "do_sample": True, "temperature": 0.7}
    first, again = (speculator(told[0], seed=2, **options)[0] for _ in range(2))
    assert first == again


def test_a_draft_model_goes_on_where_its_draft_was_cut_or_not_asked_for(
    tiny: Any, told: tuple[list[int], list[int]]
) -> None:
    class Cut(WrappedDrafter):
        """Keeps some of each draft, and does not ask for every one."""

        asked, unread = 0, ()

        def observe(self, new_ids: Sequence[int]) -> None:
            self.unread = (*self.unread, *new_ids)

        def propose(self, budget: int) -> DraftTree:
            self.asked += 1
            if self.asked % 24 > 12:
                return DraftTree.root_only(self.unread[-1])
            self.drafter.observe(self.unread)
            self.unread = ()
            tree = self.drafter.propose(budget)
            return tree.part(np.arange(min(len(tree), 1 + self.asked % 4)))

    ids, result = speculative_generate(tiny[0], told[0], Cut(make_drafter("sps")), budget="fixed", max_new_tokens=30)
    assert ids == told[1] and result.accept_length > 1


def test_a_drafter_by_name_with_fields_and_as_an_object() -> None:
    model = tiny_model("llama")
    fields = {"name": "ngram_trie", "n": 6, "prefix_len": 2, "update_with_output": True}
    _, named = speculative_generate(model, PROMPT, fields, num_draft=5, budget="fixed", max_new_tokens=30)
    drafter = NgramTrieDrafter(n=6, prefix_len=2, update_with_output=True, num_draft=5)
    _, built = speculative_generate(model, PROMPT, drafter, budget="fixed", max_new_tokens=30)
    assert named.tree_sizes == built.tree_sizes
    assert named.accept_lengths == built.accept_lengths
    assert 0 < max(named.tree_sizes) <= 5
    assert named.accept_length == np.mean(named.accept_lengths)


def test_a_number_of_nodes_is_spent_as_in_a_table() -> None:
    drafter = make_drafter("sam_token_recycling", 8)
    assert (drafter.copies.num_draft, drafter.recycled.num_draft) == (8, 8)  # type: ignore[attr-defined]
    assert make_drafter("lookahead", 8).window == 2  # type: ignore[attr-defined]
    assert make_drafter("suffix", 8).alpha is None  # type: ignore[attr-defined]
    assert make_drafter("llma", 8).k == 9  # type: ignore[attr-defined]
    assert make_drafter("vanilla", 8, "chain") is not None  # vLLM asks every drafter


def test_chains_of_any_drafter() -> None:
    model = tiny_model("llama")
    expected = plain(model, PROMPT, max_new_tokens=30)
    for drafter in ("blend", {"name": "blend", "num_draft": 16}, BlendDrafter(), "token_recycling", "pld"):
        ids, trees = speculative_generate(model, PROMPT, drafter, budget="fixed", max_new_tokens=30)
        chained, chains = speculative_generate(model, PROMPT, drafter, shape="chain", budget="fixed", max_new_tokens=30)
        assert ids == chained == expected
        assert sum(chains.tree_sizes) < sum(trees.tree_sizes) or drafter == "pld", "prompt lookup copies chains"
    drafter = Speculator(model, "blend", num_draft=3, shape="chain", budget="fixed").drafter
    assert isinstance(drafter, ChainDrafter) and (drafter.num_nodes, drafter.drafter.num_draft) == (3, 64)
    ids, answer = speculative_generate(
        model, PROMPT, "blend", num_draft=3, shape="chain", budget="fixed", max_new_tokens=30
    )
    assert ids == expected and max(answer.tree_sizes) == 3
    inputs = torch.tensor([PROMPT])
    told = model.generate(inputs, custom_generate=custom_generate, shape="chain", max_new_tokens=30)
    assert told[0, len(PROMPT) :].tolist() == expected
    assert isinstance(make_drafter("jacobi", 20, "chain"), Jacobi)
    with pytest.raises(ValueError, match=r"^shape='star': must be one of tree, chain$"):
        Speculator(model, shape="star")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^method lookahead: shape=chain: Lookahead does not say how likely"):
        Speculator(model, "lookahead", shape="chain")


def test_without_a_name_the_drafter_is_one_that_the_model_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head whose logits are changed on the way says nothing of the prompt, and the answer is the model's own."""
    model = tiny_model("llama")
    for known, step in ((True, 1), (False, 0)):
        monkeypatch.setattr(TargetModel, "knows_head", lambda self, known=known: known)
        speculator = Speculator(model, budget="fixed")
        ids, _ = speculator(PROMPT, max_new_tokens=20)
        assert isinstance(speculator.drafter, BlendLogitsDrafter) and speculator.drafter.prompt_step == step
        assert ids == model.generate(torch.tensor([PROMPT]), max_new_tokens=20)[0, len(PROMPT) :].tolist()


def test_every_form_of_one_text(tiny: Any, told: tuple[list[int], list[int]]) -> None:
    model, tokenizer = tiny
    ids, _ = told
    speculator = Speculator(model, tokenizer=tokenizer)
    encoded = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    forms = [CHAT, ids, np.array(ids), torch.tensor(ids), torch.tensor([ids]), encoded, Prompt(np.array(ids))]
    assert all(speculator.read(form).ids.tolist() == ids for form in forms)
    text = "Calder Works was the idea of Anna Sharp."
    assert speculator.read(text).ids.tolist() == tokenizer(text)["input_ids"]


def test_a_prompt_s_parts_reach_the_drafter(tiny: Any, told: tuple[list[int], list[int]]) -> None:
    model, _ = tiny
    ids, expected = told
    drafter = {"name": "ngram_trie", "context": "context"}
    answer, _ = speculative_generate(model, Prompt(np.array(ids), {"context": (5, 20)}), drafter, max_new_tokens=30)
    assert answer == expected
    with pytest.raises(ValueError, match=r"^context='context': this prompt has the parts prompt$"):
        speculative_generate(model, ids, drafter, max_new_tokens=30)


def test_a_chat_is_answered_as_text(tiny: Any, told: tuple[list[int], list[int]]) -> None:
    model, tokenizer = tiny
    ids, result = speculative_generate(model, CHAT, tokenizer=tokenizer, max_new_tokens=30, budget="fixed")
    assert ids == told[1]
    assert result.text == tokenizer.decode(ids, skip_special_tokens=True)
    assert result.accept_length > 1


def test_stop_strings_end_where_generate_ends(tiny: Any, told: tuple[list[int], list[int]]) -> None:
    model, tokenizer = tiny
    ids, expected = told
    text = tokenizer.decode(expected)
    stop = text[len(text) // 2 : len(text) // 2 + 6]  # wherever token and draft borders lie
    wanted = plain(model, ids, max_new_tokens=30, stop_strings=[stop], tokenizer=tokenizer)
    assert wanted == expected[: len(wanted)] != expected
    for stops in (stop, ["never said", stop]):
        answer, result = speculative_generate(model, ids, tokenizer=tokenizer, max_new_tokens=30, stop_strings=stops)
        assert answer == wanted
        assert result.stop_reason == "stop_string"
    options = {"max_new_tokens": 30, "attention_mask": torch.ones(1, len(ids))}
    speculator = Speculator(model, "pld", tokenizer)
    answers = [
        model.generate(torch.tensor([ids]), custom_generate=speculator.custom_generate, stop_strings=stop, **options),
        model.generate(
            torch.tensor([ids]),
            custom_generate=custom_generate,
            stopping_criteria=[StopStringCriteria(tokenizer, [stop])],
            return_dict_in_generate=True,
            **options,
        ),
    ]
    assert answers[0][0, len(ids) :].tolist() == wanted
    assert answers[1].sequences[0, len(ids) :].tolist() == wanted
    assert answers[1].result.stop_reason == "criterion"


class Recorder(BaseStreamer):
    def __init__(self) -> None:
        self.puts: list[list[int]] = []
        self.ended = 0

    def put(self, value: torch.Tensor) -> None:
        assert not self.ended
        self.puts.append(value.flatten().tolist())

    def end(self) -> None:
        self.ended += 1


def test_tokens_are_streamed_as_they_are_emitted() -> None:
    streamer = Recorder()

    class Watching(NgramTrieDrafter):
        def propose(self, budget: int) -> Any:
            assert sum(map(len, streamer.puts)) == len(self.text)  # all that is known is out
            return super().propose(budget)

    drafter = Watching(update_with_output=True)
    ids, result = speculative_generate(
        tiny_model("llama"), PROMPT, drafter, budget="fixed", max_new_tokens=30, streamer=streamer
    )
    assert max(result.accept_lengths) > 1
    assert streamer.puts == [PROMPT, *([token] for token in ids)]
    assert streamer.ended == 1


def test_transformers_streamers_work(tiny: Any, told: tuple[list[int], list[int]]) -> None:
    model, tokenizer = tiny
    ids, expected = told
    calls = [
        lambda streamer: speculative_generate(model, ids, max_new_tokens=30, streamer=streamer),
        lambda streamer: model.generate(
            torch.tensor([ids]), max_new_tokens=30, custom_generate=custom_generate, stream_to=streamer
        ),
    ]
    for call in calls:
        streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=60)
        thread = threading.Thread(target=call, args=[streamer])
        thread.start()
        assert "".join(streamer) == tokenizer.decode(expected)
        thread.join()


def test_stop_strings_of_a_generation_config(
    tiny: Any, told: tuple[list[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call's own, else the given config's, else the model's."""
    model, tokenizer = tiny
    ids, expected = told
    text = tokenizer.decode(expected)
    early, late = text[10:16], text[len(text) // 2 : len(text) // 2 + 6]
    config = GenerationConfig(stop_strings=[late], max_new_tokens=30)
    wanted = plain(model, ids, generation_config=config, tokenizer=tokenizer)
    sooner = plain(model, ids, max_new_tokens=30, stop_strings=early, tokenizer=tokenizer)
    assert len(sooner) < len(wanted) < len(expected)
    assert speculative_generate(model, ids, tokenizer=tokenizer, generation_config=config)[0] == wanted
    assert config.stop_strings == [late]
    monkeypatch.setattr(model.generation_config, "stop_strings", early)
    answer, result = speculative_generate(model, ids, tokenizer=tokenizer, max_new_tokens=30)
    assert answer == sooner and result.stop_reason == "stop_string"
    assert speculative_generate(model, ids, tokenizer=tokenizer, generation_config=config)[0] == wanted
    own = {"max_new_tokens": 30, "stop_strings": late}
    assert speculative_generate(model, ids, tokenizer=tokenizer, **own)[0] == wanted
    with pytest.raises(ValueError, match=r"^stop_strings: finding them needs the model's tokenizer"):
        speculative_generate(model, ids, max_new_tokens=30)


@pytest.mark.parametrize("length", [7, 45])
def test_a_length_criterion_of_the_callers_stands_in_place_of_generate_s(length: int) -> None:
    model = tiny_model("llama")
    options = {"max_new_tokens": 30, "eos_token_id": None}
    options["stopping_criteria"] = [MaxLengthCriteria(len(PROMPT) + length)]
    expected = plain(model, PROMPT, **options)
    assert len(expected) == length
    assert speculative_generate(model, PROMPT, **options)[0] == expected


def test_criteria_are_given_the_text_where_the_model_is() -> None:
    seen = []

    class Watches(StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
            seen.append((input_ids.device.type, tuple(input_ids.shape)))
            return torch.tensor([True])

    assert CriteriaStop(prompt_ids=(3, 4), criteria=(Watches(),), device="meta").reason([5]) == "criterion"
    assert seen == [("meta", (1, 3))]


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_custom_generate_returns_what_generate_returns(drafter: str) -> None:
    model = tiny_model("llama")
    inputs = {"input_ids": torch.tensor([PROMPT]), "attention_mask": torch.ones(1, len(PROMPT), dtype=torch.long)}
    expected = model.generate(**inputs, max_new_tokens=30)
    options = {"custom_generate": custom_generate, "drafter": drafter, "num_draft": 6}
    assert torch.equal(model.generate(**inputs, max_new_tokens=30, **options), expected)
    assert torch.equal(model.generate(**inputs, max_length=len(PROMPT) + 30, **options), expected)
    output = model.generate(**inputs, max_new_tokens=30, return_dict_in_generate=True, **options)
    assert torch.equal(output.sequences, expected)
    assert output.result.output_ids == expected[0, len(PROMPT) :].tolist()
    sampled = {"do_sample": True, "temperature": 0.9, "top_p": 0.95, "seed": 3, "max_new_tokens": 20}
    assert torch.equal(model.generate(**inputs, **sampled, **options), model.generate(**inputs, **sampled, **options))


def test_stopping_criteria_are_asked_after_every_token() -> None:
    class AtLength(StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
            return torch.tensor([input_ids.shape[1] == len(PROMPT) + 17])

    model = tiny_model("llama")
    ids, result = speculative_generate(model, PROMPT, max_new_tokens=40, stopping_criteria=[AtLength()])
    assert ids == plain(model, PROMPT, max_new_tokens=17)
    assert result.stop_reason == "criterion"


def test_a_speculator_grows_with_the_text_and_keeps_what_the_drafter_learned() -> None:
    model = tiny_model("llama")
    speculator = Speculator(model, {"name": "suffix", "remember_outputs": True}, budget="fixed")
    first, cold = speculator(PROMPT, max_new_tokens=20)
    again, warm = speculator(PROMPT, max_new_tokens=20)
    assert first == again
    assert warm.accept_length > cold.accept_length
    longer, _ = speculator(PROMPT * 3, max_new_tokens=60)
    assert longer == plain(model, PROMPT * 3, max_new_tokens=60)
    assert speculator(PROMPT, max_new_tokens=20)[0] == first


@pytest.mark.parametrize(
    ("family", "rope"),
    [
        ("phi3", {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0]}),
        ("llama", {"rope_type": "dynamic", "factor": 4.0}),
        ("llama", {"rope_type": "yarn", "factor": 4.0}),
    ],
)
def test_scaled_rotation_reaches_as_far_as_generate_goes(family: str, rope: dict[str, Any]) -> None:
    """Some turn keys otherwise beyond a length: steps are plain there. The first text begins before it."""
    rope |= {"rope_theta": 1e4, "original_max_position_embeddings": 48}
    longest = 160 if family == "phi3" else 48
    fields = {"original_max_position_embeddings": 48} if family == "phi3" else {}
    model = tiny_model(family, rope_parameters=rope, max_position_embeddings=longest, **fields)
    speculator = Speculator(model, "suffix", budget="fixed")
    options = {"max_new_tokens": 40, "eos_token_id": None}
    for prompt in (PROMPT * 2, PROMPT, PROMPT * 3):
        expected = plain(copy.deepcopy(model), prompt, **options)  # the length of the last text stays in such a model
        ids, result = speculator(prompt, **options)
        assert ids == expected and len(ids) == 40
        if rope["rope_type"] == "dynamic":
            lengths = len(prompt) + np.cumsum([1, *result.accept_lengths])
            assert not any(size for size, length in zip(result.tree_sizes, lengths, strict=False) if length > 48)
    assert longest_text(model.config) == (160 if family == "phi3" else 192)


def test_drafting_needs_no_torch() -> None:
    code = "import sys, ngram_trie, ngram_trie.blend.variants, ngram_trie.drafters; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ({"drafter": "blent"}, {}, r"^method=blent: did you mean blend.*\? There are: blend, "),
        ({"drafter": {"name": "pld", "max_ngrams": 2}}, {}, r"^method pld: max_ngrams: did you mean max_ngram\?"),
        ({"drafter": {"n": 2}}, {}, r"^drafter=\{'n': 2\}: give its name"),
        ({"drafter": 7}, {}, r"^drafter: a int is neither a name"),
        ({"drafter": "blend", "num_draft": 0}, {}, r"^method blend: num_draft=0: must be an integer of at least 1$"),
        ({"drafter": {"name": "llma", "k": 20}, "num_draft": 8}, {}, r"^method llma: num_draft sets k: give the one"),
        ({"drafter": "hf_generate", "num_draft": 8}, {}, r"^method hf_generate has a decoding loop of its own"),
        ({"drafter": "vanilla", "num_draft": 8}, {}, r"^method vanilla: num_draft: its drafts have no size"),
        ({"drafter": "hf_generate"}, {}, r"^method hf_generate has a decoding loop of its own"),
        ({"drafter": "space"}, {}, r"^method space drafts for a model of its own"),
        ({"drafter": "ngrammys_bigram"}, {}, r"^method ngrammys_bigram: give tables$"),
        ({"drafter": NgramTrieDrafter(), "num_draft": 3}, {}, r"^num_draft: this drafter is an object"),
        ({"inputs": [[1, 2], [3, 4]]}, {}, r"^inputs: token ids of one text .* of shape \(2, 2\): answer the texts"),
        ({"inputs": [[1, 2], [3]]}, {}, r"^inputs: rows of different length"),
        ({"inputs": [1.5]}, {}, r"^inputs: token ids of one text"),
        ({"inputs": []}, {}, r"^inputs: at least one token id is needed"),
        ({"inputs": [VOCABULARY]}, {}, rf"^inputs: at least one token id is needed, each from 0 to {VOCABULARY - 1}$"),
        ({"inputs": "text"}, {}, r"^inputs: a text needs the model's tokenizer"),
        ({"inputs": CHAT}, {}, r"^inputs: a chat needs the model's tokenizer"),
        ({"inputs": {"ids": [1]}}, {}, r"^inputs: a mapping needs input_ids, this one has ids$"),
        ({"inputs": {"input_ids": [0, 1], "attention_mask": [0, 1]}}, {}, r"^inputs: the attention mask hides"),
        ({}, {"attention_mask": torch.tensor([[0] * 5 + [1] * 20])}, r"^inputs: the attention mask hides"),
        ({"inputs": None}, {}, r"^inputs: give a prompt"),
        ({"inputs": [9, 9, *PROMPT]}, {"pad_token_id": 9}, r"^inputs: token 9 is the model's padding"),
        ({"inputs": [0, 0, *PROMPT]}, {}, r"^inputs: token 0 is the model's padding: give one text without padding"),
        ({}, {"input_ids": PROMPT}, r"^inputs: given twice"),
        ({}, {"token_healing": True}, r"^token_healing: it changes the prompt's end"),
        ({}, {"past_key_values": DynamicCache()}, r"^past_key_values: the loop has a cache of its own"),
        ({}, {"remove_invalid_values": True}, r"^remove_invalid_values=True: "),
        ({}, {"num_beams": 2}, r"^num_beams=2, num_return_sequences=1, mode beam_search: "),
        ({}, {"do_sample": True, "num_return_sequences": 2}, r"^num_beams=1, num_return_sequences=2, mode sample: "),
        ({}, {"output_scores": True, "return_dict_in_generate": True}, r"^output_scores=True: "),
        ({}, {"stop_strings": ["a"]}, r"^stop_strings: finding them needs the model's tokenizer"),
        ({}, {"guidance_scale": 2.0}, r"^logits processor UnbatchedClassifierFreeGuidanceLogitsProcessor: "),
        ({}, {"temprature": 0.5}, r"temprature"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(
    arguments: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        speculative_generate(**{"model": tiny_model("llama"), "inputs": PROMPT} | arguments | options)
    assert "\n" not in str(error.value)


def test_what_a_tokenizer_returns_may_be_keywords_and_a_compiled_model_is_its_own() -> None:
    model, ids = tiny_model("llama"), torch.tensor([PROMPT])
    tokenised, expected = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, plain(model, PROMPT)
    assert speculative_generate(model, **tokenised)[0] == expected
    assert speculative_generate(model, ids, attention_mask=torch.ones_like(ids))[0] == expected
    assert speculative_generate(torch.compile(model), ids)[0] == expected  # type: ignore[arg-type]


def test_a_prompt_that_memory_does_not_hold_takes_nothing_from_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []

    def target(*args: Any, context_limit: int, **options: Any) -> TargetModel:
        assert all(text() is None for text in held)  # the last one's memory is free
        if context_limit > 100:
            raise torch.OutOfMemoryError
        made = TargetModel(*args, context_limit=context_limit, **options)
        held.append(weakref.ref(made.cache))
        return made

    monkeypatch.setattr(generate, "TargetModel", target)
    speculator = Speculator(tiny_model("llama"))
    expected, _ = speculator(PROMPT, max_new_tokens=10)
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            speculator(PROMPT * 5, max_new_tokens=10)
        assert speculator(PROMPT, max_new_tokens=10)[0] == expected


def test_flash_attention_is_refused() -> None:
    model = tiny_model("llama")
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(
        ValueError, match=r"^the model's attention is 'flash_attention_2', .* attn_implementation='sdpa'"
    ):
        speculative_generate(model, PROMPT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_ids": torch.tensor([PROMPT, PROMPT])}, r"^inputs: token ids of one text"),
        ({"attention_mask": torch.tensor([[0] * 5 + [1] * 20])}, r"^attention_mask: it hides tokens"),
        ({"position_ids": torch.arange(25).expand(3, 2, 25) + torch.tensor([[0], [1]])}, r"^position_ids: they count"),
        ({"position_ids": torch.arange(3, 28)[None]}, r"^position_ids: they count up from 0"),
        ({"prompt_lookup_num_tokens": 3}, r"^num_beams=1, num_return_sequences=1, mode assisted_generation: "),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_custom_generate_refuses_what_it_cannot_do(options: dict[str, Any], message: str) -> None:
    model = tiny_model("llama")
    with pytest.raises(ValueError, match=message):
        model.generate(**{"input_ids": torch.tensor([PROMPT])} | options, custom_generate=custom_generate)


def test_a_speculator_serves_its_own_model() -> None:
    speculator = Speculator(tiny_model("llama"))
    with pytest.raises(ValueError, match=r"^custom_generate: this Speculator was made for another model$"):
        tiny_model("qwen2").generate(torch.tensor([PROMPT]), custom_generate=speculator.custom_generate)


def test_a_speculator_gives_one_answer_at_a_time() -> None:
    speculator = Speculator(tiny_model("qwen2"))
    expected, _ = speculator(PROMPT, max_new_tokens=20)
    refused = []

    class Asks(BaseStreamer):
        """Asks the same Speculator, from this thread and from another one."""

        def ask(self) -> None:
            with pytest.raises(RuntimeError, match=r"^this Speculator is at another answer: "):
                speculator(PROMPT[1:], max_new_tokens=5)
            refused.append(threading.get_ident())

        def put(self, value: torch.Tensor) -> None:
            self.ask()
            thread = threading.Thread(target=self.ask)
            thread.start()
            thread.join()

        def end(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        speculator(PROMPT, max_new_tokens=20, streamer=Asks())
    assert len(refused) == 2 * 21 and len(set(refused)) > 1
    assert speculator(PROMPT, max_new_tokens=20)[0] == expected


def test_an_assistant_model_is_refused_and_not_ignored() -> None:
    model = tiny_model("llama")
    with pytest.raises(ValueError, match=r"^assistant_model: drafts come from drafter="):
        speculative_generate(model, PROMPT, assistant_model=model, max_new_tokens=5)


def test_by_default_drafts_are_what_pays_and_what_is_learned_stays_with_the_model() -> None:
    model = tiny_model("llama")
    first, second = Speculator(model), Speculator(model, "blend_logits", num_draft=8)
    assert isinstance(first.drafter, AdaptiveDrafter) and isinstance(second.drafter, AdaptiveDrafter)
    assert first.drafter.learned is second.drafter.learned
    assert Speculator(model, "suffix").drafter.learned is not first.drafter.learned
    assert isinstance(Speculator(model, budget="fixed").drafter, BlendDrafter)
    assert isinstance(Speculator(model, Jacobi()).drafter, Jacobi)  # says nothing of its nodes
    with pytest.raises(ValueError, match=r"^budget='most': must be one of auto, fixed$"):
        Speculator(model, budget="most")
    custom = {"custom_generate": custom_generate, "budget": "fixed", "num_draft": 4}
    assert plain(model, PROMPT, max_new_tokens=20, **custom) == plain(model, PROMPT, max_new_tokens=20)


def test_an_answer_of_one_token_has_no_accept_length() -> None:
    _, result = speculative_generate(tiny_model("llama"), PROMPT, max_new_tokens=1)
    assert len(result.output_ids) == 1
    assert np.isnan(result.accept_length)


@pytest.mark.slow
def test_the_library_loads_neither_pandas_nor_scipy_nor_hydra() -> None:
    """Beyond what transformers itself loads where they are installed."""
    script = (
        "import sys, torch, transformers, transformers.generation.candidate_generator, transformers.modeling_utils\n"
        "before = set(sys.modules)\n"
        "import ngram_trie.generate\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new & {'pandas', 'scipy', 'hydra', 'matplotlib', 'joblib', 'sklearn'}))"
    )
    told = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
