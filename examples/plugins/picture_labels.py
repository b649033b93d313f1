"""A task that heedful does not have: a label for a picture, read by attention over its cells.

    heedful train recipe.toml --plugin picture_labels.py --data FOLDER --out runs/pictures
    heedful predict runs/pictures pictures.txt --plugin picture_labels.py
    heedful serve runs/pictures --plugin picture_labels.py
    heedful view runs/pictures --plugin picture_labels.py
    heedful evaluate runs/pictures --data held_out.txt --plugin picture_labels.py

A line of data is a label, a tab and a picture: 64 digits, the grey values of 8 × 8 cells.
Shapes: B pictures, K = 16 patches of 2 × 2 cells, D width, C labels.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from heedful.attention import Attention, scores, watch
from heedful.basics.errors import UserError
from heedful.basics.files import content_hash
from heedful.basics.settings import Settings
from heedful.data.positions import SINGLE, Position, Rank, of_rank
from heedful.evaluation.outcome import Evaluation, Figure
from heedful.inference import Axis, Media, Trace
from heedful.runs.attention_parts import load_weights
from heedful.runs.facts import Facts
from heedful.runs.kind import Kind
from heedful.runs.manifest import write_facts, write_recipe
from heedful.runs.model_size import on_meta, require_trainable
from heedful.runs.opening import open_run
from heedful.runs.recipe import find_data, write_toml
from heedful.runs.run import FORMAT, Run
from heedful.runs.settings import FileSettings, LoopSettings, Recipe
from heedful.runs.start import Start, made_with
from heedful.tasks.spec import Opening, TaskSpec, register
from heedful.training.protocol import Loss, Validation

# The recipe


class PictureModel(Settings):
    kind: Literal["patches"] = "patches"
    dim: int = Field(16, ge=1, le=4096)


class PictureTraining(LoopSettings):
    choose_by: Literal["loss", "accuracy"] = "accuracy"


class PictureRecipe(Recipe):
    task: Literal["picture-labels"] = "picture-labels"
    data: FileSettings
    model: PictureModel = PictureModel()
    training: PictureTraining = PictureTraining()

    @property
    def is_validated(self) -> bool:
        return self.data.is_validated


class PictureRun(Run):
    recipe: PictureRecipe

    def examples(self, part: str) -> "Pictures":
        """The pictures that the run keeps."""
        name = f"data/{part}.txt"
        self.require_unchanged(name)
        lines = (self.path / name).read_text("utf-8").splitlines()
        return Pictures.of(lines, self.facts["labels"])


# The model


class PictureReader(nn.Module):
    """Patches, embedded with their places; one learnt query attends to them."""

    def __init__(self, dim: int, labels: int) -> None:
        super().__init__()
        self.patch = nn.Linear(4, dim)
        self.place = nn.Parameter(torch.randn(16, dim) * 0.02)
        self.query = nn.Parameter(torch.randn(1, dim) * 0.02)
        self.attention = Attention(scores.Additive(dim, dim, dim))
        self.head = nn.Linear(dim, labels)

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits ``[B, C]`` of ``pictures [B, 8, 8]``."""
        patches = pictures.unfold(1, 2, 2).unfold(2, 2, 2).reshape(-1, 16, 4)
        cells = torch.tanh(self.patch(patches) + self.place)  # [B, K, D]
        query = self.query.expand(len(cells), 1, -1)
        logits: Tensor = self.head(self.attention(query, cells).squeeze(1))
        return logits


# What the loop is given


class Pictures(NamedTuple):
    grey: Tensor
    """``[B, 8, 8]``, from 0 to 1."""
    labels: Tensor
    """``[B]``"""

    @classmethod
    def of(cls, lines: Sequence[str], labels: Sequence[str]) -> "Pictures":
        known = {label: number for number, label in enumerate(labels)}
        given = [known[line.partition("\t")[0]] for line in lines]
        grey = [picture(line.partition("\t")[2]) for line in lines]
        return cls(torch.stack(grey), torch.tensor(given))

    @property
    def weight(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Pictures":
        return Pictures(self.grey.to(device), self.labels.to(device))

    def split(self, count: int, fewest: int = 0) -> list["Pictures"]:
        return [self]


def picture(digits: str) -> Tensor:
    """``[8, 8]`` of 64 digits."""
    if len(digits) != 64 or not (digits.isascii() and digits.isdigit()):
        raise UserError(f"'{digits[:20]}' is no picture: give 64 digits, row by row")
    return torch.tensor([int(digit) / 9 for digit in digits]).view(8, 8)


class PictureTask:
    def __init__(self, model: nn.Module, train: Pictures, held_out: Pictures | None, size: int):
        self.model, self.train, self.held_out, self.size = model, train, held_out, size

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, Pictures]]:
        return of_rank(self._order(position), rank)

    def _order(self, position: Position) -> Iterator[tuple[Position, Pictures]]:
        seed, epoch, index = position
        while True:
            generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
            order = torch.randperm(self.train.weight, generator=generator)
            for rows in order.split(self.size)[index:]:
                index += 1
                yield Position(seed, epoch, index), Pictures(*(part[rows] for part in self.train))
            epoch, index = epoch + 1, 0

    def loss(self, batch: Pictures) -> Loss:
        total = F.cross_entropy(self.model(batch.grey), batch.labels, reduction="sum")
        return Loss(total, {"loss": total.detach()})

    def split(self, batch: Pictures, count: int, fewest: int = 0) -> list[Pictures]:
        return [batch]

    def validate(self) -> Validation:
        if self.held_out is None:
            return Validation({}, [])
        self.model.eval()
        with torch.inference_mode():
            logits = self.model(self.held_out.grey)
        self.model.train()
        right = (logits.argmax(1) == self.held_out.labels).float().mean()
        loss = F.cross_entropy(logits, self.held_out.labels)
        return Validation({"loss": float(loss), "accuracy": float(right)}, [])

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        pass


# Use


class PictureInput(BaseModel):
    """One input of ``POST /api/predict``; the page makes a form of it."""

    model_config = ConfigDict(extra="forbid")

    picture: Annotated[str, Field(pattern=r"^[0-9]{64}$", description="64 digits, row by row")]


class Found(NamedTuple):
    label: str
    probability: float

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


class PicturePredictor:
    task = "picture-labels"

    def __init__(self, model: nn.Module, labels: list[str]) -> None:
        self.model, self.labels = model, labels

    def predict(self, inputs: Sequence[str]) -> list[Found]:
        if not inputs:
            return []
        with torch.inference_mode():
            best = self.model(torch.stack([picture(one) for one in inputs])).softmax(1).max(1)
        pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [Found(self.labels[number], probability) for probability, number in pairs]

    def trace(self, digits: str, relevance: bool = True) -> Trace:
        with watch(self.model) as seen:
            [found] = self.predict([digits])
        cells = Axis("image", extent=(4, 4), media=Media.picture(picture(digits)))
        axes = {"label": Axis("labels", [found.label]), "patches": cells}
        weights = seen["attention"][0].view(1, 1, 16)
        return Trace.of(axes, {"attention": ("label", "patches", weights)}, title=found.label)


class PictureLabels(TaskSpec):
    name = "picture-labels"
    command = "predict"
    does = "labels pictures"

    def recipe_type(self) -> type[PictureRecipe]:
        return PictureRecipe

    def run_type(self) -> type[PictureRun]:
        return PictureRun

    def facts_type(self) -> type[Facts]:
        return Facts

    def setting_of_files(self, recipe: Any, part: str) -> str:
        return f"data.{part}"

    def describe(self, summary: dict[str, Any]) -> list[tuple[str, str]]:
        return [("run", f"{summary['run']} ({self.name})")]

    def require_usable(self, recipe: PictureRecipe) -> None:
        require_trainable(recipe, lambda: PictureReader(recipe.model.dim, 2))

    def prepare(
        self, path: Path, recipe: PictureRecipe, data_folder: Path | None, start: Start | None
    ) -> Run:
        texts = {}
        for part in ("train", "validation"):
            files = find_data(recipe.data.files[part], data_folder)
            lines = [line for file in files for line in Path(file).read_text("utf-8").splitlines()]
            texts[part] = [line for line in lines if line.strip()]
        labels = sorted({line.partition("\t")[0] for line in texts["train"]})
        (path / "data").mkdir(exist_ok=True)
        for part, lines in texts.items():
            if lines:
                Pictures.of(lines, labels)  # a mistake is found now
            (path / "data" / f"{part}.txt").write_text("\n".join(lines), "utf-8")
        write_recipe(path, write_toml(recipe))
        hashes = self.data_hashes(recipe, data_folder)
        facts = {"format": FORMAT, "task": self.name, "made_with": made_with()}
        counts = {part: len(lines) for part, lines in texts.items()}
        write_facts(path, {**facts, "data": {"hashes": hashes, **counts}, "labels": labels})
        return open_run(path)

    def data_hashes(self, recipe: PictureRecipe, data_folder: Path | None) -> dict[str, list[str]]:
        return {
            part: [content_hash(Path(file)) for file in find_data(files, data_folder)]
            for part, files in recipe.data.files.items()
        }

    def build_model(self, run: PictureRun) -> PictureReader:
        torch.manual_seed(run.recipe.seed)
        return PictureReader(run.recipe.model.dim, len(run.facts["labels"]))

    def outline_model(self, run: PictureRun) -> PictureReader:
        return on_meta(lambda: self.build_model(run))

    def build_task(
        self, run: PictureRun, model: Any, training: Any, device: torch.device, precision: str
    ) -> PictureTask:
        held_out = run.examples("validation").to(device) if run.recipe.is_validated else None
        train = run.examples("train").to(device)
        return PictureTask(model, train, held_out, max(1, training.batch_tokens // 16))

    def load_start(self, run: PictureRun, model: Any) -> None:
        pass

    def amount(self, run: PictureRun) -> str:
        return f"{run.facts['data']['train']:,} pictures"

    def starts_from(self, other: Kind) -> bool:
        return False

    def load(self, run: str | Path, **how: Any) -> PicturePredictor:
        opened = open_run(run)
        if not isinstance(opened, PictureRun):
            raise UserError(f"{run} is a run for {opened.recipe.task}, not for {self.name}")
        self.refuse_head(run, how.get("head"))
        point = opened.chosen(how.get("checkpoint"))
        model = load_weights(
            lambda: self.build_model(opened), lambda: self.outline_model(opened), point
        )
        return PicturePredictor(model.eval(), opened.facts["labels"])

    def evaluate(
        self, run: PictureRun, data: Sequence[str] | None, options: Any, opening: Opening
    ) -> Evaluation:
        files = data or [str(run.path / "data" / "validation.txt")]
        lines = [line for file in files for line in Path(file).read_text("utf-8").splitlines()]
        pairs = [line.split("\t") for line in lines if line.strip()]
        if not pairs:
            raise UserError(f"{' and '.join(files)} has no pictures to evaluate on")
        found = opening.load(run.path).predict([digits for _, digits in pairs])
        right = [one.label == label for one, (label, _) in zip(found, pairs, strict=True)]
        figures = {"accuracy": Figure(100 * sum(right) / len(right), unit="%")}
        return Evaluation(f"{len(right)} pictures", figures, [one.label for one in found])

    def input_type(self) -> type[PictureInput]:
        return PictureInput

    def read_request(self, value: PictureInput) -> str:
        return value.picture

    def write_result(self, result: Found) -> str:
        return result.label

    def facts(self, predictor: PicturePredictor) -> dict[str, Any]:
        return {"labels": predictor.labels}


register(PictureLabels())
