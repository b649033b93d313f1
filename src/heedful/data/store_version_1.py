"""Read stores of heedful 0.1 as columns.

- An encoded corpus: ``index.json`` and for each shard ``00000.tokens`` with ``00000.offsets``, of
  each pair the source tokens, then the target tokens; with word links ``00000.links`` and
  ``00000.link-offsets`` beside. Columns ``source``, ``target`` and ``links``.
- A stream: ``stream.json`` and ``stream.tokens``. Column ``tokens``, a row a token.
- Documents: an encoded corpus with ``documents.starts``, which `heedful.data.document_store` reads.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.data.columns import Codec
from heedful.data.mapped import damaged
from heedful.data.stored_column import StoredColumn

CORPUS, STREAM = "index.json", "stream.json"


class Version1(NamedTuple):
    """The parts of a store of heedful 0.1."""

    codecs: dict[str, Codec]
    shards: list[tuple[int, dict[str, StoredColumn]]]
    facts: Mapping[str, Any]


def open_version_1(folder: Path) -> Version1 | None:
    """The columns of a folder of heedful 0.1; None if the folder is not such a store.

    Raises:
        UserError: a file is missing or damaged.
    """
    for name, of_index in ((CORPUS, _corpus), (STREAM, _stream)):
        path = folder / name
        if not path.is_file():
            continue
        index = read_json(path)
        if index.get("format") != 1:
            raise UserError(f"{path}: not an encoded corpus that this version of heedful reads")
        try:
            return of_index(folder, index)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise damaged(path) from error
    return None


def _corpus(folder: Path, index: Mapping[str, Any]) -> Version1:
    both = Codec("tokens", index["token_type"], 1, (), max(index["vocabularies"]))
    codecs = {"source": both, "target": both}
    if "link_type" in index:
        codecs["links"] = Codec("links", index["link_type"], 1, (2,))
    shards = []
    for number, shard in enumerate(index["shards"]):
        files = {part: folder / f"{number:05}.{part}" for part in ("tokens", "offsets")}
        paths = {"values": files["tokens"], "offsets": files["offsets"]}
        sizes = (shard["pairs"], shard["tokens"])
        columns = {
            side: StoredColumn(both, paths, *sizes, stride=2, phase=phase)
            for phase, side in enumerate(("source", "target"))
        }
        if "links" in codecs:
            own = {"values": f"{number:05}.links", "offsets": f"{number:05}.link-offsets"}
            columns["links"] = StoredColumn(
                codecs["links"],
                {part: folder / name for part, name in own.items()},
                shard["pairs"],
                shard["links"],
            )
        shards.append((shard["pairs"], columns))
    if sum(rows for rows, _ in shards) != index["pairs"]:
        raise damaged(folder / CORPUS)
    return Version1(codecs, shards, index)


def _stream(folder: Path, index: Mapping[str, Any]) -> Version1:
    codec = Codec("tokens", index["token_type"])
    count = index["tokens"] + 1
    column = StoredColumn(codec, {"values": folder / "stream.tokens"}, count, count)
    return Version1({"tokens": codec}, [(count, {"tokens": column})], index)
