"""Tasks that are trained on recordings with texts."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.tasks.column_spec import ColumnSpec
from heedful.tasks.spec import maps_of

if TYPE_CHECKING:
    from torch import nn

    from heedful.data.columns import Codec


@dataclass(frozen=True)
class SoundData:
    """The options that describe the data."""

    sounds: Annotated[
        str | None,
        typer.Option(
            "--sounds",
            help="Folder that the paths of recordings are relative to; default: the table's.",
        ),
    ] = None


class SoundSpec(ColumnSpec):
    """Base of tasks with the columns "frames", the features of a recording, and "text"."""

    reading_settings = ("encoding",)
    batch_unit = "frames"
    rows_at_once = 64  # of recordings, 1,000 would be gigabytes

    @abstractmethod
    def features_of(self, known: Mapping[str, Any]) -> Any:
        """The features that a run was trained with."""

    @abstractmethod
    def vocabulary_of(self, known: Mapping[str, Any]) -> Any:
        """The vocabulary of the texts."""

    @abstractmethod
    def build(self, settings: Any, width: int, size: int) -> "nn.Module":
        """The model for frames of a width and so many symbols.

        Raises:
            ValueError: the settings do not fit.
        """

    def data_options(self) -> type[SoundData]:
        return SoundData

    def codecs(self, known: Mapping[str, Any]) -> "Mapping[str, Codec]":
        from heedful.data import columns

        width, size = self.features_of(known).width, self.vocabulary_of(known).size
        return {"frames": columns.sound(width), "text": columns.tokens(size)}

    def kept(self, example: Any, known: Mapping[str, Any]) -> Any:
        return example.small(self.features_of(known))

    def fresh_model(self, run: Any) -> "nn.Module":
        known = run.facts["known"]
        width, size = self.features_of(known).width, self.vocabulary_of(known).size
        try:
            return self.build(run.recipe.model, width, size)
        except ValueError as error:
            raise UserError(f"model.kind = '{run.recipe.model.kind}': {error}") from error

    def facts(self, predictor: Any) -> dict[str, Any]:
        return {"maps": maps_of(predictor.model, time="time")}

    def amount(self, run: Any) -> str:
        return f"{run.facts['data']['train']:,} recordings"
