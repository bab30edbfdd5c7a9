"""Chat templates token by token, where the parts of a prompt lie, and how a long one is cut."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recorded import TRACES, vicuna_tokenizer

from ngram_trie.data.prompts import Question, build_prompt, build_prompts, set_template
from ngram_trie.prompt import LaterTurn, Prompt
from ngram_trie.store.files import PROJECT
from ngram_trie.targets.load import load_tokenizer

SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)


@pytest.fixture(scope="module")
def tiny():
    return load_tokenizer(str(PROJECT / "data" / "tiny" / "model"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory):
    return vicuna_tokenizer(tmp_path_factory.mktemp("vicuna"))


def message_of(recorded: dict) -> str:
    """The last user message of a recorded Vicuna prompt."""
    return recorded["prompt"].rpartition("USER: ")[2].removesuffix(" ASSISTANT:")


def test_vicuna_prompts_are_those_that_were_recorded(llama) -> None:
    set_template(llama, "vicuna_v1.1")
    turns = [json.loads(line) for line in TRACES.read_text(encoding="utf-8").splitlines()]
    firsts = {turn["question_id"]: turn for turn in turns if turn["turn"] == 0}
    assert len(firsts) == 240
    for turn in turns:
        question = Question("d", "q", "", message_of(turn), "")
        if turn["turn"]:
            first = firsts[turn["question_id"]]
            answer = turn["prompt"].partition(" ASSISTANT: ")[2].partition("</s>USER: ")[0]
            question = replace(question, turn=1, history=((message_of(first), answer),))
        prompt = build_prompt(question, llama)
        if turn["turn"] == 0:
            assert prompt.ids.tolist() == turn["prompt_token_ids"]
        else:
            # The recording has "</s>" as the letters it is written with, where the template means the token, so here
            # the texts are compared.
            assert llama.eos_token_id in prompt.ids
            text = llama.apply_chat_template(
                [
                    {"role": "user", "content": question.history[0][0]},
                    {"role": "assistant", "content": question.history[0][1]},
                    {"role": "user", "content": question.message},
                ],
                tokenize=False,
                add_generation_prompt=True,
            )
            assert text == "<s>" + turn["prompt"]
        start, end = prompt.spans["user"]
        assert llama.decode(prompt.ids[start:end]).strip() == question.message.strip()


def fastchat_llama2(turns: list[tuple[str, str | None]], system: str = "") -> str:
    """FastChat's `get_prompt` for "llama-2", after its description: [INST] and [/INST] are the roles, " " and
    " </s><s>" the separators, the first role stands in the opening.
    """
    text = f"[INST] <<SYS>>\n{system}\n<</SYS>>\n\n" if system else "[INST] "
    for number, (asked, answered) in enumerate(turns):
        text += ("" if number == 0 else "[INST] ") + asked + " "
        text += "[/INST]" if answered is None else f"[/INST] {answered} </s><s>"
    return text


@pytest.mark.parametrize("system", ["", "Be brief."])
def test_llama_2_prompts_are_fastchats(tiny, system: str) -> None:
    set_template(tiny, "llama-2")
    opening = [{"role": "system", "content": system}] if system else []
    asked = [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Two?"},
    ]
    for turns, messages in (([("One?", None)], asked[:1]), ([("One?", "Yes."), ("Two?", None)], asked)):
        text = tiny.apply_chat_template(opening + messages, tokenize=False, add_generation_prompt=True)
        assert text == "<s>" + fastchat_llama2(turns, system)


def test_the_parts_of_a_prompt(tiny) -> None:
    tokenizer = tiny
    set_template(tokenizer, "vicuna_v1.1")
    question = Question("d", "q", "Read this: ", "The cat sat. The dog ran.", "\nWho ran over there, then?")
    prompt = build_prompt(question, tokenizer)

    def text(name: str) -> str:
        return tokenizer.decode(prompt.part(name)).strip()

    assert text("context") == "The cat sat. The dog ran."
    assert text("question") == "Who ran over there, then?"
    assert text("user") == question.message
    assert prompt.spans["system"][1] <= prompt.spans["user"][0]
    assert text("system").startswith(SYSTEM) and "Read" not in text("system")
    assert np.array_equal(prompt.part("released"), prompt.part("user"))
    whole = build_prompt(replace(question, released_span="prompt"), tokenizer)
    assert np.array_equal(whole.part("released"), whole.ids)
    bare = build_prompt(Question("d", "q", "", "Only this", ""), tokenizer)
    with pytest.raises(ValueError, match="has the parts prompt, system, user, context, released"):
        bare.part("question")
    set_template(tokenizer, str(PROJECT / "data" / "tiny" / "model" / "chat_template.jinja"))


def test_separate_texts_are_tokenised_on_their_own(tiny) -> None:
    question = Question("d", "q", "", "The cat sat.\n\nThe dog ran.", "\n\nWho ran?", released_span="context")
    apart = replace(question, released_texts=("The cat sat.", "The dog ran."))
    prompt = build_prompt(apart, tiny)
    assert [text.tolist() for text in prompt.texts] == [
        tiny(text, add_special_tokens=False)["input_ids"] for text in apart.released_texts
    ]
    assert [len(text) for text in prompt.read_by_tries("released")] == [len(text) for text in prompt.texts]
    assert len(prompt.read_by_tries("context")) == len(build_prompt(question, tiny).read_by_tries("released")) == 1
    # What no longer stands in the prompt is not read by tries either.
    shorter = build_prompt(apart, tiny, len(prompt.ids) - 3, "end")
    assert not shorter.texts and len(shorter.part("released")) < len(prompt.part("released"))


def test_a_template_may_strip_the_end_of_a_message(tiny) -> None:
    question = Question("d", "q", "", "The cat sat.", "\n\nWho sat?\n\n")
    texts = []
    for content in ("messages[0]['content']", "messages[0]['content'] | trim"):
        tokenizer = copy(tiny)
        tokenizer.chat_template = "USER: {{ " + content + " }} ASSISTANT:"
        texts.append(tokenizer.decode(build_prompt(question, tokenizer).ids))
    assert texts[0].endswith("Who sat?\n\n ASSISTANT:") and texts[1].endswith("Who sat? ASSISTANT:")


def test_words_of_the_template_are_not_taken_for_the_message(tiny) -> None:
    """A message, or an earlier one, may be a word that the template writes, too; and history may be trimmed."""
    tokenizer = copy(tiny)
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant>user{% endif %}"
    )
    question = Question("d", "q", "", "user", "", history=((" user ", "Yes?"),), turn=1)
    prompt = build_prompt(question, tokenizer)
    before = tokenizer("<user>user\n<assistant>Yes?\n<user>", add_special_tokens=False)["input_ids"]
    start, end = prompt.spans["user"]
    assert start == len(before) and tokenizer.decode(prompt.ids[start:end]).strip() == "user"
    assert tokenizer.decode(prompt.ids[end:]) == "\n<assistant>user"


@given(
    words=st.lists(
        st.sampled_from(["alder", "birch", "Hobbs", "Gardens", "1912", ",", "木", "🌲🌲"]), min_size=1, max_size=60
    ),
    room=st.integers(1, 60),
    where=st.sampled_from(["end", "middle"]),
)
def test_only_the_context_gives_way(words: list[str], room: int, where: str) -> None:
    tokenizer = load_tokenizer(str(PROJECT / "data" / "tiny" / "model"))
    question = Question("d", "q", "", " ".join(words), "\n\nWhich tree?")
    whole = build_prompt(question, tokenizer)
    fixed = len(whole.ids) - len(whole.part("context"))
    prompt = build_prompt(question, tokenizer, fixed + room, where)
    if len(whole.ids) <= fixed + room:
        assert np.array_equal(prompt.ids, whole.ids) and prompt.num_cut == 0
        return
    assert len(prompt.ids) <= fixed + room
    assert prompt.num_cut == len(whole.ids) - len(prompt.ids)
    kept = tokenizer.decode(prompt.part("context")) if "context" in prompt.spans else ""
    assert "\ufffd" not in kept  # no character is cut in pieces
    if where == "end":
        assert question.context.startswith(kept.rstrip("\n"))
    assert tokenizer.decode(prompt.part("question")).strip() == "Which tree?"


def test_a_later_turn_takes_the_answers_of_this_run(tiny) -> None:
    questions = [
        Question("d", "1", "", "One?", ""),
        Question("d", "1", "", "Two?", "", turn=1, history=(("One?", None),)),
        Question("d", "2", "", "Known?", "", turn=1, history=(("One?", "Yes."),)),
    ]
    first, later, known = build_prompts(
        questions, lambda question: build_prompt(question, tiny), lambda ids: tiny.decode(ids)
    )
    assert isinstance(first, Prompt) and isinstance(known, Prompt) and isinstance(later, LaterTurn)
    assert later.turn == 1 and list(later.said) == ["One?", "Two?"]
    answer = tiny(" Yes. ", add_special_tokens=False)["input_ids"]
    built = later.build([answer])
    expected = build_prompt(replace(questions[1], history=(("One?", "Yes."),)), tiny)
    assert np.array_equal(built.ids, expected.ids) and built.turn == 1


def test_what_is_wrong_with_a_later_turn_is_said_at_once(tiny) -> None:
    def refuse(question: Question) -> Prompt:
        raise ValueError(question.question_id)

    question = Question("d", "7", "", " Two?", "", turn=1, history=(("One?", None),))
    with pytest.raises(ValueError, match="7"):
        build_prompts([question], refuse, str)
