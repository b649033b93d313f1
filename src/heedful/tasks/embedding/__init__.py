"""Sentence embeddings: a vector for each text."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from heedful.tasks.spec import Command, Panel, register
from heedful.tasks.texts.spec import HeadSpec

if TYPE_CHECKING:
    from heedful.data.examples import Similar
    from heedful.tasks.embedding.recipe import EmbeddingHead, EmbeddingRecipe
    from heedful.tasks.texts.run import TextRun
    from heedful.tasks.texts.score import ScoredHead, TextScore


class Embedding(HeadSpec):
    """A vector for each text."""

    name = "embedding"
    place = 11
    command = "embed"
    does = "gives vectors"
    panel = Panel("embed", "Similarity", takes_second=False)
    train_option = "embedding"
    corpus = "a table (CSV, TSV, JSON lines) of texts or of similar texts, or lines of plain text"
    reading_settings = ("encoding", "format")
    falling = frozenset({"loss"})
    exporters: Mapping[str, Mapping[str, str]] = MappingProxyType({})

    def data_options(self) -> type[Any]:
        from heedful.tasks.embedding.data_options import SimilarColumns

        return SimilarColumns

    def recipe_type(self) -> "type[EmbeddingRecipe]":
        from heedful.tasks.embedding.recipe import EmbeddingRecipe

        return EmbeddingRecipe

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        from heedful.tasks.embedding.default_recipe import choose

        return choose(files, **settings)

    def head_type(self) -> "type[EmbeddingHead]":
        from heedful.tasks.embedding.recipe import EmbeddingHead

        return EmbeddingHead

    def head_module(self) -> Any:
        from heedful.tasks.embedding import head

        return head

    def load(self, run: str | Path, **how: Any) -> Any:
        from heedful.tasks.embedding.predictor import Embedder
        from heedful.tasks.texts.loading import load_reader

        return load_reader(Embedder, self.name, run, **how)

    def predictor_arguments(self, run: "TextRun", head: str) -> dict[str, Any]:
        return {"head": head, "normalize": run.recipe.parts()[head].normalize}

    def facts(self, predictor: Any) -> dict[str, Any]:
        return {**super().facts(predictor), "width": predictor.width}

    def kept(self, run: "TextRun", name: str, part: str) -> Sequence["Similar"]:
        return run.similar(name, part)

    def score(self, head: "ScoredHead") -> "TextScore":
        from heedful.tasks.embedding.evaluation import score_vectors

        settings = head.run.recipe.parts()[head.name]
        return score_vectors(head.name, head.predictor(), head.examples, settings)

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.embedding.command import Embed, run

        return [Command(self.command, Embed, run)]

    def write_result(self, result: Any) -> str:
        return " ".join(f"{value:.6g}" for value in result.vector)


register(Embedding())
