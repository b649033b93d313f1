"""Checks that a folder's tokeniser files give the tokens of ``transformers.AutoTokenizer``.

For the tokeniser classes of BERT and GPT-2, AutoTokenizer builds the normalizer and the
pre-tokenizer from ``tokenizer_config.json`` (with the class's defaults), and takes only the
vocabulary from ``tokenizer.json``. heedful reads only ``tokenizer.json``, so a folder is refused if
the two differ.
"""

import json
from collections.abc import Mapping
from typing import Any

from heedful.basics.errors import UserError
from heedful.data.tokeniser_files import family_of, read_tokeniser_settings, read_tokenizer

_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes that use ``tokenizer.json`` unchanged."""
_CLASSES = {
    "wordpiece": ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"),
    "bytes": ("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer"),
    "unigram": ("T5Tokenizer", "PegasusTokenizer"),
}
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
    tokenizer = read_tokenizer(files, where)
    family = family_of(tokenizer, where)
    named = settings.get("tokenizer_class") or config.get("tokenizer_class")
    known = _CLASSES[family]
    if named in _GENERIC:
        return
    if named is not None and str(named).removesuffix("Fast") not in known:
        raise UserError(
            f"{where}: tokenizer_class = {json.dumps(named)} is not supported for a tokeniser of "
            f"this kind; supported are {', '.join((*known, *_GENERIC))}"
        )
    if "tokenizer.json" not in files:
        return  # the tokeniser is built from these settings
    steps = json.loads(tokenizer.to_str())
    if family == "wordpiece":
        _check_normalizer(steps["normalizer"] or {}, settings, where)
    elif family == "unigram":
        _check_metaspace(steps["pre_tokenizer"], str(named).removesuffix("Fast"), config, where)
    else:
        _check_prefix_space(steps["pre_tokenizer"], settings, where)


def _check_normalizer(step: Mapping[str, Any], settings: Mapping[str, Any], where: str) -> None:
    if step.get("type") != "BertNormalizer":
        raise _differ(where, "BertNormalizer", f"normalizer {step.get('type', 'null')}")
    for setting, (field, usual) in _NORMALIZER.items():
        wanted, found = settings.get(setting, usual), step[field]
        if wanted != found:
            external = f"{setting} = {json.dumps(wanted)}"
            raise _differ(where, external, f"normalizer.{field} = {json.dumps(found)}")


def _check_metaspace(
    step: Mapping[str, Any], named: str, config: Mapping[str, Any], where: str
) -> None:
    of_t5 = named == "T5Tokenizer" or config.get("model_type") == "t5"
    wanted = ["WhitespaceSplit", "Metaspace"] if of_t5 else ["Metaspace"]
    steps = step.get("pretokenizers", [step])
    found = [each["type"] for each in steps]
    scheme = steps[-1].get("prepend_scheme")
    if found != wanted or scheme != "always":
        raise _differ(where, " and ".join(wanted), f"{' and '.join(found)} ({scheme})")


def _check_prefix_space(step: Mapping[str, Any], settings: Mapping[str, Any], where: str) -> None:
    for each in step.get("pretokenizers", [step]):
        if each["type"] == "ByteLevel":
            wanted, found = settings.get("add_prefix_space", False), each["add_prefix_space"]
            if wanted != found:
                external = f"add_prefix_space = {json.dumps(wanted)}"
                raise _differ(where, external, f"add_prefix_space = {json.dumps(found)}")


def _differ(where: str, external: str, internal: str) -> UserError:
    return UserError(
        f"{where}: tokenizer.json has {internal}, but AutoTokenizer uses {external} from "
        "tokenizer_config.json or its defaults; AutoTokenizer.from_pretrained(…)"
        ".save_pretrained(…) writes consistent files"
    )
