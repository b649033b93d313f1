"""Translation: pairs of a text and its translation."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from heedful.tasks.sketch import PaperSize
from heedful.tasks.spec import Command, register
from heedful.tasks.translation.spec import TextToTextSpec

if TYPE_CHECKING:
    from heedful.tasks.endpoints import Contract, Server
    from heedful.tasks.translation.recipe import TranslationRecipe


class Translation(TextToTextSpec):
    """Translates texts."""

    name = "translation"
    place = 1
    paper_sizes: Mapping[str, PaperSize] = {
        f"transformer-{size}": PaperSize(
            {
                "model": {"kind": "transformer", "size": size},
                "tokeniser": {"vocabulary_size": 37_000},
            },
            25,
            f"Vaswani et al. 2017, sections 5.1 and 5.2: {steps:,} steps of 25,000 target tokens",
            steps * 25_000,
        )
        for size, steps in (("base", 100_000), ("big", 300_000))
    } | {
        "transformer-1b": PaperSize(
            {
                "model": {
                    "kind": "transformer",
                    "layers": 8,
                    "hidden_size": 2048,
                    "ffn_size": 8192,
                    "heads": 32,
                },
                "tokeniser": {"vocabulary_size": 37_000},
            },
            25,
            "no published model: 8 + 8 layers, twice as wide as the big Transformer",
        )
    }
    command = "translate"
    train_option = "translate"

    def recipe_type(self) -> "type[TranslationRecipe]":
        from heedful.tasks.translation.recipe import TranslationRecipe

        return TranslationRecipe

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        from heedful.tasks.pairs.default_recipe import choose_recipe

        return choose_recipe(files, **settings)

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.translation.command import run
        from heedful.tasks.translation.command_options import Translate

        return [Command(self.command, Translate, partial(run, loads=loads))]

    def contracts(self, server: "Server") -> "Sequence[Contract]":
        from heedful.tasks.translation.libretranslate import LibreTranslate

        return [LibreTranslate(server).contract]


register(Translation())
