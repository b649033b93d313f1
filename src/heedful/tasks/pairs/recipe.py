"""The recipe of models for pairs of texts: translators and word aligners."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_BEAM, MOST_POSITIONS
from heedful.basics.settings import Settings, check
from heedful.data import python_rows
from heedful.data.filters import FilterSettings
from heedful.data.protected.pairs import Rules
from heedful.data.protected.rules import check_rules
from heedful.data.tokeniser import TokeniserSettings
from heedful.evaluation.statistics import check_tokeniser
from heedful.models import PairSettings
from heedful.models.transformer import TransformerSettings
from heedful.runs.settings import (
    FileSettings,
    LoopSettings,
    Recipe,
    TeacherSettings,
    VectorSettings,
)
from heedful.training.reinforce import ReinforceSettings


class DataSettings(FileSettings):
    """The files of examples, and how they are read."""

    train: list[str] = Field(min_length=1, max_length=2)
    """One file (TSV, TMX, PO, XLIFF; ``-`` is standard input), a folder of such files, or two
    aligned text files."""
    validation: list[str] = Field([], max_length=2)
    test: list[str] = Field([], max_length=2)
    source: str | None = None
    """Language of the source side, matched by prefix; required for TMX, PO and XLIFF."""
    target: str | None = None
    reversed: bool = False
    """Whether the files have the target first: the second side is translated to the first."""
    links: str | None = None
    """File of word links of the training pairs (0-0 1-2), one line per pair, in the same order."""
    max_tokens: int = Field(256, ge=2, le=MOST_POSITIONS)
    """Longer training pairs are left out (and counted)."""
    protect: list[str] = Field([])
    """Rules for spans that translations keep unchanged: placeholders, markup, addresses, numbers.
    docs/translating.md lists them; a regular expression is enclosed in slashes."""
    filters: FilterSettings = FilterSettings()

    keep_memory: bool = True
    """Translation: the run keeps the training units, and translations reuse exact matches."""

    keep_near_duplicates: bool = True
    """Whether training pairs stay whose source is nearly one of validation or test."""

    @model_validator(mode="after")
    def _protectable(self) -> Self:
        check_rules(self.protect)
        if self.protect and self.links is not None:
            raise ValueError(
                "data.links numbers words, and data.protect replaces some; leave one of them out"
            )
        return self

    @property
    def rules(self) -> Rules | None:
        """The rules for protected spans; None if there are none."""
        return Rules(tuple(self.protect), self.source, self.target) if self.protect else None

    def example_of(self, row: Any) -> list[str]:
        """The two texts of a row, in the order of the row; ``reversed`` exchanges them later.

        Their names are those of the languages, or ``source`` and ``target``; ``translation`` may
        contain both, as in the datasets of OPUS.
        """
        keys = set(getattr(row, "keys", tuple)())
        if keys == {"translation"} or keys == {"id", "translation"}:
            row = row["translation"]
            keys = set(row)
        languages = [self.target, self.source] if self.reversed else [self.source, self.target]
        names = [str(name) for name in languages if name in keys]
        names = names if len(names) == 2 else ["source", "target"]
        return [
            python_rows.text(value, name)
            for value, name in zip(python_rows.values(row, names), names, strict=True)
        ]


class GuidedSettings(Settings):
    """How attention is trained on ``data.links``."""

    weight: float = Field(0.05, ge=0)
    """Weight of the term in the loss."""
    module: str | None = None
    """The attention module; default: the module of the model's own alignments."""
    head: int | None = Field(None, ge=1)
    """The head, from 1; default: the mean of all heads."""
    shift: int | None = Field(None, ge=0, le=1)
    """Row of a target token: 0 where it is predicted, 1 where it is fed in; default: the model's
    own."""


class PairVectorSettings(VectorSettings):
    """Initial word vectors of the embeddings; an embedding shared by both sides uses both files."""

    source: str | None = None
    target: str | None = None

    @model_validator(mode="after")
    def _of_something(self) -> "PairVectorSettings":
        if not self.files:
            raise ValueError("[vectors] names no file: give vectors.source, vectors.target or both")
        return self


class TrainingSettings(LoopSettings):
    """How a model for pairs is trained."""

    label_smoothing: float = Field(0.1, ge=0, lt=1)
    subword_dropout: float = Field(0.0, ge=0, lt=1)
    """Probability that a merge of BPE is left out in training (Provilkov et al. 2020)."""
    subword_alpha: float | None = Field(None, ge=0)
    """α of the segmentations that are drawn from a unigram vocabulary (Kudo 2018)."""
    shuffle_window: int | None = Field(None, ge=1)
    """Pairs that are shuffled together, of whole shards in random order; default: all pairs."""
    guided_alignment: GuidedSettings = GuidedSettings()
    reinforce: ReinforceSettings = ReinforceSettings()
    choose_by: Literal["loss", "bleu", "chrf"] = "bleu"
    consistency: float = Field(0.0, ge=0)
    """Weight α of the divergence of two passes with different dropout (R-Drop); 0 for one pass."""
    teacher: TeacherSettings | None = None
    """The run to distil."""

    @model_validator(mode="after")
    def _one_comparison(self) -> Self:
        if self.consistency and self.teacher is not None:
            raise ValueError(
                "training.consistency and training.teacher both compare outputs; leave one out"
            )
        return self

    @property
    def compares_outputs(self) -> bool:
        """Whether the loss compares two outputs for a batch."""
        return bool(self.consistency) or self.teacher is not None

    @property
    def subword_setting(self) -> str | None:
        """The setting by which words are segmented anew; None if they are not."""
        if self.subword_alpha is not None:
            return "subword_alpha"
        return "subword_dropout" if self.subword_dropout else None


class EvaluationSettings(Settings):
    """How translations are made and scored, at validation and by ``heedful evaluate``."""

    beam: int = Field(5, ge=1, le=MOST_BEAM)
    length_penalty: float = Field(1.0, ge=0, le=10, allow_inf_nan=False)
    tokenise: str = "13a"
    """sacreBLEU's tokeniser; ``none`` for text that is tokenised already."""
    validation_pairs: int = Field(1000, ge=1)
    """Number of pairs translated at validation, the first ones; the loss is over all pairs."""
    samples: int = Field(3, ge=0)


class PairRecipe(Recipe):
    """The settings that all tasks for pairs of texts have; each task names itself in ``task``."""

    model_generates: ClassVar[bool] = True
    """Whether the task needs a model that generates text; otherwise it needs one that aligns."""
    data: DataSettings
    tokeniser: TokeniserSettings = TokeniserSettings()
    vectors: PairVectorSettings | None = None
    model: SerializeAsAny[PairSettings] = Field(
        default_factory=lambda: TransformerSettings.model_validate({"size": "tiny"})
    )
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    @property
    def keeps_memory(self) -> bool:
        """Whether the run keeps the training units as a translation memory."""
        return False

    @field_validator("model", mode="before")
    @classmethod
    def _kind_defaults_to_transformer(cls, given: Any) -> Any:
        return {"kind": "transformer", **given} if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _parts_fit(self) -> "PairRecipe":
        if self.model.needs_one_vocabulary and not self.tokeniser.joint:
            raise ValueError(
                "model.tied_embeddings = 'all' needs tokeniser.joint = true; "
                "or use model.tied_embeddings = 'output'"
            )
        if self.data.max_tokens > self.model.max_length - 1:
            raise ValueError(
                f"data.max_tokens {self.data.max_tokens} must be less than model.max_length "
                f"{self.model.max_length}"
            )
        if self.model.generates != self.model_generates:
            raise ValueError(
                "task = 'alignment' needs model.kind = 'aligner', and the aligner needs this task; "
                "translators align without training for it"
            )
        self._subwords_fit()
        if self.data.links is None and self.training.guided_alignment != GuidedSettings():
            raise ValueError(
                "training.guided_alignment needs data.links, the word links to train on"
            )
        rewarded = self.model.learns_by_reward
        if self.training.compares_outputs and (
            rewarded or self.data.links is not None or not self.model_generates
        ):
            raise ValueError(
                "training.teacher and training.consistency are for translators that learn by "
                "cross-entropy alone; leave them out, or data.links and attention by reward"
            )
        if not rewarded and self.training.reinforce != ReinforceSettings():
            raise ValueError(
                "training.reinforce needs attention that is trained by reward, such as "
                "model.attention = 'hard-reinforce'; leave it out for this model"
            )
        return self

    def _subwords_fit(self) -> None:
        """Raise ValueError if words cannot be segmented anew."""
        name = self.training.subword_setting
        if name is None:
            return
        kind = "bpe" if name == "subword_dropout" else "unigram"
        if self.tokeniser.kind != kind:
            raise ValueError(f"training.{name} needs tokeniser.kind = '{kind}'")
        if self.data.links is not None:
            raise ValueError(
                f"data.links numbers tokens, and training.{name} changes them; leave one of them "
                "out"
            )


def without_unused(kind: type[PairRecipe], tables: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The tables of a recipe that heedful wrote, without loss terms that it does not use."""
    training = dict(tables.get("training", {}))
    optional = {
        name: training.pop(name) for name in ("guided_alignment", "reinforce") if name in training
    }
    recipe = check(kind, {**tables, "training": training}, where, written=True)
    used = {
        "guided_alignment": recipe.data.links is not None,
        "reinforce": recipe.model.learns_by_reward,
    }
    kept = {name: table for name, table in optional.items() if used[name]}
    return {**tables, "training": {**training, **kept}}


def require_scorable(recipe: PairRecipe) -> None:
    """Raise UserError before the training if outputs could not be scored at validation."""
    try:
        check_tokeniser(recipe.evaluation.tokenise, present=recipe.is_validated)
    except UserError as error:
        raise UserError(f"evaluation.tokenise: {error}") from error
