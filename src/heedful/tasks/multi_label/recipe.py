"""The recipe of classification with any number of labels."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from heedful.basics.errors import UserError
from heedful.data import python_rows
from heedful.data.examples import Example, MultiLabelled
from heedful.data.readers.multi_labelled import read_multi_labelled, several_labels
from heedful.tasks.texts.data import LabelledData
from heedful.tasks.texts.heads import HeadSettings, LabelledHead
from heedful.tasks.texts.recipe import EncoderRecipe
from heedful.tasks.texts.training_settings import TextTrainingSettings, choices


class MultiLabelledData(LabelledData):
    """Texts, or pairs of texts, each with any number of labels in the column ``label``."""

    form = "multi-label"

    separator: str = Field(";", min_length=1)
    """Stands between two labels in a table; in JSON lines, labels may be a list."""

    @model_validator(mode="after")
    def _rows_without_labels_are_examples(self) -> Self:
        if self.unlabelled != "error":
            raise ValueError(
                "unlabelled is for texts that have one label each: here, a row without labels is "
                "an example; leave it out"
            )
        return self

    def read_files(self, files: Sequence[str]) -> Iterator[Any]:
        return read_multi_labelled(
            files,
            text=self.text,
            labels=self.label,
            separator=self.separator,
            encoding=self.encoding,
            format=self.format,
        )

    def stored(self, value: Any) -> Any:
        texts, labels = value
        return MultiLabelled(tuple(texts), tuple(labels))

    def example_of(self, row: Any) -> list[Any]:
        *texts, labels = python_rows.values(row, [*self.text, self.label])
        found = [python_rows.filled(own, name) for own, name in zip(texts, self.text, strict=True)]
        return [found, list(several_labels(labels, self.label, self.separator))]

    def check_labels(self, labelled: Counter[str], first: Example | None, files: str) -> None:
        """A label may be rare, and a text may have none.

        Raises:
            UserError: there are no labels.
        """
        if not labelled:
            raise UserError(f"{files}: no example has a label; there is nothing to learn")


Threshold = float | Literal["validation"]


class MultiLabelHead(LabelledHead):
    """Any number of labels for each text, or pair of texts."""

    task: Literal["multi-label"] = "multi-label"
    data: MultiLabelledData
    threshold: Threshold = 0.5
    """A label is given if its probability is at least this."""

    @property
    def fixed(self) -> float | None:
        """The threshold of all labels; None if validation chooses that of each label."""
        return None if self.threshold == "validation" else self.threshold

    def figures(self) -> tuple[str, ...]:
        return choices(MultiLabelTraining)

    def check_fit(self, recipe: EncoderRecipe, name: str) -> None:
        super().check_fit(recipe, name)
        if self.fixed is not None and not 0 < self.fixed < 1:
            raise ValueError(f"threshold = {self.fixed}: give a number between 0 and 1")
        if self.fixed is None and not self.data.is_validated:
            raise ValueError(
                "threshold = 'validation' needs validation texts: set data.validation or "
                "data.validation_share, or give threshold as a number"
            )

    def has_layers_of(self, other: HeadSettings) -> bool:
        fixed = getattr(other, "fixed", None)
        return super().has_layers_of(other) and (self.fixed is None) == (fixed is None)


class MultiLabelTraining(TextTrainingSettings):
    """As all, chosen by the F1 of all labels together."""

    choose_by: Literal["loss", "micro_f1", "macro_f1", "subset_accuracy", "average_precision"] = (
        "micro_f1"
    )


class MultiLabelRecipe(EncoderRecipe):
    """Any number of labels for each text, or pair of texts."""

    task: Literal["multi-label"] = "multi-label"
    data: MultiLabelledData
    threshold: Threshold = 0.5
    """A label is given if its probability is at least this; ``validation`` chooses the threshold of
    each label with the best F1 on the validation texts."""
    training: MultiLabelTraining = MultiLabelTraining()

    def heads(self) -> Mapping[str, Any]:
        return {"multi-label": MultiLabelHead(data=self.data, threshold=self.threshold)}
