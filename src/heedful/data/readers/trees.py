"""Dependency trees of CoNLL-U files."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.data.readers.tagged import read_tagged

ROOT = -1
"""The head of a word that has none."""


@dataclass(frozen=True)
class Tree:
    """A sentence and its dependency tree.

    Example:
        >>> tree = Tree(("a", "dog"), ("DET", "NOUN"), (1, -1), ("det", "root"))
        >>> tree.words[tree.heads[0]]
        'dog'
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    """The part of speech of each word (UPOS)."""
    heads: tuple[int, ...]
    """The index of each word's head; :data:`ROOT` for the root."""
    relations: tuple[str, ...]
    """The relation of each word to its head, with its subtype, such as ``nmod:poss``."""

    def depths(self) -> list[int]:
        """The number of arcs from each word up to its root; 0 for a root.

        Example:
            >>> Tree(tuple("abc"), ("X",) * 3, (1, 2, -1), ("dep", "dep", "root")).depths()
            [2, 1, 0]
        """
        found: list[int] = []
        for word in range(len(self.words)):
            depth = 0
            while self.heads[word] != ROOT:
                word, depth = self.heads[word], depth + 1
                if depth > len(self.words):
                    raise ValueError("the arcs of this sentence have a cycle")
            found.append(depth)
        return found


def read_trees(path: str | Path) -> Iterator[Tree]:
    """Stream the trees of a CoNLL-U file, plain, gzip or xz.

    Ranges such as ``3-4`` and empty nodes such as ``5.1`` are not words; their annotation is not
    part of the tree.

    Raises:
        UserError: the file is missing or invalid; a word has no head, relation or part of speech;
            or the arcs of a sentence are no tree.
    """
    columns = [read_tagged(path, column=name) for name in ("upos", "head", "deprel")]
    for number, (tags, heads, relations) in enumerate(zip(*columns, strict=True), start=1):
        where = f"{path}: sentence {number}"
        found = Tree(tags.words, tags.tags, _indices(heads.tags, where), relations.tags)
        try:
            found.depths()
        except ValueError as error:
            raise UserError(f"{where}: {error}; correct the column of heads") from error
        yield found


def _indices(heads: tuple[str, ...], where: str) -> tuple[int, ...]:
    for head in heads:
        if not head.isdecimal() or int(head) > len(heads):
            raise UserError(
                f"{where}: the head '{head}' is not the number of one of its {len(heads)} words, "
                "or 0; trees are read from the ten columns of CoNLL-U"
            )
    return tuple(int(head) - 1 for head in heads)
