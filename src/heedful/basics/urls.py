"""URLs in place of paths."""

import re
from pathlib import Path

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,3}([^/].*)", re.DOTALL)


def url_of(path: str | Path) -> str | None:
    """The URL that a path stands for, or None if it is a path of files.

    `Path` joins the two slashes of a URL; they are restored. A scheme has at least two letters, so
    that drives of Windows are paths.

    Example:
        >>> url_of(Path("s3://bucket/corpus")), url_of("data/corpus.tsv"), url_of("C:/corpus.tsv")
        ('s3://bucket/corpus', None, None)
    """
    found = _URL.fullmatch(str(path))
    if found is None:
        return None
    scheme = found[1].lower()
    return f"{scheme}://{'/' * (scheme == 'file')}{found[2]}"
