"""Exports heedful's vocabularies of single texts as ``tokenizer.json`` for ``AutoTokenizer``.

Both give the same tokens, with two exceptions. The name of a special symbol in a text (``</s>``) is
that symbol in transformers, but text in heedful. Rules that the other library cannot express are
refused or reported by :func:`tokeniser_files`.
"""

from collections.abc import Mapping
from typing import Any

import sentencepiece
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.models import BPE, Unigram, WordLevel

from heedful.basics.notices import notice
from heedful.basics.symbols import BEGIN, END, UNKNOWN
from heedful.data.byte_vocabulary import ByteVocabulary
from heedful.data.fixed_symbols import fixed_names
from heedful.data.listed_vocabularies import Characters, Words
from heedful.data.subwords import ESCAPE, MARKER, PLACEHOLDERS
from heedful.data.tokenizer_json import FINAL_SIGMA
from heedful.data.vocabularies import SavedVocabulary, Subwords
from heedful.interop.exported import as_json

_PLACEHOLDER = "|".join(sorted(PLACEHOLDERS, key=len, reverse=True))
_SPACE = "".join(
    rf"\x{{{first:x}}}-\x{{{last:x}}}"
    for first, last in (
        *((0x09, 0x0D), (0x1C, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680)),
        *((0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F)),
        (0x3000, 0x3000),
    )
)
"""Characters that Python treats as white space; `tokenizers` has fewer."""
_LETTER = r"\p{L}\p{N}_"
_WORDS = {
    "punctuation": rf"[{_LETTER}]+(?:['’][{_LETTER}]+)*|[^{_LETTER}{_SPACE}]",
    "spaces": rf"[^{_SPACE}]+",
}
_HIDDEN = -1e6
"""The score of pieces without text: below any segmentation of the same letters."""


def tokeniser_files(
    vocabulary: SavedVocabulary,
    longest: int,
    *,
    around: bool,
    where: str,
    after: bool = False,
    begin: bool = False,
    second: int = 1,
) -> dict[str, bytes]:
    """The files of a vocabulary's tokeniser; none, with a notice, if its kind is not supported.

    Args:
        vocabulary: the vocabulary of the run.
        longest: maximum tokens of the model.
        around: whether texts are enclosed in BEGIN and END.
        where: the run's path, for messages.
        after: whether END follows a text, as in the sources and targets of pairs.
        begin: whether BEGIN alone is before a text, as in a GPT with ``model.begin``.
        second: the segment of the second text of a pair.
    """
    tokenizer = _tokenizer(vocabulary)
    if tokenizer is None:
        notice(
            f"{where}: transformers has no tokeniser for this vocabulary; only the model is "
            "written, whose inputs are heedful's token ids"
        )
        return {}
    names = fixed_names(vocabulary.mask is not None)
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    if around or after or begin:
        before, behind = around or begin, around or after
        tokenizer.post_processor = _symbols_around(
            names[BEGIN] if before else "", names[END] if behind else "", second if around else 0
        )
    said: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
        "pad_token": names[0],
        "unk_token": names[UNKNOWN],
    }
    if around:
        said |= {"cls_token": names[BEGIN], "sep_token": names[END]}
        said["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    elif after:
        said |= {"eos_token": names[END], "model_input_names": ["input_ids", "attention_mask"]}
    else:
        said |= {"bos_token": names[BEGIN if begin else END], "eos_token": names[END]}
    if vocabulary.mask is not None:
        said["mask_token"] = names[vocabulary.mask]
    return {
        "tokenizer.json": tokenizer.to_str(pretty=True).encode("utf-8"),
        "tokenizer_config.json": as_json(said),
    }


def _symbols_around(begin: str, end: str, second: int) -> processors.TemplateProcessing:
    """Puts symbols before and after a text; an empty name is no symbol."""
    pair = [begin, "$A", end, f"$B:{second}", end and f"{end}:{second}"]
    return processors.TemplateProcessing(
        single=[part for part in (begin, "$A", end) if part],
        pair=[part for part in pair if part],
        special_tokens=[(name, token) for name, token in ((begin, BEGIN), (end, END)) if name],
    )


def _tokenizer(vocabulary: SavedVocabulary) -> Tokenizer | None:
    if isinstance(vocabulary, ByteVocabulary):
        return _bytes(vocabulary)
    if isinstance(vocabulary, Characters | Words):
        return _listed(vocabulary)
    if isinstance(vocabulary, Subwords):
        return _subwords(vocabulary)
    return None


def _ready(
    settings: Mapping[str, Any], *, lower_first: bool = False
) -> list[normalizers.Normalizer]:
    """The normalizers of texts: canonical composition, and lower case as Python's."""
    composed: list[normalizers.Normalizer] = []
    lowered: list[normalizers.Normalizer] = []
    if settings.get("normalise") == "nfc":
        composed = [normalizers.NFC()]
    if settings.get("lower_case"):
        # Lowercase treats each character on its own, but Σ is ς at the end of a word.
        lowered = [normalizers.Replace(Regex(FINAL_SIGMA), "ς"), normalizers.Lowercase()]
    return [*lowered, *composed] if lower_first else [*composed, *lowered]


def _bytes(vocabulary: ByteVocabulary) -> Tokenizer:
    names = fixed_names(vocabulary.mask is not None)
    pieces = [*names, *vocabulary.tokens[len(names) :]]
    tokenizer = Tokenizer(
        BPE({piece: token for token, piece in enumerate(pieces)}, vocabulary.merges)
    )
    tokenizer.normalizer = normalizers.Sequence(_ready(vocabulary.settings.model_dump()))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _listed(vocabulary: Characters | Words) -> Tokenizer:
    names = fixed_names(vocabulary.mask is not None)
    entries = {entry: token for token, entry in enumerate([*names, *vocabulary.entries])}
    tokenizer = Tokenizer(WordLevel(entries, unk_token=names[UNKNOWN]))
    tokenizer.normalizer = normalizers.Sequence(_ready(vocabulary.settings.model_dump()))
    if isinstance(vocabulary, Characters):
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        tokenizer.decoder = decoders.Fuse()
    else:
        words = Regex(_WORDS[vocabulary.settings.split])
        tokenizer.pre_tokenizer = pre_tokenizers.Split(words, "removed", invert=True)
    return tokenizer


def _subwords(vocabulary: Subwords) -> Tokenizer:
    """A sentencepiece model in the format of `tokenizers`, with heedful's further processing."""
    tokeniser = vocabulary.tokeniser
    model = sentencepiece.SentencePieceProcessor(model_proto=tokeniser.model)
    pieces = [str(model.id_to_piece(token)) for token in range(tokeniser.size)]
    if vocabulary.kind == "unigram":
        scores = [
            (piece, _HIDDEN if _has_no_text(model, token) else model.get_score(token))
            for token, piece in enumerate(pieces)
        ]
        tokenizer = Tokenizer(Unigram(scores, unk_id=UNKNOWN, byte_fallback=True))
    else:
        ordinary = {
            piece: model.get_score(token)
            for token, piece in enumerate(pieces)
            if not _has_no_text(model, token)
        }
        tokenizer = Tokenizer(
            BPE(
                {piece: token for token, piece in enumerate(pieces)},
                _merges(ordinary),
                unk_token=pieces[UNKNOWN],
                fuse_unk=False,
                byte_fallback=True,
                ignore_merges=True,
            )
        )
    given = tokeniser.settings.model_dump() | {"lower_case": vocabulary.lower_case}
    tokenizer.normalizer = normalizers.Sequence(
        [
            *_ready(given, lower_first=True),
            normalizers.Replace(ESCAPE, f"{ESCAPE}0"),
            normalizers.Replace(MARKER, f"{ESCAPE}1"),
            normalizers.Prepend(MARKER),
            normalizers.Replace(" ", MARKER),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_PLACEHOLDER), "isolated")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(MARKER, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
            decoders.Replace(f"{ESCAPE}1", MARKER),
            decoders.Replace(f"{ESCAPE}0", ESCAPE),
        ]
    )
    return tokenizer


def _has_no_text(model: sentencepiece.SentencePieceProcessor, token: int) -> bool:
    return bool(model.is_control(token) or model.is_byte(token) or model.is_unknown(token))


def _merges(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """All merges of two pieces into one, in the order in which sentencepiece applies them."""
    order = {piece: place for place, piece in enumerate(scores)}
    found: list[tuple[float, int, int, str, str]] = []
    for piece, score in scores.items():
        if piece in PLACEHOLDERS:
            continue
        halves = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        own = [pair for pair in halves if pair[0] in order and pair[1] in order]
        found.extend((-score, order[piece], order[left], left, right) for left, right in own)
    return [(left, right) for *_, left, right in sorted(found)]
