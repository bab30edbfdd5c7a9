"""Random models, drafters and settings, one a seed: the drafted answer is token for token `model.generate`'s."""

from __future__ import annotations

import functools
import random
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from support.tiny import FAMILIES, VOCABULARY, tiny_model
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ngram_trie import Speculator
from ngram_trie.drafter import Drafter
from ngram_trie.methods import choices, make_method

#: Characters, one a token, so that a text's end never lies within one.
TEXT = (string.ascii_letters + string.digits)[:VOCABULARY]
ROOM = 160
#: Fields that mean a token which so small a vocabulary does not have.
SMALLER = {"ngram_trie_released": {"no_match_id": 0, "context": "prompt"}}


@functools.cache
def drafters() -> list[str]:
    """Every method that drafts for any model and needs no file."""
    found = []
    for name in sorted(choices()["method"]):
        try:
            method = make_method(name)
        except (ValueError, OSError):  # a package or a model's own files are missing
            continue
        is_any = isinstance(method, Drafter) and not method.traits.own_model and not method.parts()
        if is_any and method.traits.reads != "recording":
            found.append(name)
    return found


@functools.cache
def model(family: str, attention: str, spread: float, heads: int, tied: bool) -> PreTrainedModel:
    """A random model in double precision: no two of its logits are so near that the order of a sum decides."""
    fields = {"initializer_range": spread, "num_key_value_heads": heads, "tie_word_embeddings": tied}
    made = tiny_model(family, attention, max_position_embeddings=ROOM, **fields)
    made.generation_config.eos_token_id = None
    return made.double().eval()


@functools.cache
def tokenizer() -> PreTrainedTokenizerFast:
    letters = Tokenizer(models.WordLevel({letter: token for token, letter in enumerate(TEXT)}, unk_token=TEXT[0]))
    letters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    letters.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=letters, clean_up_tokenization_spaces=False)


@dataclass
class Case:
    """One seed's model, drafter and prompts, of which each is answered by the same `Speculator`."""

    seed: int
    model: tuple[str, str, float, int, bool]
    drafter: str
    drafting: dict[str, Any]
    prompts: list[list[int]]
    length: int
    ending: str
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, seed: int) -> Case:
        chance = random.Random(seed)
        family, attention = chance.choice(sorted(FAMILIES)), chance.choice(["sdpa", "eager"])
        # small weights repeat themselves, so that drafts are accepted; large ones do not
        shape = (family, attention, chance.choice([0.05, 0.3, 0.6]), chance.choice([1, 2, 4]), chance.random() < 0.3)
        drafting = {
            "num_draft": chance.choice([None, None, 1, 2, 7, 16, 40]),
            "shape": chance.choice(["tree", "tree", "chain"]),
            "budget": chance.choice(["fixed", "fixed", "auto"]),
        }
        options = chance.choice([{}, {}, {}, {"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 3}])
        length = chance.choice([1, 2, 3, 12, 24, 32, 40])
        ending = chance.choice(["none", "first", "any", "prompt", "several", "string", "strings", "config"])
        prompts = [_prompt(chance) for _ in range(chance.choice([1, 1, 2]))]
        return cls(seed, shape, chance.choice(drafters()), drafting, prompts, length, ending, options)

    def differs(self) -> str | None:
        """What is wrong with the case's answers, if anything is."""
        chance, target = random.Random(-self.seed), model(*self.model)
        speculator = self.speculator(target)
        for prompt in self.prompts:
            plain = generated(target, prompt, max_new_tokens=self.length, **self.options)
            ends = self.ends(plain, prompt, chance)
            needed = {"tokenizer": tokenizer()} if "stop_strings" in ends else {}
            options = {"max_new_tokens": self.length} | self.options | ends
            wanted = generated(target, prompt, **options, **needed)
            mask = torch.ones(1, len(prompt))  # token 0 is the padding: here it is meant
            ids, answer = speculator(prompt, attention_mask=mask, **options)
            steps = sum(answer.accept_lengths) + 1
            if ids != wanted or steps != len(ids):
                return f"{self}, {options}: {ids} in steps of {answer.accept_lengths}, generate has {wanted}"
        return None

    def speculator(self, target: PreTrainedModel) -> Speculator:
        """With as much of the case's drafting as the method takes: not all have a free size, or draft chains."""
        own: dict[str, Any] = {"num_draft": None}
        for less in ({}, own, own | {"shape": "tree"}):
            try:
                drafter = {"name": self.drafter} | SMALLER.get(self.drafter, {})
                return Speculator(target, drafter, tokenizer(), **self.drafting | less)
            except ValueError as error:
                refused = error
        raise refused

    def ends(self, plain: list[int], prompt: list[int], chance: random.Random) -> dict[str, Any]:
        """The options that end the answer, placed by the answer that has no such end."""
        place = chance.randrange(len(plain))
        later = plain[place:]
        text = "".join(TEXT[token] for token in plain)
        stop = text[place : place + chance.randint(1, 3)]
        # generate also finds a stop string that begins in the prompt; the library looks at the answer alone
        stops = [each for each in (stop, text[-2:]) if TEXT[prompt[-1]] not in each]
        return {
            "none": {},
            "first": {"eos_token_id": plain[0]},
            "any": {"eos_token_id": later[0]},
            "prompt": {"eos_token_id": prompt[-1]},
            "several": {"eos_token_id": [later[0], VOCABULARY - 1, 0]},
            "string": {"stop_strings": stops[0]} if stops else {},
            "strings": {"stop_strings": stops} if stops else {},
            "config": {"eos_token_id": later[-1], "min_new_tokens": min(5, self.length)},
        }[self.ending]


def _prompt(chance: random.Random) -> list[int]:
    """Tokens with repeats and without."""
    motif = [chance.randrange(VOCABULARY) for _ in range(chance.randint(1, 12))]
    noise = [chance.randrange(VOCABULARY) for _ in range(chance.randint(1, 40))]
    kinds = [motif, motif * chance.randint(2, 6), noise, motif + noise + motif, [motif[0]] * chance.randint(1, 50)]
    return chance.choice(kinds)[:100]


def generated(target: PreTrainedModel, prompt: list[int], **options: Any) -> list[int]:
    """transformers' own answer."""
    ids = torch.tensor([prompt])
    whole = target.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, **options)
    return whole[0, len(prompt) :].tolist()


def differing(seeds: range) -> Iterator[tuple[int, str]]:
    """The seeds whose answers differ, or that raise, and how."""
    torch.set_num_threads(1)
    for seed in seeds:
        try:
            wrong = Case.of(seed).differs()
        except Exception as error:
            wrong = f"{Case.of(seed)}: {type(error).__name__}: {error}"
        if wrong:
            yield seed, wrong
