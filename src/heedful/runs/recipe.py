"""The recipe: all settings of a run, typed, from TOML and back."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import tomlkit
from pydantic import Field, field_validator, model_validator

from heedful.basics.errors import UserError
from heedful.basics.settings import Settings, check
from heedful.data.filters import FilterSettings
from heedful.data.tokeniser import TokeniserSettings
from heedful.models import ModelSettings, learns_by_reward
from heedful.models.transformer import TransformerSettings
from heedful.runs.searched import Searched, refuse_unsearchable, whole_keys
from heedful.tasks.reinforce import ReinforceSettings


class DataSettings(Settings):
    """Where the examples come from."""

    train: list[str] = Field(min_length=1, max_length=2)
    """One file (TSV, TMX, PO, XLIFF; ``-`` is standard input) or two aligned text files."""
    validation: list[str] = Field([], max_length=2)
    test: list[str] = Field([], max_length=2)
    source: str | None = None
    """Language of the source side, matched by prefix; needed for TMX, PO and XLIFF."""
    target: str | None = None
    reversed: bool = False
    """The files have the target first: learn from their second side to their first."""
    links: str | None = None
    """Word links of the training pairs (0-0 1-2), one line a pair, in the files' order."""
    encoding: str | None = None
    validation_share: float = Field(0.0, ge=0, le=0.5)
    """Share of the training corpus held out for validation, where no files are named."""
    test_share: float = Field(0.0, ge=0, le=0.5)
    max_tokens: int = Field(256, ge=2)
    """Longer training pairs are left out (and counted)."""
    filters: FilterSettings = FilterSettings()

    @field_validator("train", "validation", "test", mode="before")
    @classmethod
    def _one_path_is_a_list(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    @model_validator(mode="after")
    def _something_is_left(self) -> "DataSettings":
        shares = {
            "validation_share": 0.0 if self.validation else self.validation_share,
            "test_share": 0.0 if self.test else self.test_share,
        }
        if sum(shares.values()) >= 1:
            held_out = " and ".join(f"{name} {share}" for name, share in shares.items())
            raise ValueError(f"{held_out} leave nothing to train on; lower one of them")
        return self


class GuidedSettings(Settings):
    """How attention learns from ``data.links``, where they are given."""

    weight: float = Field(0.05, ge=0)
    """Of the term beside the cross-entropy."""
    module: str | None = None
    """The attention module; that of the model's own alignments unless set."""
    head: int | None = Field(None, ge=1)
    """The head, from 1; the mean of all unless set."""
    shift: int | None = Field(None, ge=0, le=1)
    """Row of a target token: 0 where it is predicted, 1 where it is fed in; the model's own."""


class TrainingSettings(Settings):
    """How the weights are learnt."""

    max_steps: int = Field(10_000, ge=1)
    max_minutes: float | None = Field(None, gt=0)
    """Of computing steps; validating and saving do not count."""
    batch_tokens: int = Field(4096, ge=1)
    """Rows × longest side of a batch at most, padding included."""
    accumulate: int = Field(1, ge=1)
    """Batches a step."""
    optimiser: Literal["adam", "adamw", "sgd"] = "adam"
    learning_rate: float = Field(1e-3, gt=0)
    """The highest; the schedule leads to it and down again."""
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = Field(0.0, ge=0)
    schedule: Literal["inverse_square_root", "linear", "cosine", "constant"] = "inverse_square_root"
    warmup_steps: int = Field(1000, ge=0)
    clip_norm: float | None = Field(1.0, gt=0)
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    guided_alignment: GuidedSettings = GuidedSettings()
    reinforce: ReinforceSettings = ReinforceSettings()
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    threads: int | None = Field(None, ge=1)
    compile: bool = False
    log_every: int = Field(50, ge=1)
    validate_every: int = Field(1000, ge=1)
    checkpoint_every: int = Field(1000, ge=1)
    keep_last: int = Field(5, ge=1)
    keep_best: int = Field(1, ge=1)
    average: int = Field(0, ge=0)
    """At the end, the mean of this many last checkpoints is tried; at most ``keep_last``."""
    patience: int | None = Field(None, ge=1)
    """Stop after so many validations without a better ``choose_by``."""
    choose_by: Literal["loss", "bleu", "chrf"] = "bleu"
    tensorboard: bool = False

    @field_validator("betas", mode="before")
    @classmethod
    def _two_betas(cls, given: Any) -> Any:
        numbers = list(given) if isinstance(given, list | tuple) else []
        right = [type(number) in (int, float) and 0 <= number < 1 for number in numbers]
        if right != [True, True]:
            raise ValueError("give two numbers, each from 0 to less than 1, such as [0.9, 0.98]")
        return given

    @model_validator(mode="after")
    def _average_is_kept(self) -> "TrainingSettings":
        if self.average > self.keep_last:
            raise ValueError(
                f"average {self.average} needs as many checkpoints; raise keep_last "
                f"({self.keep_last})"
            )
        return self


class EvaluationSettings(Settings):
    """How translations are made and scored, at validation and by ``heedful evaluate``."""

    beam: int = Field(5, ge=1)
    length_penalty: float = Field(1.0, ge=0)
    tokenise: str = "13a"
    """sacreBLEU's tokeniser; ``none`` for text that is tokenised already."""
    validation_pairs: int = Field(1000, ge=1)
    """Pairs translated at validation: the first ones; the loss is over all."""
    samples: int = Field(3, ge=0)


class Recipe(Settings):
    """All settings of a run."""

    task: Literal["translation", "alignment"] = "translation"
    seed: int = Field(1, ge=0, lt=2**31)
    data: DataSettings
    tokeniser: TokeniserSettings = TokeniserSettings()
    model: ModelSettings = Field(
        default_factory=lambda: TransformerSettings.model_validate({"size": "tiny"}),
        discriminator="kind",
    )
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    tune: dict[str, Searched] = Field(default_factory=dict)
    """What ``heedful tune`` searches, by key; a run has no such table."""

    @field_validator("tune", mode="before")
    @classmethod
    def _keys_are_whole(cls, given: Any) -> Any:
        return whole_keys(given) if isinstance(given, dict) else given

    @field_validator("model", mode="before")
    @classmethod
    def _kind_is_transformer_unless_said(cls, given: Any) -> Any:
        return {"kind": "transformer", **given} if isinstance(given, dict) else given

    def as_tables(self) -> dict[str, Any]:
        """As TOML can write them; without ``tune`` where nothing is searched."""
        tables = super().as_tables()
        del tables["tune"]
        searched = {key: searched.as_tables() for key, searched in self.tune.items()}
        return tables | ({"tune": searched} if searched else {})

    @model_validator(mode="after")
    def _parts_fit(self) -> "Recipe":
        if self.model.tied == "all" and not self.tokeniser.joint:
            raise ValueError(
                "model.tied = 'all' needs tokeniser.joint = true; or use model.tied = 'output'"
            )
        if self.data.max_tokens > self.model.max_length - 1:
            raise ValueError(
                f"data.max_tokens {self.data.max_tokens} must be less than model.max_length "
                f"{self.model.max_length}"
            )
        if (self.task == "alignment") != (self.model.kind == "aligner"):
            raise ValueError(
                "task = 'alignment' and model.kind = 'aligner' go together: the aligner does not "
                "translate, and translators are aligned with as they are"
            )
        if self.task == "alignment" and self.training.choose_by != "loss":
            raise ValueError("task = 'alignment' has no translations: training.choose_by = 'loss'")
        if self.data.links is None and self.training.guided_alignment != GuidedSettings():
            raise ValueError(
                "training.guided_alignment needs data.links, the word links to learn from"
            )
        rewarded = learns_by_reward(self.model)
        if not rewarded and self.training.reinforce != ReinforceSettings():
            raise ValueError(
                "training.reinforce is for attention that learns by reward, as with "
                "model.attention = 'hard-reinforce'; with this model, leave it out"
            )
        return self


def read_recipe(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, put over those of its ``base``, if it names one.

    A base is a recipe's name, or a path from the folder of the file that names it.

    Raises:
        UserError: the file or a base is missing, no UTF-8, or no TOML (with the line), or recipes
            are each other's base.
    """
    tables = _read_toml(path)
    seen = [path.resolve()]
    while (base := tables.pop("base", None)) is not None:
        where = _find_base(base, seen[-1])
        if where in seen:
            raise UserError(f"{path}: its base {where} comes back to itself; leave one 'base' out")
        seen.append(where)
        tables = _over(_read_toml(where), tables)
    return tables


def _find_base(base: Any, below: Path) -> Path:
    if not isinstance(base, str):
        raise UserError(f"{below}: base = {base!r}: expected a recipe's name or path")
    beside = below.parent / base
    return find_recipe(beside if beside.suffix == ".toml" else base).resolve()


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both tables' keys; where both have one, that of ``above``. Another kind is another table."""
    if "kind" in above and above["kind"] != below.get("kind", above["kind"]):
        return dict(above)
    joined = dict(below)
    for key, value in above.items():
        known = joined.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            value = _over(known, value)
        joined[key] = value
    return joined


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError as error:
        raise UserError(f"no recipe at {path}") from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder, not a recipe") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a TOML file: {error}") from error


def find_recipe(name: str | Path) -> Path:
    """A recipe file, or one of those that come with the package, by name.

    Raises:
        UserError: there is neither.
    """
    path = Path(name)
    if path.exists() or path.suffix == ".toml":
        return path
    folder = Path(str(files("heedful"))) / "recipes"
    packaged = folder / f"{name}.toml"
    if packaged.exists():
        return packaged
    names = ", ".join(sorted(file.stem for file in folder.glob("*.toml")))
    raise UserError(f"no recipe '{name}': neither a file nor one of heedful's own ({names})")


def with_overrides(tables: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """``tables`` with each ``key=value`` of ``--set`` put in; a value is TOML, or else text.

    Raises:
        UserError: an override has no ``=``, or goes through something that is no table.
    """
    result: dict[str, Any] = _copy(tables)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise UserError(f"--set {override}: expected key=value, as in training.max_steps=500")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        result = with_setting(result, key.strip(), value, f"--set {override}")
    return result


def with_setting(tables: Mapping[str, Any], key: str, value: Any, where: str) -> dict[str, Any]:
    """``tables`` with one setting put in, by its dotted key.

    Raises:
        UserError: the key goes through something that is no table; ``where`` is named.
    """
    result: dict[str, Any] = _copy(tables)
    table = result
    *tables_of_key, last = key.split(".")
    for part in tables_of_key:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise UserError(f"{where}: '{part}' is no table")
    table[last] = value
    return result


def _copy(value: Any) -> Any:
    return {k: _copy(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def check_recipe(tables: Mapping[str, Any], where: str, *, written: bool = False) -> Recipe:
    """The recipe of ``tables``; an error names ``where`` and the key.

    Args:
        tables: the settings.
        where: the file, for messages.
        written: whether heedful wrote them. Then they have all settings there were, also of what
            this recipe does not use; these are as today's defaults are.

    Raises:
        UserError: a key is unknown (with the nearest right one), missing, or of a wrong value; so
            too for a key that is searched, and each end of its range.
    """
    if written:
        tables = _without_unused(tables, where)
    recipe = check(Recipe, dict(tables), where)
    plain = {key: table for key, table in tables.items() if key != "tune"}
    for key, searched in recipe.tune.items():
        place = f"{where}, [tune]"
        refuse_unsearchable(key, place)
        for value in searched.ends():
            check(Recipe, with_setting(plain, key, value, place), place)
    return recipe


def _without_unused(tables: Mapping[str, Any], where: str) -> dict[str, Any]:
    training = dict(tables.get("training", {}))
    optional = {
        name: training.pop(name) for name in ("guided_alignment", "reinforce") if name in training
    }
    recipe = check(Recipe, {**tables, "training": training}, where)
    used = {
        "guided_alignment": recipe.data.links is not None,
        "reinforce": learns_by_reward(recipe.model),
    }
    kept = {name: table for name, table in optional.items() if used[name]}
    return {**tables, "training": {**training, **kept}}


def write_toml(recipe: Recipe) -> str:
    """The recipe as TOML, with every setting, so that later defaults do not change it."""
    document = tomlkit.document()
    document.add(
        tomlkit.comment("All settings of this run. Written by heedful; see docs/recipes.md.")
    )
    for key, value in recipe.as_tables().items():
        document[key] = value
    return tomlkit.dumps(document)


def find_data(paths: Sequence[str], folder: Path | None) -> list[str]:
    """``paths`` as they can be opened: under ``folder`` where one is given.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    found = []
    for path in paths:
        if path == "-":
            found.append(path)
            continue
        whole = Path(path) if folder is None else folder / path
        if not whole.is_file():
            what = "is a folder" if whole.is_dir() else "does not exist"
            raise UserError(f"data file {whole} {what}; --data DIR says where relative paths start")
        if not os.access(whole, os.R_OK):
            raise UserError(f"data file {whole} cannot be read: permission denied")
        found.append(str(whole))
    return found
