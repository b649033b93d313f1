"""The head that detects replaced tokens: encoding of documents, layers, and the training task."""

from pathlib import Path
from typing import Any, cast

from torch import nn

from heedful.data.document_store import EncodedDocuments
from heedful.data.masking import SentencePairs
from heedful.data.vocabularies import SavedVocabulary
from heedful.data.vocabulary import Vocabulary
from heedful.models.bert import Bert
from heedful.models.electra import ReplacedTokens
from heedful.models.encoders import HeadedEncoder
from heedful.tasks.replaced.recipe import ReplacedHead, ReplacedRecipe
from heedful.tasks.replaced.training import ReplacedTask
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.part import Training
from heedful.tasks.texts.sentences import SentenceRule, encode_documents


def encode(
    folder: Path, head: ReplacedHead, examples: Examples, vocabulary: SavedVocabulary, limit: int
) -> dict[str, Any]:
    """Write encoded sentences of training and validation documents; returns facts about them."""
    return encode_documents(folder, examples, vocabulary, sentence_rule(head, limit))


def sentence_rule(head: ReplacedHead, max_tokens: int) -> SentenceRule:
    """How documents are divided: into sentences that fit in a row."""
    return SentenceRule(max_tokens - 2, head.data.sentences)


def rows_of(
    folder: Path,
    vocabulary: Vocabulary,
    head: ReplacedHead,
    recipe: ReplacedRecipe,
    *,
    window: int | None = None,
    verified: bool = False,
) -> SentencePairs:
    """Rows of encoded documents; their masked tokens are those that the generator fills.

    Args:
        folder: the documents.
        vocabulary: the vocabulary of the run.
        head: the settings of the head.
        recipe: has the sizes of rows and batches.
        window: number of sentences that are shuffled together; all if None.
        verified: compare files with their hashes when they are first read.

    Raises:
        UserError: the documents were encoded with another vocabulary, or are too long.
    """
    return SentencePairs(
        EncodedDocuments.open(folder, verified=verified),
        vocabulary,
        max_tokens=recipe.max_tokens,
        batch_tokens=recipe.training.batch_tokens,
        next_sentence=False,
        whole_words=head.replacing.whole_word,
        masked=head.replacing.share,
        replaced=True,
        window=window,
    )


def layers(
    name: str, head: ReplacedHead, encoder: Any, labels: int, recipe: Any
) -> dict[str, nn.Module]:
    """The detector and the generator."""
    discriminator = cast(Bert, encoder)
    return {name: ReplacedTokens(discriminator, head.generator(discriminator.settings))}


def build_part(name: str, head: ReplacedHead, training: Training) -> ReplacedTask:
    """The task for the training loop."""
    run = training.run
    recipe = cast(ReplacedRecipe, run.recipe).model_copy(update={"training": training.settings})

    def rows(part: str) -> SentencePairs:
        folder = run.set_folder(name) / part
        how = training.reading(name, part)
        return rows_of(folder, training.vocabulary, head, recipe, **how)

    validated = (run.set_folder(name) / "validation").exists()
    return ReplacedTask(
        cast(HeadedEncoder, training.model),
        rows("train"),
        rows("validation") if validated else None,
        name=name,
        weight=head.replacing.weight,
        device=training.device,
        precision=training.precision,
    )
