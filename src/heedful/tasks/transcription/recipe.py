"""The recipe of the transcription of sounds."""

from typing import Literal

from pydantic import Field, SerializeAsAny, model_validator

from heedful.basics.limits import MOST_POSITIONS, MOST_WIDTH
from heedful.basics.settings import Settings
from heedful.decoding import SearchOptions
from heedful.models import SpeechSettings
from heedful.runs.settings import LoopSettings, Recipe
from heedful.tasks.transcription.examples import SpokenFiles
from heedful.tasks.transcription.subwords import SubwordSettings


class MaskSettings(Settings):
    """SpecAugment: parts of the training sounds that become 0 (Park et al. 2019, section 2)."""

    bands: int = Field(2, ge=0, le=100)
    """Masks of bands of each sound."""
    widest: int = Field(15, ge=1, le=MOST_WIDTH)
    """Bands of the largest one."""
    times: int = Field(2, ge=0, le=100)
    """Masks of time of each sound."""
    longest: int = Field(40, ge=1, le=MOST_POSITIONS)
    """Frames of the largest one."""
    share: float = Field(0.2, gt=0, le=1)
    """The largest share of a sound's frames in a mask of time."""


class WarpSettings(Settings):
    """Training sounds as if from other voices, and at other speeds."""

    frequency: float = Field(0.1, ge=0, lt=1)
    """Bands are stretched by a random factor of up to so much more or less; needs mel bands."""
    time: float = Field(0.1, ge=0, lt=1)
    """Time is stretched by a random factor of up to so much more or less."""


class TranscriptionTraining(LoopSettings):
    """The settings of the training loop."""

    choose_by: Literal["loss", "word_error", "character_error"] = "loss"
    batch_tokens: int = Field(20_000, ge=1)
    """Maximum of sounds × frames of the longest one of a batch."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    ctc_weight: float = Field(0.3, gt=0, lt=1)
    """λ, the weight of CTC with ``model.outputs = "both"``; that of the decoder is 1 − λ."""
    masks: MaskSettings | None = None
    """SpecAugment."""
    warp: WarpSettings | None = None
    """Other voices and speeds."""
    validation_sounds: int = Field(300, ge=0)
    """Number of validation sounds that are transcribed for error rates; 0 for none."""
    samples: int = Field(3, ge=0)
    """Number of transcriptions that are printed at each validation."""


class TranscriptionSearch(SearchOptions):
    """The settings of the search."""

    ctc_weight: float | None = Field(None, ge=0, le=1)
    """λ, the weight of CTC in the search of ``model.outputs = "both"``; that of the decoder is
    1 − λ. 0 for the decoder alone; by default that of the training."""

    @model_validator(mode="after")
    def _has_paths(self) -> "TranscriptionSearch":
        # CTC may have no path with so many tokens.
        if self.ctc_weight and self.forced_length is not None:
            raise ValueError("forced_length and ctc_weight exclude each other; leave out one")
        return self


class TranscriptionRecipe(Recipe):
    """All settings of a run."""

    task: Literal["transcription"] = "transcription"
    data: SpokenFiles
    tokeniser: SubwordSettings | None = None
    """Subwords instead of ``data.units``."""
    model: SerializeAsAny[SpeechSettings] = Field(
        default_factory=lambda: SpeechSettings.model_validate({"kind": "recurrent"})
    )
    training: TranscriptionTraining = TranscriptionTraining()
    decoding: TranscriptionSearch = TranscriptionSearch(beam=5)
    """The search of ``heedful transcribe`` and of the evaluation."""

    @model_validator(mode="after")
    def _is_measured(self) -> "TranscriptionRecipe":
        if self.training.choose_by != "loss" and not self.training.validation_sounds:
            raise ValueError(
                f"choose_by = '{self.training.choose_by}' needs validation_sounds above 0"
            )
        warp, features = self.training.warp, self.data.features
        if warp is not None and warp.frequency and (features.kind != "log-mel" or features.deltas):
            raise ValueError(
                "training.warp.frequency needs bands: data.features.kind = 'log-mel' without "
                "deltas; or set it to 0"
            )
        if self.decoding.sample and not self.model.has_decoder:
            raise ValueError("decoding.sample needs a decoder: model.outputs = 'attention'")
        if self.decoding.forced_length is not None and not self.model.has_decoder:
            raise ValueError("decoding.forced_length needs a decoder: model.outputs = 'attention'")
        if self.decoding.ctc_weight:
            require_both(self.model, "decoding.ctc_weight")
        return self

    @property
    def search(self) -> TranscriptionSearch:
        """The settings of the search, with the weight of CTC. Samples and texts of a forced length
        are the decoder's."""
        weight = self.decoding.ctc_weight
        if weight is None:
            free = not self.decoding.sample and self.decoding.forced_length is None
            joint = free and self.model.has_ctc and self.model.has_decoder
            weight = self.training.ctc_weight if joint else 0.0
        return self.decoding.model_copy(update={"ctc_weight": weight})

    @model_validator(mode="after")
    def _has_one_vocabulary(self) -> "TranscriptionRecipe":
        if self.tokeniser is not None:
            for name in ("units", "minimum_count", "vocabulary_size"):
                if getattr(self.data, name) != SpokenFiles.model_fields[name].default:
                    raise ValueError(
                        f"data.{name} is for characters and words, and [tokeniser] for subwords; "
                        "leave out one of them"
                    )
        return self


def require_both(model: SpeechSettings, option: str) -> None:
    """Check that a model has CTC and a decoder, of which an option weighs both.

    Raises:
        ValueError: it has not.
    """
    if not (model.has_ctc and model.has_decoder):
        raise ValueError(
            f"{option} needs CTC beside a decoder: model.outputs = 'both', not '{model.outputs}'"
        )
