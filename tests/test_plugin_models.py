"""Models by kind: heedful's own, and those of plug-ins."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from torch import Tensor, nn

import heedful
from heedful.basics.errors import UserError
from heedful.models import (
    CaptionSettings,
    EncoderSettings,
    ImageSettings,
    LanguageModel,
    LanguageSettings,
    ModelSettings,
    PairModel,
    PairSettings,
    TensorState,
    build_encoder,
    build_model,
    register_model,
    registered,
)
from heedful.models.language import boundary
from heedful.models.model_settings import builders, kind_of
from heedful.runs.recipe import check_recipe
from heedful.runs.settings import Recipe


@pytest.fixture(autouse=True)
def _registered_for_this_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(builders)
    yield
    builders.clear()
    builders.update(before)


class Mine(PairSettings):
    """Settings of a model of a plug-in."""

    kind: Literal["mine"] = "mine"
    width: int = 8
    max_length: int = 512


class MyModel(PairModel):
    """A model that was never trained."""

    def __init__(self, settings: Mine, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.max_length = settings.max_length
        self.sizes = settings.width, source_vocabulary, target_vocabulary


def recipe_of(**model: object) -> Recipe:
    return check_recipe({"data": {"train": ["a.tsv"]}, "model": model}, "the recipe")


def test_a_registered_model_is_chosen_by_a_recipe() -> None:
    with pytest.raises(UserError, match=r"'model.kind' = 'mine'; .* with --plugin FILE.py\)"):
        recipe_of(kind="mine")
    register_model(Mine, MyModel)
    recipe = recipe_of(kind="mine", width=3)
    assert recipe.as_tables()["model"] == {"kind": "mine", "width": 3, "max_length": 512}
    assert recipe.model_dump()["model"]["width"] == 3
    model = build_model(PairSettings.model_validate({"kind": "mine"}), 5, 6)
    assert isinstance(model, MyModel)
    assert model.sizes == (8, 5, 6)
    for wrong, message in (
        ({"kind": "mien"}, "unknown 'model.kind' = 'mien'; did you mean 'mine'?"),
        ({"kind": "mine", "widht": 3}, "unknown key 'model.widht'; did you mean 'width'?"),
        ({"kind": "mine", "width": "a"}, "'model.width' = 'a': "),
    ):
        with pytest.raises(UserError) as refused:
            recipe_of(**wrong)
        assert message in str(refused.value)
    with pytest.raises(UserError, match=r"unknown 'model.kind' = 'bert'"):
        recipe_of(kind="bert")  # of another family


def test_what_cannot_be_registered_says_why() -> None:
    class Recurrent(PairSettings):
        kind: Literal["recurrent"] = "recurrent"
        max_length: int = 512

    class Nameless(PairSettings):
        max_length: int = 512

    class Endless(PairSettings):
        kind: Literal["endless"] = "endless"

    class Alone(ModelSettings):
        kind: Literal["alone"] = "alone"
        max_length: int = 512

    with pytest.raises(UserError, match=r"'recurrent' of .*test_plugin_models is already"):
        register_model(Recurrent, MyModel)
    with pytest.raises(TypeError, match="needs a field such as kind"):
        register_model(Nameless, MyModel)
    with pytest.raises(TypeError, match="needs max_length"):
        register_model(Endless, MyModel)
    with pytest.raises(TypeError, match="must be a subclass of PairSettings"):
        register_model(Alone, MyModel)
    register_model(Mine, lambda settings, source, target: nn.Identity())
    with pytest.raises(TypeError, match=r"'mine' builds a Identity; .* subclass of PairModel"):
        build_model(Mine(), 5, 5)


FAMILIES = (PairSettings, EncoderSettings, LanguageSettings, ImageSettings, CaptionSettings)


def test_each_family_knows_its_kinds() -> None:
    kinds = [
        {kind_of(each) for each in registered(family)}
        for family in (
            PairSettings,
            EncoderSettings,
            LanguageSettings,
            ImageSettings,
            CaptionSettings,
        )
    ]
    assert kinds == [
        {
            *("transformer", "recurrent", "convolutional", "bytenet", "aligner"),
            "pointer-generator",
        },
        {
            *("bert", "xlnet", "perceiver", "recurrent-encoder", "hierarchical", "decomposable"),
            "bidirectional-attention-flow",
            *("elmo", "language", "convolutional-encoder"),
        },
        {
            *("gpt", "recurrent-language-model", "bytenet-language-model"),
            "memory-language-model",
        },
        {"convolutional", "glimpses", "perceiver", "residual", "transformer"},
        {"recurrent", "transformer"},
    ]


class MeanSettings(LanguageSettings):
    """Settings of a language model of a plug-in."""

    kind: Literal["mean"] = "mean"
    width: int = 8
    max_length: int = 64


class Mean(LanguageModel):
    """Predicts each token from the sum of those before."""

    def __init__(self, settings: MeanSettings, vocabulary: int) -> None:
        super().__init__()
        self.max_length = settings.max_length
        self.tokens = nn.Embedding(vocabulary, settings.width)

    @property
    def output_table(self) -> Tensor:
        return self.tokens.weight

    def states(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.tokens(boundary(tokens)).cumsum(1)
        return found

    def start(self, prompts: Tensor) -> TensorState:
        before = self.tokens(boundary(prompts[:, :-1]))
        return TensorState(sum=before.sum(1))

    def step(self, tokens: Tensor, state: TensorState) -> tuple[Tensor, TensorState]:
        after = state["sum"] + self.tokens(boundary(tokens))
        return self.logits(after), TensorState(sum=after)


def test_a_language_model_writes_and_becomes_an_encoder(tmp_path: Path) -> None:
    register_model(MeanSettings, Mean)
    lines = [f"the dog sees {number}\n" for number in range(60)]
    (tmp_path / "train.txt").write_text("".join(lines), encoding="utf-8")
    tables = {
        "task": "language-model",
        "data": {"train": ["train.txt"]},
        "tokeniser": {"kind": "characters"},
        "context": 32,
        "model": {"kind": "mean"},
        "training": {"max_steps": 2, "warmup_steps": 1, "device": "cpu", "precision": "float32"},
    }
    heedful.train(tables, tmp_path / "run", data=tmp_path)
    generator = heedful.load(tmp_path / "run")
    assert len(generator.predict(["the dog"])) == 1
    inner = {"kind": "mean", "width": 4}
    settings = EncoderSettings.model_validate({"kind": "language", "language_model": inner})
    encoder = build_encoder(settings, 20)
    assert (encoder.dim, encoder.max_length) == (4, 64)
    assert settings.as_tables()["language_model"] == {**inner, "max_length": 64}
