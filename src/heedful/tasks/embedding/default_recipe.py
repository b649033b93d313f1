"""The recipe that is chosen for similar texts, rated pairs or plain text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.runs.recipe import find_data
from heedful.tasks.default_recipe import data_table, refuse_pipe
from heedful.tasks.embedding.recipe import EmbeddingData
from heedful.tasks.texts.default_recipe import PIPE, SEED, measure_texts, shares, steps, tokeniser

_LEAST, _MOST = 32, 256


def choose(
    paths: list[str],
    *,
    texts: Sequence[str] | None = None,
    rating: str | None = None,
    encoding: str | None = None,
    format: Any = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Choose a recipe for embeddings; returns its tables.

    The model is a bidirectional LSTM, whose states are averaged. A file whose name ends in ``.txt``
    has a text on each line.

    Raises:
        UserError: the files are invalid, or have no such columns.
    """
    refuse_pipe(paths, PIPE)
    plain = not texts and format is None and ".txt" in Path(paths[0]).suffixes
    if plain and rating is not None:
        raise UserError(f"{paths[0]} is plain text, which has no ratings; leave out --rating")
    own = {"plain_text": "lines"} if plain else {"texts": list(texts or ["text"]), "rating": rating}
    table = data_table(paths, encoding=encoding, format=format, **own)
    data = EmbeddingData.model_validate(table)
    size = measure_texts(data.read(find_data(paths, folder)), paths[0])
    length = max(_LEAST, min(_MOST, size.longest + 3))
    training = steps(size, passes=12)
    figure = {"rated": "spearman", "similar": "mean_reciprocal_rank", "single": "loss"}[data.kind]
    return {
        "task": "embedding",
        "seed": SEED,
        "data": {**table, **shares(size)},
        "tokeniser": tokeniser(size),
        "max_tokens": length,
        "model": {
            "kind": "recurrent-encoder",
            "hidden_size": 128,
            "embedding_size": 128,
            "pooling": "mean",
            "dropout": 0.3,
            "max_length": length,
        },
        "training": {**training, "choose_by": figure},
    }
