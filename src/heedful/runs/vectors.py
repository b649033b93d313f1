"""Word vectors that initialise the embedding tables of a run of any task."""

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
"""A run's initial vectors; rows of words without a vector are NaN."""


class VectorFile(NamedTuple):
    """A file of vectors, and the words to look up in it."""

    file: str
    vocabulary: Vocabulary


def write_vectors(
    path: Path, given: Mapping[str, VectorFile], model: Any, data_folder: Path | None
) -> dict[str, Any] | None:
    """Store the vectors of the vocabularies' words in a run; print the share of words found.

    Args:
        path: the run's folder.
        given: files by the name of the embedding table.
        model: the model's settings, which contain the sizes of its tables.
        data_folder: the base of relative paths.

    Returns:
        For each table the share of words found and the vector size; None if no files are given.

    Raises:
        UserError: a file is missing or damaged, or its vectors do not fit the model's tables.
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
    """The content hash of each vector file, by the dotted key of the setting."""
    files = {} if vectors is None else vectors.files
    return {
        f"vectors.{name}": [content_hash(Path(found)) for found in find_data([file], data_folder)]
        for name, file in files.items()
    }


def load_vectors(path: Path, embeddings: Mapping[str, nn.Embedding]) -> None:
    """Load a run's vectors into the embedding tables that ``write_vectors`` was called with.

    If a table has vectors from several files, the last one takes precedence.

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
