"""The recipe for texts with summaries, when none is given."""

from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.json_models import read_object
from heedful.data.listed_vocabularies import ListedSettings, Words
from heedful.tasks.default_recipe import data_table, refuse_pipe
from heedful.tasks.summary.examples import SummaryFiles

_PIPE = "a recipe is chosen after the data are read, which cannot be done with standard input"
_LONGEST = 400
_PASSES = 12
_BATCH_WORDS = 6000


def choose(
    paths: list[str], *, encoding: str | None = None, folder: Path | None = None, **settings: Any
) -> dict[str, Any]:
    """Choose a recipe for texts with summaries; returns its tables.

    Texts are cut to 400 words, as See et al. 2017 do (section 5).

    Args:
        paths: the files.
        encoding: of the files; default: UTF-8.
        folder: of relative paths.
        settings: further settings of ``[data]`` with which the files are read.

    Raises:
        UserError: the files or settings are invalid, or the files are empty.
    """
    from heedful.runs.recipe import find_data

    refuse_pipe(paths, _PIPE)
    files = read_object(SummaryFiles, {"train": paths, **settings}, "[data]")
    cut = Words((), ListedSettings())
    lengths = [
        (len(cut.cut(one.source)), max(len(cut.cut(text)) for text in one.targets))
        for one in files.read(find_data(paths, folder), encoding)
    ]
    if not lengths:
        raise UserError(f"{', '.join(paths)}: no texts to train on")
    words = sum(min(source, _LONGEST) for source, _ in lengths)
    steps = max(300, min(40_000, _PASSES * words // _BATCH_WORDS))
    every = max(100, steps // 15)
    written = sorted(target for _, target in lengths)[int(0.98 * len(lengths))]
    share = round(min(0.1, 500 / len(lengths)), 6)
    return {
        "task": "summary",
        "seed": 1,
        "data": {
            **data_table(paths, encoding=encoding, **settings),
            "longest_source": _LONGEST,
            "longest_summary": max(10, min(_LONGEST, written)),
            "minimum_count": 2 if len(lengths) < 5000 else 4,
            "validation_share": share,
            "test_share": share,
        },
        "model": {"kind": "pointer-generator", "embedding_size": 128, "hidden_size": 192},
        "training": {
            "max_steps": steps,
            "batch_tokens": _BATCH_WORDS,
            "learning_rate": 0.001,
            "schedule": "linear",
            "warmup_steps": min(200, steps // 10),
            "precision": "float32",
            "choose_by": "rouge1",
            "validate_every": every,
            "checkpoint_every": every,
        },
        "decoding": {"block_ngrams": 3},
    }
