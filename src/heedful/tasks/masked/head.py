"""The head that predicts masked tokens: encoding of documents, layers, and the training task."""

from pathlib import Path
from typing import Any, cast

from torch import nn

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
from heedful.tasks.texts.sentences import SentenceRule, encode_documents


def encode(
    folder: Path,
    head: text_recipe.MaskedHead,
    examples: Examples,
    vocabulary: SavedVocabulary,
    max_tokens: int,
) -> dict[str, Any]:
    """Write encoded sentences of training and validation documents; returns facts about them.

    Raises:
        UserError: there is only one document, but sentence pairs need several.
    """
    return encode_documents(folder, examples, vocabulary, sentence_rule(head, max_tokens))


def sentence_rule(head: text_recipe.MaskedHead, max_tokens: int) -> SentenceRule:
    """How documents are divided: into sentences so short that two of them fit in a row of pairs."""
    return SentenceRule(
        (max_tokens - 3) // 2 if head.masking.of_pairs else max_tokens - 2,
        head.data.sentences,
        "next-sentence prediction needs several: set data.documents to what separates documents, "
        "or masking.next_sentence = false"
        if head.masking.next_sentence
        else "",
    )


def sentence_pairs(
    folder: Path,
    vocabulary: Vocabulary,
    head: text_recipe.MaskedHead,
    max_tokens: int,
    batch_tokens: int,
    *,
    packed: bool = False,
    window: int | None = None,
    verified: bool = False,
) -> SentencePairs:
    """Pre-training batches of encoded documents, of which several share a row if ``packed``.

    Args:
        folder: the documents.
        vocabulary: the vocabulary of the run.
        head: the settings of the head.
        max_tokens: maximum tokens of a row.
        batch_tokens: maximum tokens of a batch.
        packed: whether several texts share a row.
        window: number of sentences that are shuffled together; all if None.
        verified: compare files with their hashes when they are first read.

    Raises:
        UserError: the documents were encoded with another vocabulary, or are too long.
    """
    kind = PackedTexts if packed else SentencePairs
    return kind(
        EncodedDocuments.open(folder, verified=verified),
        vocabulary,
        max_tokens=max_tokens,
        batch_tokens=batch_tokens,
        next_sentence=head.masking.next_sentence,
        whole_words=head.masking.whole_word,
        masked=head.masking.share,
        sentence_order=head.masking.sentence_order,
        window=window,
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
        limits = (recipe.max_tokens, training.settings.batch_tokens)
        folder, how = run.set_folder(name) / part, training.reading(name, part)
        return sentence_pairs(folder, training.vocabulary, head, *limits, packed=packed, **how)

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
