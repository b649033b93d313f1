"""Speech of a text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heedful.tasks.column_spec import LeftOutError
from heedful.tasks.sound_spec import SoundSpec
from heedful.tasks.spec import Command, register

if TYPE_CHECKING:
    import torch
    from torch import nn

    from heedful.evaluation.outcome import Figure
    from heedful.models import Source
    from heedful.runs.run import Run
    from heedful.runs.start import Start
    from heedful.tasks.sketch import Sketch
    from heedful.tasks.synthesis.examples import Recording, Said
    from heedful.tasks.synthesis.predictor import Speaker, Speech
    from heedful.tasks.synthesis.recipe import SynthesisRecipe
    from heedful.tasks.synthesis.speaking import Utterance
    from heedful.tasks.synthesis.training import SynthesisTask


class Synthesis(SoundSpec):
    """One sound for each text."""

    name = "synthesis"
    place = 66
    command = "speak"
    does = "synthesises speech"
    train_option = "speak"
    corpus = "tables with the path of a recording of one voice and its text in each row"
    family = "synthesis"
    starts = frozenset({"synthesis"})
    changeable_at_start = frozenset(
        f"model.{name}"
        for name in ("dropout", "attention_dropout", "convolution_dropout", "prenet_dropout")
    )
    falling = frozenset({"loss", "before", "after", "stop", "guided"})

    def recipe_type(self) -> "type[SynthesisRecipe]":
        from heedful.tasks.synthesis.recipe import SynthesisRecipe

        return SynthesisRecipe

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        from heedful.tasks.synthesis.default_recipe import choose

        return choose(files, **settings)

    def input_type(self) -> "type[Said]":
        from heedful.tasks.synthesis.examples import Said

        return Said

    def read_input(self, line: str) -> "Said":
        """A text as it is, or a JSON object with the key "text"."""
        from heedful.basics.json_models import read_object
        from heedful.tasks.synthesis.examples import Said

        given = line if line.lstrip().startswith("{") else {"text": line}
        return read_object(Said, given, "the input")

    def features_of(self, known: Mapping[str, Any]) -> Any:
        from heedful.tasks.synthesis.texts import features_of

        return features_of(known)

    def vocabulary_of(self, known: Mapping[str, Any]) -> Any:
        from heedful.tasks.synthesis.texts import vocabulary_of

        return vocabulary_of(known)

    def build(self, settings: Any, width: int, size: int) -> "nn.Module":
        from heedful.models import build_synthesis_model

        return build_synthesis_model(settings, width, size)

    def known(self, examples: Iterable["Recording"], recipe: Any) -> dict[str, Any]:
        from heedful.tasks.synthesis.texts import collect

        return collect(examples, recipe.data, recipe.model)

    def known_from(
        self, start: "Start", examples: Iterable["Recording"], recipe: Any
    ) -> dict[str, Any]:
        from heedful.tasks.synthesis.texts import continued

        return continued(start.run.facts["known"], examples, recipe.data, recipe.model)

    def weights_from(
        self, start: "Start", known: Mapping[str, Any], recipe: Any
    ) -> "Mapping[str, torch.Tensor]":
        from heedful.tasks.synthesis.texts import extended_embedding

        name, size = "embedding.weight", self.vocabulary_of(known).size
        return {
            **start.weights,
            name: extended_embedding(start.weights[name], size, recipe.seed),
        }

    def tables_from(self, run: "Run") -> dict[str, Any]:
        return {"model": run.recipe.as_tables()["model"]}

    def adapt_chosen(self, tables: dict[str, Any], start: "Run") -> dict[str, Any]:
        theirs = start.recipe.as_tables()["data"]
        same = {name: theirs[name] for name in ("features", "lower_case", "floor")}
        return {**tables, "data": {**tables["data"], **same}}

    def encode(self, example: Any, known: Mapping[str, Any]) -> Mapping[str, Any]:
        from heedful.tasks.synthesis.texts import check_fits, frames_of, tokens_of

        tokens, frames = tokens_of(example.text, known), frames_of(example, known).numpy()
        if reason := check_fits(len(frames), tokens, known):
            raise LeftOutError(reason)
        return {"frames": frames, "text": tokens}

    def sketch(self, recipe: Any) -> "Sketch":
        from heedful.tasks.synthesis.sketch import sketch_synthesis_model

        return sketch_synthesis_model(recipe)

    def task_type(self) -> "type[SynthesisTask]":
        from heedful.tasks.synthesis.training import SynthesisTask

        return SynthesisTask

    def build_task(
        self, run: Any, model: Any, training: Any, device: "torch.device", precision: str
    ) -> "SynthesisTask":
        from heedful.tasks.synthesis.speaking import speak, step_limits
        from heedful.tasks.synthesis.texts import features_of, vocabulary_of

        known = run.facts["known"]

        def say(source: "Source") -> list["Utterance"]:
            counts = [length - 1 for length in source.lengths.tolist()]
            limits = step_limits(counts, known, model.frames_per_step)
            return speak(model, source, limits, run.recipe.decoding.seed)

        return self.task_type()(
            model,
            training,
            self.stores(run),
            say=say,
            write=vocabulary_of(known).decode,
            seconds=features_of(known).seconds,
            device=device,
            precision=precision,
        )

    def predictor_type(self) -> "type[Speaker]":
        from heedful.tasks.synthesis.predictor import Speaker

        return Speaker

    def weight_name(self, run: Any) -> str:
        return "frames"

    def figures(
        self, examples: Sequence["Recording"], results: Sequence["Speech"], known: Mapping[str, Any]
    ) -> "Mapping[str, Figure]":
        """``complete``: texts that are spoken from beginning to end; ``duration``: the mean
        difference of durations from those of the recordings, both in per cent; ``distortion``: the
        mean mel-cepstral distortion in decibels."""
        from heedful.evaluation.outcome import Figure
        from heedful.tasks.synthesis.distortion import mel_cepstral_distortion
        from heedful.tasks.synthesis.texts import features_of, log_mel

        features, floor = features_of(known), known["floor"]
        away, distortion = 0.0, 0.0
        for example, found in zip(examples, results, strict=True):
            given = example.samples(features)
            away += abs(found.sound.seconds / given.seconds - 1)
            both = (log_mel(features.of(sound), floor) for sound in (found.sound, given))
            distortion += mel_cepstral_distortion(*both)
        count = len(results)
        return {
            "complete": Figure(100 * sum(one.complete for one in results) / count, "%"),
            "duration": Figure(100 * away / count, "%", False),
            "distortion": Figure(distortion / count, "dB", False),
        }

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.synthesis.command import SpeakOptions, run

        return [Command(self.command, SpeakOptions, run)]


register(Synthesis())
