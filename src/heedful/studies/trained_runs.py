"""The runs that a study looks at: those that are given, or runs of recipes that it trains."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from heedful.basics.errors import UserError
from heedful.data.readers.trees import Tree, read_trees
from heedful.inference.word_reader import WordReader
from heedful.runs.recipe import tables_of
from heedful.runs.run import Run
from heedful.studies.study import StudyOptions
from heedful.tasks.spec import TaskSpec, spec_named, spec_of_run

TREEBANK = "ud-english-ewt"
"""The folder of UD English EWT in the folder of data."""
WIKITEXT = "wikitext-2"
MULTI30K = "multi30k"
TREC = "trec-sst-mr-subj"

_QUICK: dict[str, dict[str, Any]] = {
    "tokeniser": {"vocabulary_size": 400},
    "training": {
        "max_steps": 4,
        "batch_tokens": 256,
        "warmup_steps": 1,
        "validate_every": 4,
        "checkpoint_every": 4,
        "log_every": 4,
        "precision": "float32",
    },
}


class Recipe(NamedTuple):
    """A built-in recipe that a study trains."""

    name: str
    folder: str
    """The folder of its files in the folder of data."""


class Trained(NamedTuple):
    """A run that a study looks at."""

    label: str
    run: Run
    spec: TaskSpec
    predictor: Any
    """Of a multi-task run, that of the first head."""


def trained_runs(
    options: StudyOptions,
    recipes: Sequence[Recipe],
    check: Callable[[Trained], object] = lambda trained: None,
    *,
    reads_data: bool = False,
) -> Iterator[Trained]:
    """The runs that are given; else a run of each recipe and seed, trained or resumed in ``out``.

    All given runs are opened and checked before the first one is returned. Recipes whose data
    folder is missing are left out with a message. With ``quick``, only the first recipe is trained.

    Args:
        options: of the study.
        recipes: what is trained if no run is given.
        check: raises UserError for a run that the study cannot use.
        reads_data: whether the study reads data also if runs are given.

    Raises:
        UserError: a run cannot be opened or trained, no recipe has its data, or an option has no
            effect.
    """
    if options.runs:
        if len(options.seeds) > 1:
            raise UserError("--seeds is for trainings; leave it out with --run")
        if options.data is not None and not reads_data:
            raise UserError("--data is for trainings in this study; leave it out with --run")
        opened = [_opened(options, path, _label(path, options.runs)) for path in options.runs]
        for trained in opened:
            check(trained)
        yield from opened
        return
    wanted = ", ".join(dict.fromkeys(one.folder for one in recipes))
    if options.data is None:
        raise UserError(
            "give --run RUN to study a trained run, or --data FOLDER to train one; FOLDER has one "
            f"of the folders {wanted}"
        )
    there = [one for one in recipes if _folder(options, one.folder) is not None]
    if not there:
        raise UserError(
            f"--data {options.data} has none of the folders {wanted}; give --run RUN to "
            "study a trained run, or download the data"
        )
    for one in recipes:
        if one not in there:
            options.echo(f"{one.name} is left out: the folder of data has no {one.folder}")
    for one in there[:1] if options.quick else there:
        for seed in options.seeds:
            name = f"{one.name}-{seed}"
            tables = _tables(one.name, seed, quick=options.quick)
            run = options.train(name, tables, _folder(options, one.folder))
            yield _opened(options, run.path, name)


def reader_of(trained: Trained) -> WordReader:
    """A reader of words with the model of a run.

    Raises:
        UserError: the run's model does not read single texts with self-attention.
    """
    return WordReader(trained.predictor)


def treebank(options: StudyOptions, part: str) -> list[Tree]:
    """The trees of ``train``, ``dev`` or ``test``; with ``quick``, the first 40.

    Raises:
        UserError: the folder of data, or its folder ``ud-english-ewt``, has no such file or
            several.
    """
    folder = _folder(options, TREEBANK) or options.data_folder()
    files = sorted(folder.glob(f"*-ud-{part}.conllu*"))
    if len(files) != 1:
        raise UserError(
            f"{folder} has {len(files)} files *-ud-{part}.conllu; give the folder of one treebank "
            "of Universal Dependencies"
        )
    return list(islice(read_trees(files[0]), 40 if options.quick else None))


def texts_of(trained: Trained, part: str = "validation") -> list[str]:
    """The texts of the validation or test data that a run for single texts has stored.

    Documents are divided at line breaks; of a pair of texts, the first one is taken.

    Raises:
        UserError: the run has other data, or none.
    """
    own = trained.run
    if not hasattr(trained.spec, "kept"):
        raise UserError(f"{own.path} is a run for {own.recipe.task}; give a run for single texts")
    found: list[str] = []
    recipe: Any = own.recipe
    for name, settings in recipe.parts().items():
        spec: Any = spec_named(settings.task)
        for example in spec.kept(own, name, part):
            if hasattr(example, "words"):
                found.append(" ".join(example.words))
            else:
                text = example.texts[0] if hasattr(example, "texts") else example.text
                found += [line for line in text.split("\n") if line.strip()]
    if not found:
        raise UserError(f"{own.path} has no {part} data; give a run with data.{part}")
    return found


def _folder(options: StudyOptions, name: str) -> Path | None:
    """The folder of a data set in the folder of data, or the latter itself if it has this name."""
    base = options.data_folder()
    return next((one for one in (base / name, base) if one.name == name and one.is_dir()), None)


def _tables(name: str, seed: int, *, quick: bool) -> dict[str, Any]:
    tables = {**tables_of(name)[0], "seed": seed}
    for table, changes in _QUICK.items() if quick else ():
        tables[table] = {**tables.get(table, {}), **changes}
    if quick and "validation" in tables["data"]:
        tables["data"] = {**tables["data"], "train": tables["data"]["validation"]}
    return tables


def _opened(options: StudyOptions, path: Path, label: str) -> Trained:
    run, spec = spec_of_run(path)
    heads = list(spec.heads(run.recipe))
    head = None if heads == [spec.name] else heads[0]  # all heads have the same encoder
    return Trained(label, run, spec, spec.load(path, head=head, device=options.device))


def _label(path: Path, others: Sequence[Path]) -> str:
    same = [one for one in others if one.name == path.name]
    return path.name if len(same) == 1 and path.name else str(path)
