"""heedful: attention models. Train one from your own data, run it, and look at what it attends to.

heedful.train(recipe, out="run")                train, or go on exactly where a run stopped
heedful.load("run").predict(["A text."])        use a run of any task
heedful.load("run").translate(["A text."])      translate, with options
heedful.view(heedful.load("run").trace("A."))    look at what a run attends to, in a notebook
heedful.load_classifier("run").classify([…])    and load_tagger, load_generator, load_filler
heedful.watch(model)                            see attention weights
heedful.replace_attention(model)                in a model of PyTorch or Hugging Face
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.api import load, load_translator, view
    from heedful.attention import watch
    from heedful.basics.errors import UserError
    from heedful.interop.attention_replacing import replace_attention
    from heedful.tasks.texts.loading import (
        load_classifier,
        load_filler,
        load_generator,
        load_tagger,
    )
    from heedful.training import train

__version__ = "0.1.0"
__all__ = [
    "UserError",
    "__version__",
    "load",
    "load_classifier",
    "load_filler",
    "load_generator",
    "load_tagger",
    "load_translator",
    "replace_attention",
    "train",
    "view",
    "watch",
]

_ROOMS = {
    "UserError": "heedful.basics.errors",
    "load": "heedful.api",
    "load_translator": "heedful.api",
    **dict.fromkeys(
        ("load_classifier", "load_filler", "load_generator", "load_tagger"),
        "heedful.tasks.texts.loading",
    ),
    "replace_attention": "heedful.interop.attention_replacing",
    "train": "heedful.training",
    "view": "heedful.api",
    "watch": "heedful.attention",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line starts without PyTorch."""
    if name in _ROOMS:
        return getattr(import_module(_ROOMS[name]), name)
    raise AttributeError(f"module 'heedful' has no attribute '{name}'")


def __dir__() -> list[str]:
    """All that can be taken from here, imported yet or not: what is offered in a notebook."""
    return sorted({*globals(), *_ROOMS})
