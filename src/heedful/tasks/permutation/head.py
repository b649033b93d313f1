"""The head that predicts tokens in random orders: encoding of documents, layers, training task."""

from pathlib import Path
from typing import Any, cast

from torch import nn

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
from heedful.tasks.texts.sentences import SentenceRule, encode_documents


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
    return encode_documents(folder, examples, vocabulary, sentence_rule(head, max_tokens))


def sentence_rule(head: own_recipe.PermutationHead, max_tokens: int) -> SentenceRule:
    """How documents are divided: into sentences so short that two of them fit in a row of pairs."""
    pairs = head.permutation.pairs
    return SentenceRule(
        (max_tokens - 3) // 2 if pairs else max_tokens - 2,
        head.data.sentences,
        "pairs of segments need several: set data.documents to what separates documents, or "
        "permutation.pairs = false"
        if pairs
        else "",
    )


def permuted_rows(
    folder: Path,
    vocabulary: Vocabulary,
    settings: own_recipe.PermutationSettings,
    max_tokens: int,
    batch_tokens: int,
    *,
    window: int | None = None,
    verified: bool = False,
) -> PermutedRows:
    """Pre-training batches of encoded documents.

    Args:
        folder: the documents.
        vocabulary: the vocabulary of the run.
        settings: what is predicted.
        max_tokens: maximum tokens of a row.
        batch_tokens: maximum tokens of a batch.
        window: number of sentences that are shuffled together; all if None.
        verified: compare files with their hashes when they are first read.

    Raises:
        UserError: the documents were encoded with another vocabulary, or are too long.
    """
    rows = SentencePairs(
        EncodedDocuments.open(folder, verified=verified),
        vocabulary,
        max_tokens=max_tokens,
        batch_tokens=batch_tokens,
        next_sentence=settings.pairs,
        window=window,
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
        how = training.reading(name, part)
        return permuted_rows(folder, training.vocabulary, head.permutation, *limits, **how)

    validated = (run.set_folder(name) / "validation").exists()
    return PermutationTask(
        cast(HeadedEncoder, training.model),
        rows("train"),
        rows("validation") if validated else None,
        name=name,
        device=training.device,
        precision=training.precision,
    )
