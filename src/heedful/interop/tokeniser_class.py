"""Checks that a folder's tokeniser files give the tokens of ``transformers.AutoTokenizer``.

For the tokeniser classes of models, AutoTokenizer builds the normalizer and the
pre-tokenizer from ``tokenizer_config.json`` (with the class's defaults), and takes only the
vocabulary from ``tokenizer.json``. heedful reads only ``tokenizer.json``, so a folder is refused if
the two differ.
"""

import json
from collections.abc import Mapping
from typing import Any

from heedful.basics.errors import UserError
from heedful.data.tokeniser_files import family_of, read_tokeniser_settings, read_tokenizer
from heedful.data.tokenizer_json import QWEN2

_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes that use ``tokenizer.json`` unchanged."""
_CLASSES = {
    "wordpiece": ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"),
    "bytes": (
        "GPT2Tokenizer",
        "RobertaTokenizer",
        "BartTokenizer",
        "Qwen2Tokenizer",
        "LlamaTokenizer",
    ),
    "unigram": (
        "XLMRobertaTokenizer",
        "AlbertTokenizer",
        "T5Tokenizer",
        "PegasusTokenizer",
        "XLNetTokenizer",
        "MBart50Tokenizer",
    ),
    "merges": ("NllbTokenizer",),
}
_USUAL = {
    "albert": "AlbertTokenizer",
    "mbart": "MBartTokenizer",
    "pegasus": "PegasusTokenizer",
    "t5": "T5Tokenizer",
    "xlnet": "XLNetTokenizer",
}
"""``model_type`` → the Unigram class that AutoTokenizer takes if the files name none."""
_UNKNOWN_IDS = {
    "XLMRobertaTokenizer": 3,
    "AlbertTokenizer": 1,
    "T5Tokenizer": 2,
    "MBart50Tokenizer": 3,
}
"""Unigram class → its fixed number of the unknown piece; Pegasus looks for the piece."""
_WITHOUT_WORDS = ("PegasusTokenizer", "MBart50Tokenizer", "NllbTokenizer")
"""Classes that do not split a text at white space first."""
_ALWAYS_PREFIXED = ("T5Tokenizer", "XLNetTokenizer")
"""Classes without the option ``add_prefix_space``."""
_TWO_SEPARATORS = ("RobertaTokenizer", "XLMRobertaTokenizer", "BartTokenizer")
"""Classes that put two symbols between the texts of a pair."""
_REPLACED = {" {2,}": "Replace of spaces", r"\n": "Replace of line feeds"}
_NEEDS_FILE = ("llama", "mistral", "qwen2")
"""Values of ``model_type`` whose tokenisers are not built from vocab.json and merges.txt here."""
_LONGEST_WORD = 100
"""Characters of a word from which on BERT's classes take it for unknown."""
_NORMALIZER = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}
"""Setting of ``tokenizer_config.json`` → field of ``BertNormalizer``, and the default."""


def check_tokeniser(files: Mapping[str, bytes], config: Mapping[str, Any], where: str) -> None:
    """Raise UserError if AutoTokenizer would give other tokens than heedful.

    Args:
        files: the files of the tokeniser.
        config: the content of ``config.json``.
        where: the folder, for messages.

    Raises:
        UserError: the tokeniser's class is not supported, ``tokenizer.json`` contradicts
            ``tokenizer_config.json``, or the files are damaged.
    """
    settings = read_tokeniser_settings(files, where)
    if settings.get("split_special_tokens"):
        raise UserError(
            f"{where}/tokenizer_config.json: split_special_tokens = "
            f"{json.dumps(settings['split_special_tokens'])[:40]} is not supported: heedful reads "
            "the name of a special token in a text as that token"
        )
    tokenizer = read_tokenizer(files, where)
    family = family_of(tokenizer, where)
    named = settings.get("tokenizer_class") or config.get("tokenizer_class")
    known, kind = _CLASSES[family], config.get("model_type")
    if named is None and family in ("unigram", "merges") and kind not in _NEEDS_FILE:
        named = _USUAL.get(str(kind), "XLMRobertaTokenizer")
    if kind in _NEEDS_FILE and "tokenizer.json" not in files:
        raise UserError(f"{where}: there is no tokenizer.json, which model_type = '{kind}' needs")
    steps, own = json.loads(tokenizer.to_str()), str(named).removesuffix("Fast")
    if kind == "qwen2":  # AutoTokenizer uses Qwen2Tokenizer, whatever the files name
        _check_qwen2(steps, where)
    if named in _GENERIC or (named is None and kind in _NEEDS_FILE):
        return
    if named is not None and own not in known:
        raise UserError(
            f"{where}: tokenizer_class = {json.dumps(named)} is not supported for a tokeniser of "
            f"this kind; supported are {', '.join((*known, *_GENERIC))}"
        )
    if "tokenizer.json" not in files:
        return  # the tokeniser is built from these settings
    if own == "LlamaTokenizer":
        return  # with a byte-level tokenizer.json, AutoTokenizer uses the file unchanged
    if family == "wordpiece":
        _check_wordpiece(steps, settings, where)
    elif family == "merges":
        _check_nllb(steps, where)
    elif family == "unigram":
        _check_unigram(steps, settings, own, where)
    else:
        _check_bytes(steps, settings, kind == "qwen2" or own == "Qwen2Tokenizer", where)


def separators_of_pairs(files: Mapping[str, bytes], where: str) -> int:
    """The number of symbols that AutoTokenizer puts between the texts of a pair.

    Args:
        files: the files of the tokeniser, which `check_tokeniser` accepts.
        where: the folder, for messages.
    """
    named = str(read_tokeniser_settings(files, where).get("tokenizer_class")).removesuffix("Fast")
    if named in _TWO_SEPARATORS:
        return 2
    if any(named in names for names in _CLASSES.values()):
        return 1
    try:
        step = json.loads(files["tokenizer.json"])["post_processor"]
        steps = {one["type"]: one for one in step.get("processors", [step])}
        if "TemplateProcessing" in steps:
            texts = ["Sequence" in one for one in steps["TemplateProcessing"]["pair"]]
            return texts[texts.index(True) + 1 :].index(True)
    except (AttributeError, KeyError, TypeError, ValueError):
        return 1  # no post-processor for pairs
    return 2 if "RobertaProcessing" in steps else 1


def _check_wordpiece(steps: Mapping[str, Any], settings: Mapping[str, Any], where: str) -> None:
    """Raise UserError unless texts are normalized and split as BERT's classes do it."""
    step = steps["normalizer"] or {}
    if step.get("type") != "BertNormalizer":
        raise _differ(where, "BertNormalizer", f"normalizer {step.get('type', 'null')}")
    if not step["clean_text"]:
        raise _differ(where, "clean_text = true", "normalizer.clean_text = false")
    split = _types(steps["pre_tokenizer"], "pretokenizers")
    if split != ["BertPreTokenizer"]:
        raise _differ(where, "BertPreTokenizer", f"pre_tokenizer {split}")
    longest = steps["model"]["max_input_chars_per_word"]
    if longest != _LONGEST_WORD:
        name = "max_input_chars_per_word"
        raise _differ(where, f"{name} = {_LONGEST_WORD}", f"{name} = {longest}")
    for setting, (field, usual) in _NORMALIZER.items():
        wanted, found = settings.get(setting, usual), step[field]
        if wanted != found:
            external = f"{setting} = {json.dumps(wanted)}"
            raise _differ(where, external, f"normalizer.{field} = {json.dumps(found)}")


def _check_qwen2(steps: Mapping[str, Any], where: str) -> None:
    """Raise UserError unless texts are normalized and split as the class does it."""
    normalizer = (steps["normalizer"] or {}).get("type")
    if normalizer != "NFC":
        raise _differ(where, "NFC", f"normalizer {normalizer or 'null'}")
    inner = steps["pre_tokenizer"].get("pretokenizers", [steps["pre_tokenizer"]])
    split = {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False}
    if len(inner) != 2 or inner[0] != split or inner[1].get("use_regex", True):
        raise _differ(where, "Qwen 2's regular expression", "another pre_tokenizer")


def _check_nllb(steps: Mapping[str, Any], where: str) -> None:
    """Raise UserError unless texts are normalized and split as the class does it."""
    found = _types(steps["normalizer"], "normalizers")
    wanted = ["Precompiled", "Replace of spaces"] if "Precompiled" in found else []
    if found != wanted:
        raise _differ(where, f"normalizers {wanted}", f"normalizers {found}")
    _check_metaspace(steps["pre_tokenizer"], {}, "NllbTokenizer", where)
    model = steps["model"]
    if model.get("unk_token") is None or not model.get("fuse_unk") or model.get("ignore_merges"):
        raise _differ(where, "fuse_unk = true", "another treatment of unknown characters")


def _check_bytes(
    steps: Mapping[str, Any], settings: Mapping[str, Any], of_qwen2: bool, where: str
) -> None:
    """Raise UserError unless texts are split as the class does it: Qwen 2's, or GPT-2's and its
    relatives'."""
    inner = steps["pre_tokenizer"].get("pretokenizers", [steps["pre_tokenizer"]])
    if of_qwen2:
        _check_qwen2(steps, where)
    else:
        if normalizers := _types(steps["normalizer"], "normalizers"):
            raise _differ(where, "no normalizer", f"normalizers {normalizers}")
        split = _types(steps["pre_tokenizer"], "pretokenizers")
        if split != ["ByteLevel"] or not inner[0].get("use_regex", True):
            raise _differ(where, "ByteLevel with GPT-2's words", f"pre_tokenizer {split}")
    for name in ("ignore_merges", "byte_fallback"):
        if steps["model"].get(name):
            raise _differ(where, f"{name} = false", f"{name} = true")
    wanted, found = settings.get("add_prefix_space", False), inner[-1]["add_prefix_space"]
    if wanted != found:
        external = f"add_prefix_space = {json.dumps(wanted)}"
        raise _differ(where, external, f"add_prefix_space = {json.dumps(found)}")


def _check_unigram(
    steps: Mapping[str, Any], settings: Mapping[str, Any], named: str, where: str
) -> None:
    """Compare the steps with those that the class ``named`` builds.

    A map of characters is taken from the file.
    """
    found = _types(steps["normalizer"], "normalizers")
    own = [kind for kind in found if kind != "Precompiled"]
    _check_metaspace(steps["pre_tokenizer"], settings, named, where)
    wanted: list[str] = []
    if named == "MBart50Tokenizer":
        wanted = ["Replace of spaces"]
    elif named == "PegasusTokenizer":
        lines = [] if "Precompiled" in found else ["Replace of line feeds"]
        wanted = [*lines, "Replace of spaces"]
    else:  # words are split at white space, so that several spaces are one in either case
        own = [kind for kind in own if kind != "Replace of spaces"]
    if named == "AlbertTokenizer":
        wanted = _albert_normalizers(settings)
    if named == "XLNetTokenizer":
        lower = ["Lowercase"] if settings.get("do_lower_case", False) else []
        wanted = ["Replace", "Replace", "NFKD", "StripAccents", *lower]
        if "Precompiled" in found:  # the class puts the map of characters last
            own, wanted = found, [*wanted, "Precompiled"]
            own = [kind for kind in own if kind != "Replace of spaces"]
    if own != wanted:
        raise _differ(where, f"normalizers {wanted}", f"normalizers {own}")
    found_id = steps["model"]["unk_id"]
    unknown = _UNKNOWN_IDS.get(named, found_id)
    if named == "XLNetTokenizer":
        unknown = settings.get("unk_id", 0)
    if found_id != unknown:
        raise _differ(where, f"unk_id = {unknown}", f"unk_id = {found_id}")


def _check_metaspace(
    step: Mapping[str, Any], settings: Mapping[str, Any], named: str, where: str
) -> None:
    """Compare how a tokeniser of sentencepiece splits words with how the class ``named`` does."""
    whole = named in _WITHOUT_WORDS
    wanted = ["Metaspace"] if whole else ["WhitespaceSplit", "Metaspace"]
    split = _types(step, "pretokenizers")
    if split != wanted:
        raise _differ(where, " and ".join(wanted), f"pre_tokenizer {split}")
    always = whole or named in _ALWAYS_PREFIXED or settings.get("add_prefix_space", True)
    scheme = "always" if always else "never"
    metaspace = step.get("pretokenizers", [step])[-1]
    given = metaspace["prepend_scheme"]
    if given != scheme:
        raise _differ(where, f'prepend_scheme = "{scheme}"', f'prepend_scheme = "{given}"')
    if not metaspace.get("split", True):
        raise _differ(where, "split = true", "split = false")


def _albert_normalizers(settings: Mapping[str, Any]) -> list[str]:
    accents = [] if settings.get("keep_accents", False) else ["NFKD", "StripAccents"]
    lower = ["Lowercase"] if settings.get("do_lower_case", True) else []
    return ["Replace", "Replace", *accents, *lower]


def _types(step: Mapping[str, Any] | None, inner: str) -> list[str]:
    """The types of the steps of a sequence, or of a single step."""
    steps = [] if step is None else step.get(inner, [step])
    return [
        _REPLACED.get(one["pattern"].get("Regex"), "Replace")
        if one["type"] == "Replace"
        else str(one["type"])
        for one in steps
    ]


def _differ(where: str, external: str, internal: str) -> UserError:
    return UserError(
        f"{where}: tokenizer.json has {internal}, but AutoTokenizer uses {external} from "
        "tokenizer_config.json or its defaults; AutoTokenizer.from_pretrained(…)"
        ".save_pretrained(…) writes consistent files"
    )
