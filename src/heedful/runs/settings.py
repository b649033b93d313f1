"""Settings of all recipes: task, seed, training loop and search space."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_BATCH_TOKENS, MOST_SHARDS, MOST_THREADS
from heedful.basics.settings import Settings
from heedful.runs.search_space import SearchSpace, whole_keys

_MOST_ACCUMULATION = 100_000


def batches_of(whole: int, each: int) -> int:
    """The number of batches of ``each`` tokens that is nearest to ``whole`` tokens, at least 1.

    Example:
        >>> batches_of(10_000, 4096), batches_of(1000, 4096)
        (2, 1)
    """
    return max(1, (2 * whole + each) // (2 * each))


NO_TEST = (
    "has no test examples, because its recipe has no data.test, or data.test_share held out none"
)
"""What is said of a run without test examples."""


class FileSettings(Settings):
    """The files of examples, and what is held out of them."""

    train: list[str] = Field(min_length=1)
    validation: list[str] = Field(default_factory=list)
    test: list[str] = Field(default_factory=list)
    encoding: str | None = None
    """Encoding of all files."""
    validation_share: float = Field(0.0, ge=0, le=0.5)
    """Share of the training examples to hold out for validation if no files are given for it."""
    test_share: float = Field(0.0, ge=0, le=0.5)

    @field_validator("train", "validation", "test", mode="before")
    @classmethod
    def _one_path_is_a_list(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    @model_validator(mode="after")
    def _something_is_left(self) -> "FileSettings":
        shares = {
            "validation_share": 0.0 if self.validation else self.validation_share,
            "test_share": 0.0 if self.test else self.test_share,
        }
        if sum(shares.values()) >= 1:
            held_out = " and ".join(f"{name} {share}" for name, share in shares.items())
            raise ValueError(f"{held_out} leave nothing to train on; lower one of them")
        return self

    @property
    def is_validated(self) -> bool:
        """Whether the run has validation data."""
        return bool(self.validation or self.validation_share)

    @property
    def is_tested(self) -> bool:
        """Whether the run has test data."""
        return bool(self.test or self.test_share)

    @property
    def files(self) -> dict[str, list[str]]:
        """The paths of each part."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    def held_out(self) -> Self:
        """The settings by which validation and test examples are read: these, unless overridden."""
        return self

    def example_of(self, row: Any) -> Any:
        """The example of a row of Python data, as a JSON value (`heedful.data.python_rows`).

        Raises:
            RowError: the row is invalid.
            UserError: the task reads files only.
        """
        raise UserError("this task reads files only: name them in the recipe, not in data=")


class VectorSettings(Settings):
    """Word vectors that initialise embedding tables: text files of word2vec or GloVe (plain, gzip
    or xz) with a word and its numbers per line."""

    frozen: bool = False
    """Whether these tables are not trained."""

    @property
    def files(self) -> dict[str, str]:
        """The path for each table, by the key of the setting."""
        named = self.model_dump(exclude={"frozen"})
        return {key: path for key, path in named.items() if path is not None}


class LoopSettings(Settings):
    """The settings of the training loop."""

    renamed: ClassVar[dict[str, str]] = {
        "accumulate": "accumulation_steps",
        "average": "average_checkpoints",
    }
    max_steps: int = Field(10_000, ge=1)
    max_minutes: float | None = Field(None, gt=0)
    """Training time only; validation and checkpoints do not count."""
    batch_tokens: int = Field(4096, ge=1, le=MOST_BATCH_TOKENS)
    """Maximum of rows × longest side of a batch, padding included."""
    accumulation_steps: int = Field(1, ge=1, le=_MOST_ACCUMULATION)
    """Batches per step and virtual shard."""
    global_batch_tokens: int | None = Field(None, ge=1)
    """Tokens of a step; sets ``accumulation_steps``."""
    batch_from_memory: bool = False
    """Whether ``batch_tokens`` is lowered to what fits in memory, by trial steps."""
    virtual_shards: int = Field(1, ge=1, le=MOST_SHARDS)
    """Number of parts of a step, which processes and threads share. Each part has its own batches,
    random numbers and gradients, so that results do not depend on who computes it."""
    exact_reduction: bool = True
    """Whether gradients of virtual shards are added in a fixed order."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """How several processes share a step: each has the whole model, or a part of its weights."""
    cpu_offload: bool = False
    """Whether FSDP2 keeps weights, gradients and the optimiser's state in the CPU's memory."""
    gather_precision: Literal["float32", "bfloat16"] = "float32"
    """In which FSDP2 sends the weights of linear maps and convolutions in layers; bfloat16 if
    products are in bfloat16, too."""
    optimiser: Literal["adam", "adamw", "sgd"] = "adam"
    learning_rate: float = Field(1e-3, gt=0)
    """The highest learning rate of the schedule."""
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = Field(0.0, ge=0)
    schedule: Literal[
        "inverse_square_root", "linear", "cosine", "constant", "slanted_triangular"
    ] = "inverse_square_root"
    warmup_steps: int = Field(1000, ge=0)
    clip_norm: float | None = Field(1.0, gt=0)
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    threads: int | None = Field(None, ge=1, le=MOST_THREADS)
    compile: bool = False
    activation_checkpointing: bool = False
    """Whether to compute layers again in the backward pass instead of keeping their results."""
    log_every: int = Field(50, ge=1)
    validate_every: int = Field(1000, ge=1)
    checkpoint_every: int = Field(1000, ge=1)
    keep_last: int = Field(5, ge=1)
    keep_best: int = Field(1, ge=1)
    average_checkpoints: int = Field(0, ge=0)
    """Number of last checkpoints whose mean is tried at the end; at most ``keep_last``."""
    patience: int | None = Field(None, ge=1)
    """Stop after this many validations without a better ``choose_by``."""
    choose_by: str = "loss"
    """The validation figure that checkpoints are compared by."""
    tensorboard: bool = False

    def layer_rates(self) -> tuple[float, int]:
        """Learning-rate factor per layer below the top, and steps between unfreezing layers."""
        return 1.0, 0

    @field_validator("betas", mode="before")
    @classmethod
    def _two_betas(cls, given: Any) -> Any:
        numbers = list(given) if isinstance(given, list | tuple) else []
        right = [type(number) in (int, float) and 0 <= number < 1 for number in numbers]
        if right != [True, True]:
            raise ValueError("give two numbers, each from 0 to less than 1, such as [0.9, 0.98]")
        return given

    @model_validator(mode="after")
    def _shards_are_a_power_of_two(self) -> "LoopSettings":
        shards = self.virtual_shards
        if self.exact_reduction and shards & (shards - 1):
            lower = 1 << (shards.bit_length() - 1)
            raise ValueError(
                f"virtual_shards {shards} is not a power of two, which exact_reduction needs; set "
                f"virtual_shards to {lower} or {2 * lower}, or exact_reduction to false"
            )
        return self

    @model_validator(mode="after")
    def _sharded_is_not_compiled(self) -> "LoopSettings":
        if self.strategy == "fsdp" and self.compile:
            raise ValueError("compile cannot be combined with strategy 'fsdp'; set one of them")
        if self.strategy == "fsdp" and self.batch_from_memory:
            raise ValueError(
                "batch_from_memory measures whole models: set batch_tokens with strategy 'fsdp'"
            )
        return self

    @model_validator(mode="after")
    def _batches_make_up_the_global_batch(self) -> "LoopSettings":
        whole, shards = self.global_batch_tokens, self.virtual_shards
        if whole is None:
            if self.batch_from_memory:
                raise ValueError("batch_from_memory divides a step: set global_batch_tokens, too")
            return self
        own, given = self.__dict__, self.model_fields_set  # the settings are frozen
        if self.batch_from_memory and "batch_tokens" not in given:
            own["batch_tokens"] = min(-(-whole // shards), MOST_BATCH_TOKENS)
        batches = batches_of(whole, self.batch_tokens * shards)
        if batches > _MOST_ACCUMULATION:
            raise ValueError(
                f"global_batch_tokens {whole} is {batches} times batch_tokens {self.batch_tokens}; "
                "raise batch_tokens"
            )
        if "accumulation_steps" in given and self.accumulation_steps != batches:
            raise ValueError(
                f"accumulation_steps is {batches} for global_batch_tokens {whole} and batch_tokens "
                f"{self.batch_tokens}, not {self.accumulation_steps}; leave it out"
            )
        own["accumulation_steps"] = batches
        return self

    @model_validator(mode="after")
    def _average_is_kept(self) -> "LoopSettings":
        if self.average_checkpoints > self.keep_last:
            raise ValueError(
                f"average_checkpoints {self.average_checkpoints} is more than keep_last "
                f"{self.keep_last}; raise keep_last"
            )
        return self


class TeacherSettings(Settings):
    """The run whose outputs a model learns (Hinton et al. 2015)."""

    run: str
    """The folder of a run with the same task, vocabulary and labels."""
    temperature: float = Field(2.0, gt=0)
    """τ that divides the logits of both."""
    weight: float = Field(0.5, ge=0, le=1)
    """α of the teacher's loss, which is multiplied by τ²; 1 − α is the weight of the labels'."""
    cosine: float = Field(0.0, ge=0)
    """Weight of the cosine distance of the last hidden states."""
    initialise: bool = False
    """Whether the student starts with the teacher's weights, those of every other layer if it has
    half of the layers."""


class CompareSettings(Settings):
    """What ``heedful compare`` trains, unless its options say otherwise."""

    vary: dict[str, list[Any]] = Field(default_factory=dict)
    """Values by dotted key; of several keys, joined by commas, each value is a list."""
    seeds: int = Field(3, ge=1)
    budget: str | None = None
    """The limit of each training, as ``--budget``."""
    baseline: str | None = None
    """The variant that the others are compared with; the first one by default."""

    @field_validator("budget", mode="before")
    @classmethod
    def _steps_are_text(cls, given: Any) -> Any:
        return str(given) if type(given) is int else given

    @field_validator("vary", mode="before")
    @classmethod
    def _keys_are_dotted(cls, given: Any) -> Any:
        return _flat_lists(given) if isinstance(given, dict) else given


def _flat_lists(tables: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Entries by dotted key, for quoted keys as well as nested tables."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            found |= _flat_lists(value, f"{before}{key}.")
        else:
            found[before + key] = value
    return found


class Recipe(Settings):
    """All settings of a run; each task adds its own."""

    prepared_by: ClassVar[frozenset[str]] = frozenset(
        {"task", "data", "tasks", "tokeniser", "max_tokens", "masking", "vectors"}
    )
    """The tables and settings that prepared data depend on, if a recipe has them."""
    task: str
    seed: int = Field(1, ge=0, lt=2**31)
    training: LoopSettings = LoopSettings()
    tune: dict[str, SearchSpace] = Field(default_factory=dict)
    """What ``heedful tune`` searches, by key; recipes in runs have no such table."""
    compare: CompareSettings = CompareSettings()
    """What ``heedful compare`` varies; recipes in runs have no such table."""

    @field_validator("tune", mode="before")
    @classmethod
    def _keys_are_whole(cls, given: Any) -> Any:
        return whole_keys(given) if isinstance(given, dict) else given

    def as_tables(self) -> dict[str, Any]:
        """The settings as TOML tables; without ``tune`` and ``compare`` if they are empty."""
        tables = super().as_tables()
        del tables["tune"], tables["training"]
        if self.compare == CompareSettings():
            del tables["compare"]
        searched = {key: searched.as_tables() for key, searched in self.tune.items()}
        tables["training"] = self.training.as_tables()
        return tables | ({"tune": searched} if searched else {})

    def of_a_run(self) -> "Self":
        """The recipe without the tables that only searches and comparisons read."""
        return self.model_copy(update={"tune": {}, "compare": CompareSettings()})

    @property
    def is_validated(self) -> bool:
        """Whether the run has validation data."""
        return any(table.is_validated for table in self.data_tables().values())

    @property
    def is_tested(self) -> bool:
        """Whether the run has test data."""
        return any(table.is_tested for table in self.data_tables().values())

    def data_tables(self) -> "dict[str, FileSettings]":
        """The tables with data files, by their dotted key."""
        return {"data": getattr(self, "data")}  # noqa: B009 - each task types its own
