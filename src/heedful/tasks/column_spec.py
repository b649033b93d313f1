"""Tasks whose data files contain one example per line, as JSON, and that are trained on columns.

Such a task defines an example, its encoding, the model, the loss, the predictor and the metrics.
Files, runs, batches, loading and evaluation are the same for all of them.
"""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ValidationError

from heedful.basics.errors import UserError
from heedful.basics.json_models import first_problem, named, read_object
from heedful.runs.facts import Count, Facts
from heedful.runs.settings import NO_TEST, FileSettings
from heedful.tasks.column_corpus import ColumnCorpus, notice_left
from heedful.tasks.spec import Opening, TaskSpec

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from heedful.data.columns import Codec
    from heedful.data.readers.folders import FilesOf
    from heedful.data.store import Store
    from heedful.evaluation.outcome import Evaluation, Examples, Figure
    from heedful.runs.run import Run
    from heedful.runs.start import Start
    from heedful.training.column_task import ColumnTask


class LeftOutError(Exception):
    """Raised by :meth:`ColumnSpec.encode` for an example that cannot be trained on; the message
    names the kind of such examples and the setting, and is counted in a notice."""


class ExampleFiles(FileSettings):
    """Files of JSON lines, or Python data, with one ``example`` per line or row."""

    example: ClassVar[type[BaseModel]]
    """The type of an example."""

    def example_of(self, row: Any) -> Any:
        from heedful.data.python_rows import RowError, values

        fields_of = self.example.model_fields.items()
        given = set(row.keys()) if hasattr(row, "keys") else set()
        names = [name for name, own in fields_of if own.is_required() or name in given]
        fields = dict(zip(names, values(row, names), strict=True))
        try:
            return self.example.model_validate(fields).model_dump(mode="json")
        except ValidationError as error:
            raise RowError(first_problem(error, self.example)) from error

    def read(self, files: Sequence[str], encoding: str | None = None) -> Iterator[Any]:
        """The examples of files, plain, gzip or xz; UTF-8 unless ``encoding`` is given.

        Tasks with other formats of files override this.

        Raises:
            UserError: a line is not a valid example; the message names file, line and field.
        """
        return self.read_lines(files, encoding)

    def read_lines(self, files: Sequence[str], encoding: str | None = None) -> Iterator[Any]:
        """The examples of files of JSON lines, such as those that a run keeps.

        Raises:
            UserError: as :meth:`read`.
        """
        from heedful.data.readers.labelled import json_objects
        from heedful.data.readers.opening import open_input

        for path in files:
            with open_input(path) as file:
                for where, found in json_objects(file, encoding):
                    if found is not None:
                        yield named(read_object(self.example, found, where), where)


class _Data(BaseModel):
    hashes: dict[str, list[str]]
    train: Count
    validation: Count
    test: Count


class ColumnFacts(Facts):
    """The facts in ``run.json``."""

    data: _Data
    known: dict[str, Any]
    """Facts collected from the training examples: see :meth:`ColumnSpec.known`."""


class ColumnSpec(TaskSpec):
    """A task that is trained on columns. The ``data`` of its recipe are :class:`ExampleFiles`."""

    reads_folders: ClassVar[bool] = False
    """Whether a path of ``[data]`` may be a folder."""
    rows_at_once: ClassVar[int] = 1000
    """Number of examples encoded at a time."""

    # What a task brings

    def files_of(self, folder: str) -> "list[Path]":
        """The files that are read in a folder, if :attr:`reads_folders`."""
        raise NotImplementedError

    def check_files(self, files: Mapping[str, Sequence[str]], recipe: Any) -> None:
        """Check the files of all parts before they are read; by default, nothing.

        Raises:
            UserError: they cannot be used.
        """

    def known(self, examples: Iterable[Any], recipe: Any) -> dict[str, Any]:
        """Collect what the encoding needs from the training examples, such as labels or words.

        Returns:
            Values that JSON can represent; stored in ``run.json`` as ``run.facts["known"]``.
        """
        return {}

    def known_from(self, start: "Start", examples: Iterable[Any], recipe: Any) -> dict[str, Any]:
        """What :meth:`known` returns, for a run that starts from another one: of tasks whose runs
        can (:attr:`starts`)."""
        raise NotImplementedError

    def weights_from(
        self, start: "Start", known: Mapping[str, Any], recipe: Any
    ) -> "Mapping[str, Tensor]":
        """The weights of a run that starts from another one; by default, those of that run."""
        return start.weights

    @abstractmethod
    def input_type(self) -> type[BaseModel]:
        """The type of an input: some of the fields of an example."""

    @abstractmethod
    def codecs(self, known: Mapping[str, Any]) -> "Mapping[str, Codec]":
        """The columns and how they are stored (:mod:`heedful.data.columns`)."""

    @abstractmethod
    def encode(self, example: Any, known: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row of an example, a value for each column; or of an input, for those that it has.

        Raises:
            UserError: the example cannot be used.
            LeftOutError: the example is left out of the training or validation data.
        """

    def kept(self, example: Any, known: Mapping[str, Any]) -> Any:
        """A held-out example as the run keeps it; by default, unchanged."""
        return example

    @abstractmethod
    def task_type(self) -> "type[ColumnTask]":
        """The class that computes the loss."""

    @abstractmethod
    def predictor_type(self) -> type[Any]:
        """The class of the predictor, a subclass of
        :class:`~heedful.tasks.column_predictor.ColumnPredictor`."""

    def reference(self, example: Any) -> str:
        """The reference output of an example, in the format of :meth:`write_result`."""
        raise NotImplementedError

    def figures(
        self, examples: Sequence[Any], results: Sequence[Any], known: Mapping[str, Any]
    ) -> "Mapping[str, Figure]":
        """The metrics of the results of one or more examples; by default, the accuracy."""
        from heedful.evaluation.outcome import Figure

        right = [
            self.write_result(result) == self.reference(example)
            for example, result in zip(examples, results, strict=True)
        ]
        return {"accuracy": Figure(100 * sum(right) / len(right), unit="%")}

    # The same for all tasks

    def facts_type(self) -> type[Facts]:
        return ColumnFacts

    def describe(self, summary: dict[str, Any]) -> list[tuple[str, str]]:
        data = summary["data"]
        held = f"{data['validation']:,} validation, {data['test']:,} test"
        trained = f"{data['train']:,} examples"
        return [*super().describe(summary), ("trained on", trained), ("held out", held)]

    def amount(self, run: Any) -> str:
        return f"{run.facts['data']['train']:,} examples"

    @property
    def _folders(self) -> "FilesOf | None":
        return self.files_of if self.reads_folders else None

    def data_hashes(self, recipe: Any, data_folder: Path | None) -> dict[str, list[str]]:
        from heedful.tasks.preparation import recipe_hashes

        return recipe_hashes(recipe.data.files, None, data_folder, files_of=self._folders)

    def prepare(
        self, path: Path, recipe: Any, data_folder: Path | None, start: "Start | None"
    ) -> "Run":
        from heedful.runs.opening import open_run
        from heedful.tasks.preparation import content_hashes, write_run

        corpus = ColumnCorpus.of(path, recipe, data_folder, self._folders)
        self.check_files(corpus.files, recipe)
        hashes = content_hashes(corpus.files, self._folders)
        examples = corpus.examples("train")
        if start is None:
            known = self.known(examples, recipe)
        else:
            known = self.known_from(start, examples, recipe)
        counts = {part: self._write(path, part, corpus, known) for part in corpus.files}
        about = {"data": {"hashes": hashes, **counts}, "known": known}
        weights = {} if start is None else self.weights_from(start, known, recipe)
        write_run(path, recipe, about, None, start, weights)
        return open_run(path)

    def _write(self, path: Path, part: str, corpus: ColumnCorpus, known: Mapping[str, Any]) -> int:
        """Write the columns of a part if training reads them, and the examples if it is held out.

        Returns:
            The number of examples.
        """
        from heedful.basics.files import atomic_file, atomic_folder
        from heedful.data.columns import columns_of
        from heedful.data.store import StoreWriter

        codecs, count = self.codecs(known), 0
        place = path / "data" / part
        if part != "test":
            examples = corpus.examples(part)
            with atomic_folder(place) as folder, StoreWriter(folder, codecs) as writer:
                left: Counter[str] = Counter()
                while some := list(islice(examples, self.rows_at_once)):
                    if rows := self._rows(some, known, left):
                        writer.add(columns_of(rows, codecs))
                    count += len(rows)
                writer.finish({})
            notice_left(part, left, count)
        if part != "train":
            with atomic_file(place.with_suffix(".jsonl")) as file:
                count = 0
                for example in corpus.examples(part):
                    file.write(self.kept(example, known).model_dump_json().encode() + b"\n")
                    count += 1
        if not count and corpus.files[part]:
            raise UserError(f"data.{part}: {', '.join(corpus.files[part])} is empty")
        return count

    def _rows(
        self, examples: Sequence[Any], known: Mapping[str, Any], left: Counter[str]
    ) -> list[Mapping[str, Any]]:
        """The rows of examples; those that are left out are counted in ``left``."""
        rows = []
        for one in examples:
            try:
                rows.append(self.encode(one, known))
            except LeftOutError as reason:
                left[str(reason)] += 1
        return rows

    def build_task(
        self, run: Any, model: Any, training: Any, device: "torch.device", precision: str
    ) -> "ColumnTask":
        return self.task_type()(
            model, *self.stores(run), training.batch_tokens, device=device, precision=precision
        )

    def stores(self, run: Any) -> "tuple[Store, Store | None]":
        """The training data and the validation data of a run; None if it has none."""
        from heedful.data.store import Store

        train, held_out = (Store.open(run.path / "data" / part) for part in ("train", "validation"))
        return train, held_out if len(held_out) else None

    def load(
        self,
        run: str | Path,
        *,
        head: str | None = None,
        device: str = "auto",
        precision: str = "float32",
        checkpoint: str | int | None = None,
    ) -> Any:
        from heedful.basics.device import check_precision, choose_device
        from heedful.runs.building import load
        from heedful.runs.opening import open_run

        opened = open_run(run)
        if opened.recipe.task != self.name:
            raise UserError(f"{run} is a run for {opened.recipe.task}, not for {self.name}")
        self.refuse_head(run, head)
        where = choose_device(device)
        products = check_precision(precision, where)
        model: nn.Module = load(opened, lambda: self.fresh_model(opened), checkpoint=checkpoint)
        products = "float32" if products == "auto" else products
        made = self.predictor_type()
        return made(self, opened, model.to(where).eval(), device=where, precision=products)

    def evaluate(
        self, run: "Run", data: Sequence[str] | None, options: Any, opening: Opening
    ) -> "Evaluation":
        from heedful.evaluation.outcome import Evaluation

        files: Any = getattr(run.recipe, "data")  # noqa: B009 - each task types its own
        if data is None:
            run.require_unchanged("data/test.jsonl")
            examples = list(files.read_lines([str(run.path / "data" / "test.jsonl")]))
        else:
            examples = list(files.read(data, files.encoding))
        if not examples:
            if data is not None:
                raise UserError(f"{', '.join(data)} is empty")
            raise UserError(f"{run.path} {NO_TEST}; give files with --data")
        predictor = opening.load(run.path)
        settings = self.configure(predictor, options, opening)
        results = predictor.predict([self._input_of(one) for one in examples])
        outputs = [self.write_result(one) for one in results]
        title = f"{len(examples):,} examples"
        known = run.facts["known"]
        figures = self.figures(examples, results, known)
        one_by_one = self.one_by_one(examples, outputs, figures, known)
        return Evaluation(title, figures, outputs, settings=settings, examples=one_by_one)

    def configure(self, predictor: Any, options: Any, opening: Opening) -> Mapping[str, Any]:
        """Change how a predictor of :meth:`evaluate` computes.

        Args:
            predictor: the predictor.
            options: an instance of :meth:`evaluation_options`.
            opening: loads further runs.

        Returns:
            The settings, which are recorded with the figures.

        Raises:
            UserError: the run does not allow the options.
        """
        return {}

    def one_by_one(
        self,
        examples: Sequence[Any],
        outputs: Sequence[str],
        figures: "Mapping[str, Figure]",
        known: Mapping[str, Any],
    ) -> "Examples | None":
        """The examples for comparing runs; None if the task has no references."""
        from heedful.evaluation.outcome import Examples

        try:
            references = [self.reference(one) for one in examples]
        except NotImplementedError:
            return None
        right = [[float(a == b), 1.0] for a, b in zip(outputs, references, strict=True)]
        share = 100 * sum(one for one, _ in right) / len(right)
        given = figures.get("accuracy")
        same = given is not None and math.isclose(given.value, share, abs_tol=1e-9)
        measure = {"kind": "mean", "values": right, "scale": 100.0}
        inputs = [self._input_of(one).model_dump_json() for one in examples]
        name = "accuracy" if same else "exact match"
        return Examples(inputs, references, outputs, {name: measure})

    def _input_of(self, example: BaseModel) -> BaseModel:
        """The input of an example, without the output that it also has."""
        kind = self.input_type()
        found = kind.model_validate(example.model_dump(include=set(kind.model_fields)))
        return named(found, example.where) if hasattr(example, "where") else found


def refuse_other_data(data: BaseModel, theirs: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise UserError if a run would read its data in another way than the run it starts from.

    Args:
        data: the table ``[data]`` of the recipe.
        theirs: the facts of the other run.
        names: the settings that must be the same.
    """
    now = data.model_dump()
    for name in names:
        if now[name] != theirs[name]:
            raise UserError(
                f"data.{name} differs from that of the run that this one starts from "
                f"({now[name]!r}, there {theirs[name]!r}); use the same"
            )
