"""How the text of a byte-pair vocabulary is cut before its merges, by the name that a GGUF file gives it.

A GGUF file holds vocabulary and merges and of the rest a name alone, `tokenizer.ggml.pre`. The names, and which of them
are one, are llama.cpp's (src/llama-vocab.cpp). Where llama.cpp only comes near what a model's authors published, for
want of a full engine of regular expressions, the published expression stands here: case by category and not by a-z,
`(?i:)`, NFC. Where what they published was not to be had, it is llama.cpp's.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
#: Words in which capitals come first: "camelCase" is two.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_START = r"[^\r\n\p{L}\p{N}]?"
_CASED = (f"{_START}{_UPPER}*{_LOWER}+", f"{_START}{_UPPER}+{_LOWER}*")

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = "|".join((_ENDING, _WORD, r"\p{N}{1,3}", _MARKS, _SPACE))
_QWEN2 = "|".join((_ENDING, _WORD, r"\p{N}", _MARKS, _SPACE))
_TEKKEN = "|".join((*_CASED, r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", _SPACE))
_GPT4O = "|".join((*(f"{word}{_ENDING}?" for word in _CASED), r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*", _SPACE))
_KIMI = [word.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]") for word in _CASED]
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
_DEEPSEEK3 = "|".join((_DEEPSEEK, r" ?[\p{P}\p{S}]+[\r\n]*", _SPACE))
_JAIS_SPACE = (
    "".join(rf"|\s{{{count}}}(?!\S)" for count in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2")) + r"|\s"
)
_THREES = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
#: Letters that have a case, in the version of Unicode that DeepSeek's first tokenizer was made with.
_LETTERS = (
    "[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙ"
    "ὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆ"
    "ﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]"
)
_DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


@dataclass(frozen=True)
class PreTokenizer:
    """What the name of a pre-tokenizer says.

    Attributes:
        expressions: each in turn cuts every piece that the ones before it left, at its matches.
        ignore_merges: a piece that is a token is that token, whatever its merges would make of it.
        add_bos: a text begins with the token for that, unless the file says otherwise.
        nfc: characters are composed first.
        escaped: spaces stand as "▁" and bytes as "<0x0A>", as in SentencePiece; otherwise all bytes as in GPT-2.
    """

    expressions: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    nfc: bool = False
    escaped: bool = False

    def normalizer(self) -> normalizers.Normalizer | None:
        """What is done to characters first, None for nothing."""
        if self.escaped:
            return normalizers.Replace(" ", "▁")
        return normalizers.NFC() if self.nfc else None

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer | None:
        """What cuts the text, None where merges run over all of it."""
        steps: list[pre_tokenizers.PreTokenizer] = [
            pre_tokenizers.Split(Regex(expression), "isolated") for expression in self.expressions
        ]
        if not self.escaped:
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(steps) if steps else None


#: Names, expressions, and the fields of `PreTokenizer` that are true.
_TABLE: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe", (_GPT2,), ""),
    ("gigachat a.x-4.0 mellum jais trillion granite-docling exaone4", (_GPT2,), ""),
    ("mpt olmo modern-bert", (_GPT2,), "nfc"),
    ("starcoder refact smollm codeshell exaone minerva-7b mellum2", (r"\p{N}", _GPT2), ""),
    ("command-r", (r"\p{N}", _GPT2), "nfc"),
    ("default", (r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"), ""),
    ("falcon", (r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]"), ""),
    (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        (_LLAMA3,),
        "ignore_merges add_bos",
    ),
    ("dbrx smaug-bpe chatglm-bpe", (_LLAMA3,), ""),
    ("glm4 glm5", (_LLAMA3,), "ignore_merges"),
    ("jais-2", (_LLAMA3.replace(r"|\s+(?!\S)|\s+", _JAIS_SPACE),), ""),
    ("minicpm5", (r"\p{N}{1,3}", _QWEN2.replace(r"|\p{N}|", r"|\p{N}+|")), "ignore_merges"),
    ("qwen2 f2llmv2 stablelm2", (_QWEN2,), "nfc"),
    ("deepseek-r1-qwen kormo megrez hunyuan solar-open grok-2", (_QWEN2,), ""),
    ("qwen35", (_QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"\s\p{L}\p{N}", r"\s\p{L}\p{M}\p{N}"),), "nfc"),
    ("laguna", (r"[^\n]+|[\n]+", _QWEN2), ""),
    ("ufakzeka", (_QWEN2.removeprefix(f"{_ENDING}|"),), ""),
    ("seed-coder", ("|".join((_ENDING, _WORD, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", _SPACE)),), ""),
    ("bailingmoe bailingmoe2 llada-moe", (_QWEN2.replace(r"\s*[\r\n]+", r"\s*[\r\n]"),), ""),
    (
        "exaone-moe",
        (
            rf"{_ENDING}|{_START}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?"
            r"|\s*[\r\n]|\s+(?!\S)|\s+",
        ),
        "",
    ),
    ("tekken", (_TEKKEN,), "ignore_merges add_bos"),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", (_GPT4O,), ""),
    ("granite-embed-multi-97m", (_GPT4O,), "ignore_merges"),
    ("tiny_aya cohere2moe", (r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O), ""),
    (
        "kimi-k2",
        ("|".join((r"[\p{Han}]+", *(f"{word}{_ENDING}?" for word in _KIMI), r"\p{N}{1,3}", _MARKS, _SPACE)),),
        "",
    ),
    (
        "deepseek-llm",
        (
            "[\r\n]",
            rf"\s?{_LETTERS}+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"\s+$",
            _DEEPSEEK_CJK,
            r"\p{N}+",
        ),
        "",
    ),
    ("deepseek-coder", ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}"), ""),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", (r"\p{N}{1,3}", _CJK, _DEEPSEEK3), ""),
    ("spark2_5", (r"\p{N}{1,3}", _CJK, rf"{_DEEPSEEK}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"), ""),
    (
        "afmoe",
        (
            _THREES,
            "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+",
            _DEEPSEEK3,
        ),
        "",
    ),
    ("superbpe", (r"\p{N}+", r"(?=(\d{3})+(?!\d))"), ""),
    ("poro-chat bloom gpt3-finnish", (_BLOOM,), ""),
    ("viking", (_BLOOM, r"\p{N}"), ""),
    (
        "youtu",
        (
            "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            "|".join((*(f"{word}{_ENDING}?" for word in _CASED), r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*", _SPACE)),
        ),
        "ignore_merges",
    ),
    (
        "chameleon",
        (
            "<sentinel:[0-9]+>",
            "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            _GPT2,
        ),
        "add_bos",
    ),
    ("gemma4 granite-embed-multi-311m sarvam-moe", (), "escaped"),
)

KNOWN = {
    name: PreTokenizer(expressions, **dict.fromkeys(fields.split(), True))
    for names, expressions, fields in _TABLE
    for name in names.split()
}


def known(name: str | None) -> PreTokenizer:
    """The pre-tokenizer of that name.

    Raises:
        ValueError: no name, or one that is not in the table.
    """
    if name not in KNOWN:
        said = f"its pre-tokenizer {name!r} is not known here" if name else "it does not name its pre-tokenizer"
        raise ValueError(
            f"{said} (tokenizer.ggml.pre), so its text could be cut otherwise than in training: "
            "give the folder or hub id of the original model"
        )
    return KNOWN[name]
