"""The head that predicts tokens in random orders: encoding of documents, layers, training task."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from torch import nn

from heedful.basics.errors import UserError
from heedful.data.document_store import EncodedDocuments
from heedful.data.masking import SentencePairs
from heedful.data.permutation import PermutedRows
from heedful.data.vocabularies import SavedVocabulary
from heedful.data.vocabulary import Vocabulary
from heedful.models.encoders import HeadedEncoder
from heedful.models.xlnet import PermutationHead
from heedful.tasks.permutation import recipe as own_recipe
from heedful.tasks.permutation.training import PermutationTask
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.part import Training
from heedful.tasks.texts.recipe import EncoderRecipe
from heedful.tasks.texts.sentences import encode_documents, encode_sentences


def encode(
    folder: Path,
    head: own_recipe.PermutationHead,
    examples: Examples,
    vocabulary: SavedVocabulary,
    max_tokens: int,
) -> dict[str, Any]:
    """Write encoded sentences of training and validation documents; returns facts about them.

    Raises:
        UserError: there is only one document, but pairs of segments need several.
    """

    def write(texts: Iterator[str], place: Path) -> None:
        write_documents(texts, vocabulary, place, head, max_tokens)

    return encode_documents(folder, examples, write)


def write_documents(
    documents: Iterator[str],
    vocabulary: Vocabulary,
    folder: Path,
    head: own_recipe.PermutationHead,
    max_tokens: int,
) -> None:
    """Encode documents sentence by sentence, so short that two sentences fit in a row of pairs.

    Raises:
        UserError: there is only one document, but pairs of segments need several.
    """
    pairs = head.permutation.pairs
    longest = (max_tokens - 3) // 2 if pairs else max_tokens - 2
    encode_sentences(documents, vocabulary, folder, longest, head.data.sentences)
    if pairs and len(EncodedDocuments.open(folder)) < 2:
        raise UserError(
            f"the {folder.name} text is one document, but pairs of segments need several: set "
            "data.documents to what separates documents, or permutation.pairs = false"
        )


def permuted_rows(
    folder: Path,
    vocabulary: Vocabulary,
    settings: own_recipe.PermutationSettings,
    max_tokens: int,
    batch_tokens: int,
) -> PermutedRows:
    """Pre-training batches of encoded documents.

    Raises:
        UserError: the documents were encoded with another vocabulary, or are too long.
    """
    rows = SentencePairs(
        EncodedDocuments.open(folder),
        vocabulary,
        max_tokens=max_tokens,
        batch_tokens=batch_tokens,
        next_sentence=settings.pairs,
    )
    return PermutedRows(
        rows,
        one_in=settings.one_in,
        longest_span=settings.longest_span,
        memory=settings.memory,
    )


def layers(
    name: str, head: own_recipe.PermutationHead, encoder: Any, labels: int, recipe: Any
) -> dict[str, nn.Module]:
    """The layer that predicts tokens."""
    return {name: PermutationHead(encoder)}


def build_part(name: str, head: own_recipe.PermutationHead, training: Training) -> PermutationTask:
    """The task for the training loop."""
    run = training.run
    recipe = cast(EncoderRecipe, run.recipe)

    def rows(part: str) -> PermutedRows:
        limits = (recipe.max_tokens, training.settings.batch_tokens)
        folder = run.set_folder(name) / part
        return permuted_rows(folder, training.vocabulary, head.permutation, *limits)

    validated = (run.set_folder(name) / "validation").exists()
    return PermutationTask(
        cast(HeadedEncoder, training.model),
        rows("train"),
        rows("validation") if validated else None,
        name=name,
        device=training.device,
        precision=training.precision,
    )
