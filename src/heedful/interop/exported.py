"""The content of a folder in the Hugging Face layout, and its small files."""

import json
from typing import Any, NamedTuple

from torch import Tensor

GENERATION = "generation_config.json"


class Exported(NamedTuple):
    """The files to write."""

    config: dict[str, Any]
    """``config.json``, merged with the configuration that the run was imported with."""
    weights: dict[str, Tensor]
    files: dict[str, bytes]
    """Further files by name: tokeniser and generation configuration."""


def as_json(value: Any) -> bytes:
    """The bytes of a JSON file."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
