"""The head of embeddings: encoding of examples, the pooling, and the training task."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from torch import nn

from heedful.basics.errors import UserError
from heedful.basics.notices import notice, once
from heedful.data import columns
from heedful.data.examples import Similar
from heedful.data.vocabularies import SavedVocabulary
from heedful.inference.sliding_windows import room_for_text
from heedful.inference.text_reader import rows_of
from heedful.models.encoders import HeadedEncoder
from heedful.models.text_pooling import TextPooling
from heedful.tasks.embedding.batches import COLUMNS, SimilarBatches
from heedful.tasks.embedding.measures import cosine_of
from heedful.tasks.embedding.predictor import Embedder
from heedful.tasks.embedding.training import EmbeddingTask
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.labelled_rows import seen, write_rows
from heedful.tasks.texts.part import Training


def encode(
    folder: Path, settings: Any, examples: Examples, vocabulary: SavedVocabulary, max_tokens: int
) -> dict[str, Any]:
    """Write the encoded examples; returns facts about them.

    A long text alone is divided into windows, each an example. An example of several texts is left
    out if one of them is too long; a notice has their number.

    Raises:
        UserError: all examples have a text that is too long.
    """
    data = settings.data
    names = COLUMNS[: len(data.texts)]
    codecs = {name: columns.tokens(vocabulary.size) for name in names}
    if data.rating is not None:
        codecs["rating"] = columns.number()
    counts: Counter[str] = Counter()
    room = room_for_text(max_tokens)

    def rows() -> Iterator[tuple[Any, ...]]:
        for example in seen(examples.of("train"), "examples"):
            counts["examples"] += 1
            one = cast(Similar, example)
            tokens = [vocabulary.encode(text) for text in one.texts]
            long = any(len(own) > room for own in tokens)
            counts["long"] += long
            if len(tokens) == 1:
                for row in rows_of(tokens, max_tokens):
                    counts["rows"] += 1
                    yield (row.first,)
            elif not long:
                counts["rows"] += 1
                rated = [] if one.rating is None else [cosine_of(one.rating, data.range)]
                yield (*tokens, *rated)

    write_rows(rows(), folder, codecs)
    _report(counts, max_tokens, single=len(names) == 1)
    if not counts["rows"]:
        raise UserError(
            f"every training example of {examples.name} has a text of more than max_tokens "
            f"{max_tokens} tokens; raise max_tokens"
        )
    return {"train": counts["examples"], "windows": counts["rows"], "unit": "examples"}


def _report(counts: Counter[str], max_tokens: int, *, single: bool) -> None:
    if counts["long"]:
        what = (
            f"they are split into windows, {counts['rows']:,} in all"
            if single
            else "they are left out; raise max_tokens to use them"
        )
        notice(
            f"{counts['long']:,} of {counts['examples']:,} training examples have a text of more "
            f"than max_tokens {max_tokens} tokens: {what}"
        )


def layers(
    name: str, settings: Any, encoder: Any, labels: int, recipe: Any
) -> dict[str, nn.Module]:
    """The pooling.

    Raises:
        UserError: the encoder has no vectors that can be pooled so.
    """
    kind = settings.pooling
    if (encoder.pooled_dim if kind == "encoder" else encoder.dim) is None:
        what = (
            "vectors of tokens; set pooling = 'encoder'"
            if encoder.dim is None
            else "vectors of texts; set pooling = 'mean'"
        )
        raise UserError(f"model.kind = '{recipe.model.kind}' has no {what}")
    return {name: TextPooling(kind, encoder.pooled_from)}


def build_part(name: str, head: Any, training: Training) -> EmbeddingTask:
    """The task for the training loop."""
    run, model = training.run, cast(HeadedEncoder, training.model)
    reader = Embedder(
        model,
        training.vocabulary,
        normalize=head.normalize,
        head=name,
        device=training.device,
        notify=once(),
    )
    return EmbeddingTask(
        model,
        SimilarBatches(
            run.set_folder(name) / "train",
            training.settings.batch_tokens,
            **training.reading(name),
        ),
        run.similar(name, "validation"),
        reader,
        temperature=head.contrastive_temperature,
        scale=head.data.range,
        device=training.device,
        precision=training.precision,
    )
