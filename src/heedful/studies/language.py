"""Small language models of words, trained on generated texts that all have the same length.

Every training window is one whole text, so that a model never reads a part of another text.
Shapes: B texts, T tokens (END, then the words), V symbols, L layers, H heads.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from heedful.attention import watch
from heedful.basics.files import write_text
from heedful.basics.symbols import END
from heedful.data.vocabulary import Vocabulary
from heedful.inference.inference_mode import ready
from heedful.inference.removal import removed_heads
from heedful.models.gpt import Gpt
from heedful.runs.run import Run
from heedful.studies.study import StudyOptions
from heedful.tasks.texts.loading import load_generator

Text = Sequence[str]
Head = tuple[int, int]
"""A layer and a head, both from 0."""
_ROWS = 256
"""Texts that are read at a time."""


class Budget(NamedTuple):
    """How long a model is trained."""

    steps: int
    texts: int
    """Texts of a step."""
    learning_rate: float
    checkpoints: int = 1
    """Checkpoints at equal distances that are kept; the last one is that of the last step."""


def train_language(
    options: StudyOptions,
    name: str,
    seed: int,
    texts: Mapping[str, Iterable[Text]],
    model: Mapping[str, Any],
    budget: Budget,
) -> Run:
    """Train a GPT on generated texts in ``out/NAME``.

    Args:
        options: of the study.
        name: of the run; the texts are written to ``out/data/NAME``.
        seed: of the run.
        texts: "train" and "validation": texts of equally many words without spaces.
        model: the table ``[model]``, without ``max_length``.
        budget: steps, texts of a step, learning rate, checkpoints.

    Raises:
        ValueError: the texts differ in length.
    """
    folder = options.out / "data" / name
    lengths: set[int] = set()
    words: set[str] = set()
    for part, some in texts.items():
        lines = []
        for text in some:
            lengths.add(len(text))
            words.update(text)
            lines.append(" ".join(text))
        write_text(folder / f"{part}.txt", "\n".join(lines) + "\n")
    (length,) = lengths
    recipe = {
        "task": "language-model",
        "seed": seed,
        "context": length + 1,
        "windows": "aligned",
        "samples": 0,
        "tokeniser": {"kind": "words", "split": "spaces", "vocabulary_size": len(words) + 4},
        "data": {
            "train": "train.txt",
            "validation": "validation.txt",
            "documents": "lines",
        },
        "model": {"kind": "gpt", "dropout": 0.0, "attention_dropout": 0.0, **model},
        "training": {
            "max_steps": budget.steps,
            "batch_tokens": budget.texts * (length + 1),
            "learning_rate": budget.learning_rate,
            "warmup_steps": max(1, budget.steps // 20),
            "schedule": "cosine",
            "precision": "float32",
            "log_every": max(1, budget.steps // 20),
            "validate_every": max(1, budget.steps // 4),
            "checkpoint_every": max(1, budget.steps // budget.checkpoints),
            "keep_last": budget.checkpoints + 1,
        },
    }
    options.echo(f"{name}: {budget.steps:,} steps of {budget.texts} texts of {length} words")
    return options.train(name, recipe, folder)


class Reader:
    """A trained GPT of words that reads whole texts.

    Args:
        model: the model.
        vocabulary: of words.
        device: of the model.
    """

    def __init__(self, model: Gpt, vocabulary: Vocabulary, device: torch.device | str) -> None:
        self.model, self.vocabulary, self.device = model, vocabulary, torch.device(device)

    @classmethod
    def of(cls, run: Run, device: str, checkpoint: str | int | None = "last") -> "Reader":
        """The model of a run."""
        found = load_generator(run.path, device=device, checkpoint=checkpoint)
        return cls(cast(Gpt, found.model), found.vocabulary, found.device)

    @property
    def heads(self) -> list[Head]:
        """All heads, layer by layer."""
        sizes = self.model.settings
        return [(layer, head) for layer in range(sizes.layers) for head in range(sizes.heads)]

    def words(self, words: Iterable[str]) -> list[int]:
        """The token of each word."""
        return self.vocabulary.encode(" ".join(words))

    def tokens(self, texts: Sequence[Text]) -> Tensor:
        """``[B, T]`` with END first."""
        return torch.tensor([[END, *self.words(text)] for text in texts], device=self.device)

    def read(self, tokens: Tensor, removed: Iterable[Head] = ()) -> Tensor:
        """Natural logarithms of the next tokens' probabilities ``[B, T, V]``, in batches.

        Args:
            tokens: ``[B, T]``.
            removed: heads whose results are set to zero.
        """
        gone = [(module_of(layer), head) for layer, head in removed]
        found = []
        with ready(self.model, self.device), removed_heads(self.model, gone):
            for rows in tokens.to(self.device).split(_ROWS):
                logits = self.model.logits(self.model.states(rows))
                found.append(logits.float().log_softmax(-1).cpu())
        return torch.cat(found)

    def weights(self, tokens: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        """Attention weights ``[B, L, H, T, T]``, or those of some queries only.

        Args:
            tokens: ``[B, T]``.
            rows: queries, the same ones in all texts.
        """
        found = []
        for some in tokens.to(self.device).split(_ROWS):
            with ready(self.model, self.device), watch(self.model, rows=rows) as seen:
                self.model.states(some)
            each = [seen[module_of(layer)][0] for layer in range(self.model.settings.layers)]
            found.append(torch.stack(each, 1).float().cpu())
        return torch.cat(found)


def module_of(layer: int) -> str:
    """The name of the attention of a layer."""
    return f"layers.{layer}.self_attention"


def head_name(head: Head) -> str:
    """Layer and head, counted from 1.

    Example:
        >>> head_name((0, 3))
        '1.4'
    """
    return f"{head[0] + 1}.{head[1] + 1}"


def losses(scores: Tensor, tokens: Tensor) -> Tensor:
    """The negative log-probability ``[B, T − 1]`` of each token after the first.

    Args:
        scores: log-probabilities ``[B, T, V]``.
        tokens: ``[B, T]``.
    """
    return -scores[:, :-1].gather(2, tokens[:, 1:].cpu().unsqueeze(2)).squeeze(2)
