"""A summary of a text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.basics.notices import notice
from heedful.tasks.column_spec import ColumnSpec, refuse_other_data
from heedful.tasks.spec import Command, maps_of, register

if TYPE_CHECKING:
    import torch

    from heedful.data.columns import Codec
    from heedful.evaluation.outcome import Examples, Figure
    from heedful.models import PairModel
    from heedful.runs.run import Run
    from heedful.runs.start import Start
    from heedful.tasks.sketch import Sketch
    from heedful.tasks.summary.examples import Summarised, ToSummarise
    from heedful.tasks.summary.predictor import Summariser
    from heedful.tasks.summary.recipe import SummaryRecipe
    from heedful.tasks.summary.training import SummaryTask

_READING = ("lower_case", "split")
"""Settings of ``[data]`` that belong to the vocabulary."""


class Summarising(ColumnSpec):
    """Writes a summary of a text; words of the text can be copied."""

    name = "summary"
    place = 3
    command = "summarise"
    does = "summarises texts"
    train_option = "summarise"
    corpus = "JSON lines, TSV or CSV with a text (source) and its summary (target)"
    reading_settings = ("encoding", "source_column", "target_column", "references")
    family = "summary"
    starts = frozenset({"summary"})
    changeable_at_start = frozenset({"model.dropout"})

    def recipe_type(self) -> "type[SummaryRecipe]":
        from heedful.tasks.summary.recipe import SummaryRecipe

        return SummaryRecipe

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        from heedful.tasks.summary.default_recipe import choose

        return choose(files, **settings)

    def input_type(self) -> "type[ToSummarise]":
        from heedful.tasks.summary.examples import ToSummarise

        return ToSummarise

    def read_input(self, line: str) -> Any:
        """A line is a text, or a JSON object with the field ``source``."""
        if line.lstrip().startswith("{"):
            return super().read_input(line)
        from heedful.basics.json_models import read_object

        return read_object(self.input_type(), {"source": line}, "the input")

    def known(self, examples: Iterable["Summarised"], recipe: Any) -> dict[str, Any]:
        from heedful.tasks.summary.encoding import collect

        return collect(examples, recipe.data, recipe.model.max_length - 1)

    def _write(self, path: Path, part: str, corpus: Any, known: Mapping[str, Any]) -> int:
        from heedful.tasks.summary.encoding import excess, left_out_summaries

        count = super()._write(path, part, corpus, known)
        if part == "test":
            return count
        cut = left_out = 0
        for one in corpus.examples(part):
            cut += known["cuts"] and excess(one.source, known) > 0
            left_out += left_out_summaries(one, known)
        if cut:
            longest = known["longest_source"]
            notice(f"{part} texts cut to {longest:,} words (data.longest_source): {cut:,}")
        if left_out:
            notice(
                f"{part} summaries left out, because they have no words or more than "
                f"{known['longest_summary']:,} (data.longest_summary): {left_out:,}; other "
                "summaries of their texts are trained"
            )
        return count

    def codecs(self, known: Mapping[str, Any]) -> "Mapping[str, Codec]":
        from heedful.data import columns
        from heedful.tasks.summary.encoding import words_of

        size = words_of(known).size + known["longest_source"]
        return {"source": columns.tokens(size), "targets": columns.texts(size)}

    def encode(self, example: Any, known: Mapping[str, Any]) -> Mapping[str, Any]:
        from heedful.tasks.summary.encoding import encode

        return encode(example, known)

    def fresh_model(self, run: Any) -> "PairModel":
        from heedful.models import build_model
        from heedful.tasks.summary.encoding import words_of

        size = words_of(run.facts["known"]).size
        return build_model(run.recipe.model, size, size)

    def sketch(self, recipe: Any) -> "Sketch":
        from heedful.tasks.summary.sketch import sketch_summary_model

        return sketch_summary_model(recipe)

    def task_type(self) -> "type[SummaryTask]":
        from heedful.tasks.summary.training import SummaryTask

        return SummaryTask

    def build_task(
        self, run: Any, model: Any, training: Any, device: "torch.device", precision: str
    ) -> "SummaryTask":
        from itertools import islice

        from heedful.tasks.summary.encoding import excess, words_of
        from heedful.tasks.summary.examples import ToSummarise

        known = run.facts["known"]
        predictor = self.predictor_type()(self, run, model, device=device, precision="float32")
        stores, examples = self.stores(run), []
        if stores[1] is not None:
            kept = run.recipe.data.read_lines([str(run.path / "data" / "validation.jsonl")])
            read = (one for one in kept if known["cuts"] or not excess(one.source, known))
            examples = list(islice(read, training.validation_examples))

        def summarise(some: "Sequence[Summarised]") -> list[str]:
            inputs = [ToSummarise(source=one.source) for one in some]
            return [one.text for one in predictor.predict(inputs)]

        return self.task_type()(
            model,
            training,
            stores,
            vocabulary=words_of(known).size,
            examples=examples,
            summarise=summarise,
            device=device,
            precision=precision,
        )

    def predictor_type(self) -> "type[Summariser]":
        from heedful.tasks.summary.predictor import Summariser

        return Summariser

    def facts(self, predictor: Any) -> dict[str, Any]:
        return {"maps": maps_of(predictor.model)}

    def amount(self, run: Any) -> str:
        return f"{run.facts['data']['train']:,} texts"

    def weight_name(self, run: Any) -> str:
        return "tokens"

    def reference(self, example: "Summarised") -> str:
        return example.targets[0]

    def figures(
        self, examples: Sequence["Summarised"], results: Sequence[Any], known: Mapping[str, Any]
    ) -> "Mapping[str, Figure]":
        from heedful.evaluation.rouge import rouge_figures, rouge_values

        outputs = [str(one) for one in results]
        return rouge_figures(rouge_values(outputs, [one.targets for one in examples]))

    def one_by_one(
        self,
        examples: Sequence[Any],
        outputs: Sequence[str],
        figures: "Mapping[str, Figure]",
        known: Mapping[str, Any],
    ) -> "Examples":
        from heedful.evaluation.outcome import Examples
        from heedful.evaluation.rouge import measures, rouge_values

        values = rouge_values(outputs, [one.targets for one in examples])
        inputs = [self._input_of(one).model_dump_json() for one in examples]
        return Examples(inputs, [one.targets[0] for one in examples], outputs, measures(values))

    def tables_from(self, run: "Run") -> dict[str, Any]:
        return {"model": run.recipe.as_tables()["model"]}

    def adapt_chosen(self, tables: dict[str, Any], start: "Run") -> dict[str, Any]:
        same = {name: start.facts["known"][name] for name in _READING}
        return {**tables, "data": {**tables["data"], **same}}

    def known_from(self, start: "Start", examples: Iterable[Any], recipe: Any) -> dict[str, Any]:
        known: dict[str, Any] = start.run.facts["known"]
        data, longest = recipe.data, recipe.model.max_length - 1
        refuse_other_data(data, known, _READING)
        return {
            **known,
            "cuts": data.longest_source is not None,
            "longest_source": data.longest_source or longest,
            "longest_summary": data.longest_summary,
        }

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.summary.command import SummariseOptions, run

        return [Command(self.command, SummariseOptions, run)]


register(Summarising())
