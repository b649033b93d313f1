"""The head that predicts masked tokens: encoding of documents, layers, and the training task."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from torch import nn

from heedful.basics.errors import UserError
from heedful.data.document_store import EncodedDocuments
from heedful.data.masking import SentencePairs
from heedful.data.packed_texts import PackedTexts
from heedful.data.vocabularies import SavedVocabulary
from heedful.data.vocabulary import Vocabulary
from heedful.models.bert import MaskedHead, NextSentenceHead
from heedful.models.encoders import HeadedEncoder
from heedful.tasks.masked.training import MaskedTask
from heedful.tasks.texts import recipe as text_recipe
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.part import Training
from heedful.tasks.texts.sentences import encode_documents, encode_sentences


def encode(
    folder: Path,
    head: text_recipe.MaskedHead,
    examples: Examples,
    vocabulary: SavedVocabulary,
    max_tokens: int,
) -> dict[str, Any]:
    """Write encoded sentences of training and validation documents; returns facts about them."""

    def write(texts: Iterator[str], place: Path) -> None:
        write_sentences(texts, vocabulary, place, max_tokens, head)

    return encode_documents(folder, examples, write)


def write_sentences(
    documents: Iterator[str],
    vocabulary: Vocabulary,
    folder: Path,
    max_tokens: int,
    head: text_recipe.MaskedHead,
) -> None:
    """Encode documents sentence by sentence, so short that two sentences fit in a row.

    Raises:
        UserError: there is only one document, but sentence pairs need several.
    """
    longest = (max_tokens - 3) // 2 if head.masking.of_pairs else max_tokens - 2
    encode_sentences(documents, vocabulary, folder, longest, head.data.sentences)
    if head.masking.next_sentence and len(EncodedDocuments.open(folder)) < 2:
        raise UserError(
            f"the {folder.name} text is one document, but next-sentence prediction needs several: "
            "set data.documents to what separates documents, or masking.next_sentence = false"
        )


def sentence_pairs(
    folder: Path,
    vocabulary: Vocabulary,
    head: text_recipe.MaskedHead,
    max_tokens: int,
    batch_tokens: int,
    *,
    packed: bool = False,
) -> SentencePairs:
    """Pre-training batches of encoded documents, of which several share a row if ``packed``.

    Raises:
        UserError: the documents were encoded with another vocabulary, or are too long.
    """
    kind = PackedTexts if packed else SentencePairs
    return kind(
        EncodedDocuments.open(folder),
        vocabulary,
        max_tokens=max_tokens,
        batch_tokens=batch_tokens,
        next_sentence=head.masking.next_sentence,
        whole_words=head.masking.whole_word,
        masked=head.masking.share,
        sentence_order=head.masking.sentence_order,
    )


def layers(
    name: str, head: text_recipe.MaskedHead, encoder: Any, labels: int, recipe: Any
) -> dict[str, nn.Module]:
    """The layers that predict masked tokens, and how the segments of a pair are related."""
    found: dict[str, nn.Module] = {name: MaskedHead(encoder)}
    if head.masking.of_pairs:
        found[f"{name}_next"] = NextSentenceHead(encoder.pooled_dim)
    return found


def build_part(name: str, head: text_recipe.MaskedHead, training: Training) -> MaskedTask:
    """The task for the training loop."""
    run = training.run
    recipe = cast(text_recipe.EncoderRecipe, run.recipe)

    def pairs(part: str, packed: bool = False) -> SentencePairs:
        folder, limits = run.set_folder(name) / part, (recipe.max_tokens, batch_tokens)
        return sentence_pairs(folder, training.vocabulary, head, *limits, packed=packed)

    batch_tokens = training.settings.batch_tokens
    packed = getattr(recipe, "windows", "separate") == "packed"
    validated = (run.set_folder(name) / "validation").exists()
    return MaskedTask(
        cast(HeadedEncoder, training.model),
        pairs("train", packed),
        pairs("validation") if validated else None,
        name=name,
        pairs=head.masking.of_pairs or "next",
        device=training.device,
        precision=training.precision,
    )
