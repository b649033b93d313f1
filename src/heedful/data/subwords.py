"""Train subword models, and preprocess text for sentencepiece.

sentencepiece alone does not restore every text. Three steps make it lossless:

- A space is added before the text and removed again, so that a word has the same piece at the start
  of a line and within it, and no space is lost.
- sentencepiece writes a space as U+2581, so a U+2581 of the text would come back as a space. It is
  escaped, and so is the escape itself: ``ESCAPE + "1"`` is U+2581, ``ESCAPE + "0"`` is ``ESCAPE``.
- Characters outside the vocabulary become their UTF-8 bytes (byte fallback), so nothing is unknown.
"""

import io
import random
import re
import unicodedata
from collections.abc import Iterable
from typing import ClassVar, Literal, Self

import sentencepiece
from pydantic import Field

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_SYMBOLS
from heedful.basics.native import call_native
from heedful.basics.settings import Settings
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN

MARKER = "▁"
"""The character for a space in pieces of sentencepiece (U+2581)."""

ESCAPE = "\ufdd0"
"""A private-use code point, which real text hardly contains."""

PLACEHOLDERS = tuple(f"⟦{number}⟧" for number in range(64))
"""Strings that are always a single symbol (ids 4 to 67)."""

MASK = "<mask>"
"""The piece of the mask, which no text contains."""

SAMPLE_TEXTS = 1_000_000
"""Maximum number of training texts; larger corpora are sampled."""

_SILENT = 3  # sentencepiece's log levels: 0 info, 1 warning, 2 error, 3 fatal
_TO_ESCAPED = {MARKER: ESCAPE + "1", ESCAPE: ESCAPE + "0"}
_FROM_ESCAPED = {escaped: plain for plain, escaped in _TO_ESCAPED.items()}
_NEEDS_ESCAPE = re.compile(f"[{MARKER}{ESCAPE}]")
_IS_ESCAPED = re.compile(f"{ESCAPE}[01]")


class TokeniserSettings(Settings):
    """The recipe's table ``[tokeniser]``.

    Attributes:
        kind: merges of frequent pairs (``bpe``, Sennrich et al. 2016) or the most probable
            segmentation (``unigram``, Kudo 2018); ``imported`` is a tokeniser of another library,
            which is not trained.
        vocabulary_size: number of symbols, including 324 fixed ones (4 control symbols, 64
            placeholders, 256 bytes); of each side, if the sides are separate.
        joint: one vocabulary for both languages.
        normalise: ``nfc`` composes characters; decoded texts are composed.
    """

    renamed: ClassVar[dict[str, str]] = {"vocabulary": "vocabulary_size"}
    kind: Literal["bpe", "unigram", "imported"] = "bpe"
    vocabulary_size: int = Field(default=8000, ge=325, le=MOST_SYMBOLS)
    joint: bool = True
    normalise: Literal["none", "nfc"] = "none"


class VocabularyTooLargeError(UserError):
    """The texts support at most ``supported`` symbols, fewer than requested."""

    def __init__(self, message: str, supported: int) -> None:
        super().__init__(message)
        self.supported = supported

    def __reduce__(self) -> tuple[type[Self], tuple[str, int]]:
        return type(self), (str(self), self.supported)


def prepare(text: str, normalise: str) -> str:
    """Preprocess a text for sentencepiece: normalise and escape it, and add a space before it."""
    if not text:
        return ""
    if normalise == "nfc":
        text = unicodedata.normalize("NFC", text)
    if MARKER in text or ESCAPE in text:
        text = _NEEDS_ESCAPE.sub(lambda found: _TO_ESCAPED[found[0]], text)
    return " " + text


def unescape(text: str) -> str:
    """Undo the escapes of `prepare`."""
    if ESCAPE in text:
        return _IS_ESCAPED.sub(lambda found: _FROM_ESCAPED[found[0]], text)
    return text


def restore(text: str) -> str:
    """Undo `prepare`."""
    return unescape(text).removeprefix(" ")


def refuse_surrogates(text: str, where: str) -> None:
    """Raise an error for a lone surrogate, which is not valid Unicode.

    Raises:
        UserError: the message has ``where`` and the number of the character, from 1.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = f"U+{ord(text[error.start]):04X}"
        raise UserError(
            f"{where}: character {error.start + 1} is a lone surrogate ({code}), which is not "
            "valid Unicode; remove it, or read the file in its right encoding"
        ) from error


def reservoir(texts: Iterable[str], size: int, seed: int) -> tuple[list[str], int]:
    """A uniform random sample of at most ``size`` texts of a stream, and the stream's length.

    Algorithm R (Vitter 1985, "Random Sampling with a Reservoir").
    """
    generator = random.Random(seed)
    kept: list[str] = []
    total = 0
    for text in texts:
        total += 1
        if len(kept) < size:
            kept.append(text)
        elif (place := int(generator.random() * total)) < size:
            kept[place] = text
    return kept, total


def train_model(
    texts: list[str], settings: TokeniserSettings, where: str, *, mask: bool = False
) -> bytes:
    """Run the trainer of sentencepiece; ``texts`` is emptied on the way to save memory."""
    texts.reverse()
    # U+2585 is how sentencepiece writes "unknown" while training: it would skip such a line whole.
    prepared = (
        prepare(texts.pop(), settings.normalise).replace("▅", " ") for _ in range(len(texts))
    )
    model = io.BytesIO()
    try:
        call_native(
            sentencepiece.SentencePieceTrainer.train,
            sentence_iterator=prepared,
            model_writer=model,
            model_type=settings.kind,
            vocab_size=settings.vocabulary_size,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            byte_fallback=True,
            character_coverage=0.9999,
            user_defined_symbols=list(PLACEHOLDERS),
            pad_id=PAD,
            unk_id=UNKNOWN,
            bos_id=BEGIN,
            eos_id=END,
            pad_piece="<pad>",
            max_sentence_length=1 << 30,
            num_threads=1,
            minloglevel=_SILENT,
            control_symbols=[MASK] if mask else [],
        )
    except RuntimeError as error:
        raise _training_error(str(error), settings.vocabulary_size, where) from error
    return model.getvalue()


def _training_error(message: str, requested: int, where: str) -> UserError:
    """Convert an error of the trainer to a user error."""
    if found := re.search(r"too high.*<= (\d+)", message):
        supported = int(found[1])
        return VocabularyTooLargeError(
            f"{where}: too little text for a vocabulary of {requested:,} symbols; the maximum is "
            f"{supported:,}: lower tokeniser.vocabulary_size to {supported} or less",
            supported,
        )
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return UserError(
            f"{where}: the characters of the texts alone need {int(found[1]):,} symbols, more than "
            f"{requested:,}; raise tokeniser.vocabulary_size to {found[1]} or more"
        )
    return UserError(f"{where}: no tokeniser can be trained on these texts ({message.strip()})")
