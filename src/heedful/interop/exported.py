"""What a folder in the Hugging Face layout is made of, and its small files."""

import json
from typing import Any, NamedTuple

from torch import Tensor

GENERATION = "generation_config.json"


class Exported(NamedTuple):
    """All that is written."""

    config: dict[str, Any]
    """``config.json``, over what the run was imported with."""
    weights: dict[str, Tensor]
    files: dict[str, bytes]
    """Further files by name: the tokeniser's, and how to generate."""


def as_json(value: Any) -> bytes:
    """The bytes of a JSON file."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
