"""From the settings of a run for single texts to its model, task and what reads or writes."""

from pathlib import Path

import torch
from torch import nn

from heedful.basics.errors import UserError
from heedful.basics.notices import once
from heedful.data.document_store import EncodedDocuments
from heedful.data.masking import SentencePairs
from heedful.data.streams import Stream, WindowBatches
from heedful.data.vocabularies import SavedVocabulary
from heedful.data.vocabulary import Vocabulary
from heedful.inference.classifier import Classifier
from heedful.inference.generator import Generator
from heedful.inference.tagger import Tagger
from heedful.models import build_encoder, build_language_model
from heedful.models.bert import Bert, MaskedHead, NextSentenceHead
from heedful.models.encoders import Classifier as ClassificationLayer
from heedful.models.encoders import HeadedEncoder
from heedful.models.encoders import Tagger as TaggingLayer
from heedful.models.language import LanguageModel
from heedful.runs.checkpoints import load_model_tensors, open_checkpoint
from heedful.runs.model_size import on_meta, require_room
from heedful.runs.parts import load_weights
from heedful.runs.vectors import put_vectors
from heedful.tasks.language_model.learning import LanguageTask
from heedful.tasks.masked.learning import MaskedTask
from heedful.tasks.several.learning import Part, SeveralTasks
from heedful.tasks.spec import spec_named
from heedful.tasks.texts import recipe as text_recipe
from heedful.tasks.texts.reading import ClassificationTask, TaggingTask
from heedful.tasks.texts.recipe import EncoderRecipe, LanguageRecipe, TextTrainingSettings
from heedful.tasks.texts.rows import RowBatches
from heedful.tasks.texts.run import TextRun
from heedful.training.protocol import Task

TextModel = HeadedEncoder | LanguageModel


def outline_text_model(run: TextRun) -> TextModel:
    """The recipe's model on the device ``meta``: its shapes, without numbers or memory for them.

    Raises:
        UserError: the settings do not go together.
    """
    return on_meta(lambda: _fresh(run))


def _fresh(run: TextRun) -> TextModel:
    recipe, size = run.recipe, run.facts["vocabulary"]["size"]
    try:
        if isinstance(recipe, LanguageRecipe):
            return build_language_model(recipe.model, size)
        if isinstance(recipe, EncoderRecipe):
            return _headed(run, recipe, size)
    except (ValueError, RuntimeError) as error:  # of a size that PyTorch cannot count
        raise UserError(f"{run.path / 'recipe.toml'}: {error}") from error
    raise TypeError(f"no model for {recipe.task}")


def load_text_model(run: TextRun, checkpoint: str | int | None = None) -> TextModel:
    """The run's model with the weights of a checkpoint.

    Args:
        run: the run.
        checkpoint: ``best``, ``last``, ``average`` or a step; the run's own choice if None.

    Raises:
        UserError: there is no such checkpoint, it is damaged or not of the recipe's model, or
            larger than the memory.
    """
    point = run.chosen(checkpoint)
    return load_weights(lambda: build_text_model(run), lambda: outline_text_model(run), point)


def build_text_model(run: TextRun) -> TextModel:
    """The recipe's model with fresh weights, which the recipe's seed decides.

    Raises:
        UserError: the settings do not go together, or it is larger than the memory.
    """
    recipe = run.recipe
    require_room(outline_text_model(run), str(run.path / "recipe.toml"))
    torch.manual_seed(recipe.seed)
    model = _fresh(run)
    if recipe.vectors is not None and recipe.vectors.frozen:
        _embedding(model).weight.requires_grad_(False)
    return model


def _headed(run: TextRun, recipe: EncoderRecipe, size: int) -> HeadedEncoder:
    ends = run.facts["vocabulary"].get("sentence_ends", [])
    encoder = build_encoder(recipe.model, size, sentence_ends=ends)
    heads: dict[str, nn.Module] = {}
    for name, head in recipe.heads().items():
        if isinstance(head, text_recipe.MaskedHead):
            if not isinstance(encoder, Bert):
                raise UserError("hidden tokens are learnt by model.kind = 'bert' only")
            heads[name] = MaskedHead(encoder)
            if head.masking.next_sentence:
                heads[f"{name}_next"] = NextSentenceHead(encoder.pooled_dim)
            continue
        labels = len(run.labels(name))
        tags = isinstance(head, text_recipe.TaggingHead)
        width = encoder.dim if tags else encoder.pooled_dim
        if width is None:
            what = "tokens" if tags else "texts"
            raise UserError(f"model.kind = '{recipe.model.kind}' has no vectors of {what}")
        layer = TaggingLayer if tags else ClassificationLayer
        heads[name] = layer(width, labels, recipe.head_dropout)
    return HeadedEncoder(encoder, heads)


def build_text_task(
    run: TextRun,
    model: TextModel,
    training: TextTrainingSettings,
    device: torch.device,
    precision: str,
) -> Task:
    """The run's task, ready for the loop."""
    recipe, vocabulary = run.recipe, run.vocabulary()
    if isinstance(recipe, LanguageRecipe) and isinstance(model, LanguageModel):
        name = next(iter(recipe.sets()))
        windows = WindowBatches(
            Stream(run.set_folder(name) / "train"),
            recipe.context,
            max(1, training.batch_tokens // recipe.context),
        )
        return LanguageTask(
            model,
            windows,
            run.documents(name, "validation"),
            Generator(model, vocabulary, device=device, say=once()),
            device=device,
            label_smoothing=training.label_smoothing,
            precision=precision,
            samples=recipe.samples,
            seed=recipe.seed,
        )
    if not isinstance(recipe, EncoderRecipe) or not isinstance(model, HeadedEncoder):
        raise TypeError(f"no task for {recipe.task}")
    make = _Tasks(run, recipe, model, vocabulary, training, device, precision)
    if not isinstance(recipe, text_recipe.SeveralRecipe):
        return make.task(*next(iter(recipe.heads().items())))
    parts = {
        name: Part(
            make.task(name, head),
            head.weight,
            run.facts["sets"][name]["train"],
            spec_named(head.task).falling,
        )
        for name, head in recipe.tasks.items()
    }
    return SeveralTasks(model, parts, recipe.temperature)


class _Tasks:
    """Makes the task of each head."""

    def __init__(
        self,
        run: TextRun,
        recipe: EncoderRecipe,
        model: HeadedEncoder,
        vocabulary: SavedVocabulary,
        training: TextTrainingSettings,
        device: torch.device,
        precision: str,
    ) -> None:
        self.run, self.recipe, self.model, self.vocabulary = run, recipe, model, vocabulary
        self.training, self.device, self.precision = training, device, precision

    def task(self, name: str, head: text_recipe.HeadSettings) -> Task:
        """The task of one head."""
        if isinstance(head, text_recipe.MaskedHead):
            return self._masked(name, head)
        corpus = self.run.set_folder(name) / "train", self.training.batch_tokens
        if isinstance(head, text_recipe.TaggingHead):
            return TaggingTask(
                self.model,
                RowBatches(*corpus, each_token=True),
                self.run.tagged(name, "validation"),
                self._tagger(name),
                device=self.device,
                label_smoothing=self.training.label_smoothing,
                precision=self.precision,
            )
        return ClassificationTask(
            self.model,
            RowBatches(*corpus, each_token=False),
            self.run.labelled(name, "validation"),
            self._classifier(name),
            device=self.device,
            label_smoothing=self.training.label_smoothing,
            penalty=self.training.penalty,
            precision=self.precision,
        )

    def _classifier(self, name: str) -> Classifier:
        labels = self.run.labels(name)
        return Classifier(
            self.model, self.vocabulary, labels, head=name, device=self.device, say=once()
        )

    def _tagger(self, name: str) -> Tagger:
        tags = self.run.labels(name)
        return Tagger(self.model, self.vocabulary, tags, head=name, device=self.device, say=once())

    def _masked(self, name: str, head: text_recipe.MaskedHead) -> Task:
        def pairs(part: str) -> SentencePairs:
            folder = self.run.set_folder(name) / part
            limits = (self.recipe.max_tokens, self.training.batch_tokens)
            return sentence_pairs(folder, self.vocabulary, head, *limits)

        validated = (self.run.set_folder(name) / "validation").exists()
        return MaskedTask(
            self.model,
            pairs("train"),
            pairs("validation") if validated else None,
            name=name,
            device=self.device,
            precision=self.precision,
        )


def sentence_pairs(
    folder: Path,
    vocabulary: Vocabulary,
    head: text_recipe.MaskedHead,
    max_tokens: int,
    batch_tokens: int,
) -> SentencePairs:
    """Pre-training batches of encoded documents.

    Raises:
        UserError: they are not of this vocabulary, or too long.
    """
    return SentencePairs(
        EncodedDocuments.open(folder),
        vocabulary,
        max_tokens=max_tokens,
        batch_tokens=batch_tokens,
        next_sentence=head.masking.next_sentence,
        whole_words=head.masking.whole_word,
        masked=head.masking.share,
    )


def load_text_start(run: TextRun, model: nn.Module) -> None:
    """Put the weights that a run began with into its model, and the vectors of words.

    Heads that the other run did not have, or that decide on other labels, stay as they are.

    Raises:
        UserError: weights or vectors are missing or damaged.
    """
    if run.facts.get("started_from") is not None:
        point = open_checkpoint(run.start_folder)
        own = {
            name: tensor.detach()
            for name, tensor in model.state_dict().items()
            if name.startswith("heads.")
        }
        load_model_tensors(model, own | point.weights(), point.path)
    if run.facts.get("vectors") is None:
        return
    put_vectors(run.path, {"file": _embedding(model)})


def _embedding(model: nn.Module) -> nn.Embedding:
    found = model.encoder.embedding if isinstance(model, HeadedEncoder) else None
    if found is None and isinstance(model, LanguageModel):
        found = model.embedding
    if found is None:
        raise TypeError("no table of token vectors")
    return found
