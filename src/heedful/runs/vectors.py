"""Word vectors that a run's tables of token vectors begin with, whatever its task."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import nn

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, content_hash
from heedful.basics.notices import notice
from heedful.data.vocabulary import Vocabulary
from heedful.data.word_vectors import read_word_vectors
from heedful.runs.checkpoints import read_tensors
from heedful.runs.recipe import find_data
from heedful.runs.settings import VectorSettings

VECTORS = "data/vectors.safetensors"
"""Where a run keeps the vectors that it began with; rows of words without one are NaN."""


class Given(NamedTuple):
    """A file of vectors, and the words that are looked up in it."""

    file: str
    vocabulary: Vocabulary


def keep_vectors(
    path: Path, given: Mapping[str, Given], model: Any, data_folder: Path | None
) -> dict[str, Any] | None:
    """Keep the vectors of the vocabularies' words in a run, and say what share has one.

    Args:
        path: the run's folder.
        given: files by the name of the table of token vectors.
        model: the model's settings, which say how wide its tables are.
        data_folder: where relative paths start.

    Returns:
        For each table the share of words found and the width; None if nothing is given.

    Raises:
        UserError: a file is missing or broken, or as wide as no table of the model.
    """
    if not given:
        return None
    setting = next(name for name in ("embedding_size", "hidden_size") if hasattr(model, name))
    width = getattr(model, setting)
    tables, facts = {}, {}
    for name, (file, vocabulary) in given.items():
        (found,) = find_data([file], data_folder)
        table, share = read_word_vectors(Path(found), vocabulary)
        if width != table.shape[1]:
            raise UserError(
                f"{found}: the vectors are {table.shape[1]} wide, the model's embeddings {width}; "
                f"set model.{setting} = {table.shape[1]}"
            )
        notice(f"{share:.1%} of the vocabulary's words have a vector in {found}")
        tables[name] = table
        facts[name] = {"found": share, "width": width}
    with atomic_file(path / VECTORS) as opened:
        opened.write(save(tables))
    return facts


def vector_hashes(vectors: VectorSettings | None, data_folder: Path | None) -> dict[str, list[str]]:
    """The content hash of each file of vectors, by the dotted key that names it."""
    files = {} if vectors is None else vectors.files
    return {
        f"vectors.{name}": [content_hash(Path(found)) for found in find_data([file], data_folder)]
        for name, file in files.items()
    }


def put_vectors(path: Path, embeddings: Mapping[str, nn.Embedding]) -> None:
    """Put a run's vectors into the tables that ``keep_vectors`` was given names of.

    Of a word that has one in several files where there is one table, the last table's counts.

    Raises:
        UserError: they are missing or damaged.
    """
    for name, given in read_tensors(path / VECTORS).items():
        known_table = embeddings.get(name)
        if known_table is None or known_table.weight.shape != given.shape:
            raise UserError(
                f"{path / VECTORS}: '{name}' is no table of the model, or of another shape; the "
                "file is damaged"
            )
        table = known_table.weight
        known = ~given.isnan().any(1)
        with torch.no_grad():
            table[known.to(table.device)] = given[known].to(table.device)
