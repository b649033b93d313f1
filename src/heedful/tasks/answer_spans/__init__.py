"""Question answering with spans: the part of a text that answers a question."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from heedful.basics.errors import UserError
from heedful.tasks.spec import Command, Opening, Panel, register
from heedful.tasks.texts.spec import HeadSpec

if TYPE_CHECKING:
    from torch import Tensor, nn

    from heedful.data.examples import SpanQuestion
    from heedful.evaluation.outcome import Evaluation
    from heedful.tasks.answer_spans.evaluation import SpanEvaluation
    from heedful.tasks.answer_spans.recipe import SpanHead, SpanRecipe
    from heedful.tasks.texts.run import TextRun
    from heedful.tasks.texts.score import ScoredHead, TextScore


class AnswerSpans(HeadSpec):
    """The answer to a question, in a text."""

    name = "answer-spans"
    place = 10
    command = "ask"
    does = "finds answers in texts"
    panel = Panel("ask", "Ask")
    train_option = "answer-spans"
    corpus = "JSON in the format of SQuAD, or a table with context, question and answer"
    reading_settings = ("encoding", "format")
    falling = frozenset({"loss"})
    exporters: Mapping[str, Mapping[str, str]] = MappingProxyType(
        {"huggingface": MappingProxyType({"bert": "bert"})}
    )

    def data_options(self) -> type[Any]:
        from heedful.tasks.answer_spans.data_options import QuestionTable

        return QuestionTable

    def recipe_type(self) -> "type[SpanRecipe]":
        from heedful.tasks.answer_spans.recipe import SpanRecipe

        return SpanRecipe

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        from heedful.tasks.answer_spans.default_recipe import choose

        return choose(files, **settings)

    def head_type(self) -> "type[SpanHead]":
        from heedful.tasks.answer_spans.recipe import SpanHead

        return SpanHead

    def head_module(self) -> Any:
        from heedful.tasks.answer_spans import head

        return head

    def load(self, run: str | Path, **how: Any) -> Any:
        from heedful.tasks.answer_spans.predictor import SpanPredictor
        from heedful.tasks.texts.loading import load_reader

        return load_reader(SpanPredictor, self.name, run, **how)

    def predictor_arguments(self, run: "TextRun", head: str) -> dict[str, Any]:
        settings = run.recipe.parts()[head]
        return {
            "head": head,
            "may_refuse": run.facts["sets"][head]["unanswerable"] > 0,
            "overlap": settings.overlap,
            "longest": settings.longest_answer,
        }

    def input_type(self) -> Any:
        from heedful.tasks.answer_spans.examples import AskedOfText

        return AskedOfText

    def facts(self, predictor: Any) -> dict[str, Any]:
        own = {"may_refuse": predictor.may_refuse, "pairs": True}
        return {**super().facts(predictor), **own}

    def traced(self, source: str, target: str | None) -> tuple[Any, ...]:
        if target is not None:
            return ((source, target),)
        return (self.read_input(source) if isinstance(source, str) else source,)

    def read_input(self, line: str) -> Any:
        question, tab, context = line.partition("\t")
        if tab:
            return question, context
        if not line.lstrip().startswith("{"):
            raise UserError(
                "give a question and its text: two arguments, a line with one TAB between them, or "
                "a JSON object with question and context"
            )
        return super().read_input(line)

    def predict_next(
        self, predictor: Any, inputs: Sequence[Any], first: int, lines: Sequence[int]
    ) -> Sequence[Any]:
        found: Sequence[Any] = predictor.predict(inputs, numbers=lines)
        return found

    def kept(self, run: "TextRun", name: str, part: str) -> Sequence["SpanQuestion"]:
        return run.questions(name, part)

    def outputs(self, head: "nn.Module", encoded: Any) -> "Tensor":
        found: Tensor = head(encoded)
        return found

    def evaluation_options(self) -> "type[SpanEvaluation]":
        from heedful.tasks.answer_spans.evaluation import SpanEvaluation

        return SpanEvaluation

    def evaluate(
        self, run: "TextRun", data: Sequence[str] | None, options: Any, opening: Opening
    ) -> "Evaluation":
        from heedful.inference.files import check_output
        from heedful.tasks.answer_spans.evaluation import check_identifiers, save_predictions
        from heedful.tasks.texts.evaluation import read_examples

        check_output(options.predictions)
        if options.predictions is None:
            return super().evaluate(run, data, options, opening)
        ((name, _),) = self.heads(run.recipe).items()
        examples: Any = self.kept(run, name, "test")
        if data is not None:
            examples = read_examples(run, name, data, options.encoding)
        check_identifiers(examples)
        found = super().evaluate(run, data, options, opening)
        assert found.outputs is not None
        save_predictions(options.predictions, examples, found.outputs)
        return found

    def score(self, head: "ScoredHead") -> "TextScore":
        from heedful.tasks.answer_spans.evaluation import score_spans

        return score_spans(head.name, head.predictor(), head.examples, head.worst)

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.answer_spans.command import Ask, run

        return [Command(self.command, Ask, run)]

    def write_result(self, result: Any) -> str:
        return " ".join(result.answer.split())


register(AnswerSpans())
