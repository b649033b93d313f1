"""The text of a recording."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heedful.tasks.column_spec import LeftOutError
from heedful.tasks.sound_spec import SoundSpec
from heedful.tasks.spec import Command, Opening, Panel, register

if TYPE_CHECKING:
    import torch
    from torch import nn

    from heedful.evaluation.outcome import Examples, Figure
    from heedful.models import Sounds
    from heedful.runs.run import Run
    from heedful.runs.start import Start
    from heedful.tasks.endpoints import Endpoint
    from heedful.tasks.sketch import Sketch
    from heedful.tasks.sound_input import Heard
    from heedful.tasks.transcription.examples import Spoken
    from heedful.tasks.transcription.predictor import Transcriber
    from heedful.tasks.transcription.recipe import TranscriptionRecipe
    from heedful.tasks.transcription.training import TranscriptionTask


class Transcription(SoundSpec):
    """One text for each recording."""

    name = "transcription"
    place = 65
    command = "transcribe"
    panel = Panel("predict", "Transcribe")
    does = "transcribes recordings"
    train_option = "transcribe"
    corpus = "tables with the path of a recording and its text in each row"
    family = "transcription"
    starts = frozenset({"transcription"})
    changeable_at_start = frozenset({"model.dropout", "model.attention_dropout"})
    media_fields = frozenset({"sound"})
    falling = frozenset({"loss", "word_error", "character_error"})

    def recipe_type(self) -> "type[TranscriptionRecipe]":
        from heedful.tasks.transcription.recipe import TranscriptionRecipe

        return TranscriptionRecipe

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        from heedful.tasks.transcription.default_recipe import choose

        return choose(files, **settings)

    def input_type(self) -> "type[Heard]":
        from heedful.tasks.sound_input import Heard

        return Heard

    def read_argument(self, text: str) -> str:
        from heedful.tasks.sound_input import read_sound_argument

        return read_sound_argument(text)

    def features_of(self, known: Mapping[str, Any]) -> Any:
        from heedful.tasks.sound_input import features_of

        return features_of(known)

    def vocabulary_of(self, known: Mapping[str, Any]) -> Any:
        from heedful.tasks.transcription.texts import vocabulary_of

        return vocabulary_of(known)

    def build(self, settings: Any, width: int, size: int) -> "nn.Module":
        from heedful.models import build_speech_model

        return build_speech_model(settings, width, size)

    def known(self, examples: Iterable["Spoken"], recipe: Any) -> dict[str, Any]:
        from heedful.tasks.transcription.texts import collect

        return collect(examples, recipe)

    def known_from(
        self, start: "Start", examples: Iterable["Spoken"], recipe: Any
    ) -> dict[str, Any]:
        from heedful.tasks.transcription.texts import continued

        return continued(start.run.facts["known"], examples, recipe)

    def tables_from(self, run: "Run") -> dict[str, Any]:
        tables = run.recipe.as_tables()
        return {name: tables[name] for name in ("model", "tokeniser") if name in tables}

    def adapt_chosen(self, tables: dict[str, Any], start: "Run") -> dict[str, Any]:
        theirs = start.recipe.as_tables()["data"]
        names = ("features", "units", "lower_case", "longest", "trim")
        own = {name: value for name, value in tables["data"].items() if name not in names}
        same = {name: theirs[name] for name in names if name in theirs}
        return {**tables, "data": {**own, **same}}

    def reads_any_length(self, run: Any) -> bool:
        return bool(run.recipe.model.reads_any_length)

    def encode(self, example: Any, known: Mapping[str, Any]) -> Mapping[str, Any]:
        from heedful.tasks.sound_input import features_of
        from heedful.tasks.transcription.texts import check_fits, tokens_of

        features = features_of(known)
        frames = example.frames(features, known.get("trim")).numpy()
        text = getattr(example, "text", None)
        if text is None:
            return {"frames": frames}
        tokens = tokens_of(text, known)
        if reason := check_fits(len(frames), tokens, known):
            raise LeftOutError(reason)
        return {"frames": frames, "text": tokens}

    def sketch(self, recipe: Any) -> "Sketch":
        from heedful.tasks.transcription.sketch import sketch_speech_model

        return sketch_speech_model(recipe)

    def task_type(self) -> "type[TranscriptionTask]":
        from heedful.tasks.transcription.training import TranscriptionTask

        return TranscriptionTask

    def build_task(
        self, run: Any, model: Any, training: Any, device: "torch.device", precision: str
    ) -> "TranscriptionTask":
        from heedful.decoding import SearchOptions
        from heedful.tasks.transcription.predictor import find_texts
        from heedful.tasks.transcription.texts import spaced, vocabulary_of

        vocabulary, greedy = vocabulary_of(run.facts["known"]), SearchOptions(beam=1)

        def transcribe(sounds: "Sounds") -> list[str]:
            found = find_texts(model, model.listen(sounds), greedy)
            return [spaced(vocabulary.decode(best.tokens)) for best, *_ in found]

        return self.task_type()(
            model,
            training,
            self.stores(run),
            transcribe=transcribe,
            write=lambda tokens: spaced(vocabulary.decode(tokens)),
            device=device,
            precision=precision,
        )

    def predictor_type(self) -> "type[Transcriber]":
        from heedful.tasks.transcription.predictor import Transcriber

        return Transcriber

    def weight_name(self, run: Any) -> str:
        return "tokens"

    def endpoints(self) -> "Sequence[Endpoint[Any]]":
        from heedful.tasks.transcription.endpoints import ENDPOINTS

        return ENDPOINTS

    def facts(self, predictor: Any) -> dict[str, Any]:
        from heedful.tasks.transcription.endpoints import FORMS

        return {**super().facts(predictor), "subtitles": list(FORMS)}

    def evaluation_options(self) -> type[Any]:
        from heedful.tasks.transcription.search_choice import SearchChoice

        return SearchChoice

    def configure(self, predictor: Any, options: Any, opening: Opening) -> Mapping[str, Any]:
        from heedful.tasks.transcription.search_choice import choose_search

        return choose_search(predictor, options, device=opening.device)

    def figures(
        self, examples: Sequence["Spoken"], results: Sequence[Any], known: Mapping[str, Any]
    ) -> "Mapping[str, Figure]":
        from heedful.tasks.transcription.errors import error_figures
        from heedful.tasks.transcription.texts import ready

        references = [ready(one.text, known) for one in examples]
        return error_figures([one.text for one in results], references)

    def one_by_one(
        self,
        examples: Sequence[Any],
        outputs: Sequence[str],
        figures: "Mapping[str, Figure]",
        known: Mapping[str, Any],
    ) -> "Examples":
        from heedful.evaluation.outcome import Examples
        from heedful.tasks.transcription.errors import measures
        from heedful.tasks.transcription.texts import ready

        references = [ready(one.text, known) for one in examples]
        inputs = [self._input_of(one).model_dump_json() for one in examples]
        return Examples(inputs, references, list(outputs), measures(outputs, references))

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.transcription.command import TranscribeOptions, run

        return [Command(self.command, TranscribeOptions, run)]


register(Transcription())
