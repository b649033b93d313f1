"""The HTTP API and the local page."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.serving.admission import LOOPBACK
    from heedful.serving.application import make_application
    from heedful.serving.limits import Limits
    from heedful.serving.served import Served
    from heedful.serving.server import run_server

__all__ = ["LOOPBACK", "Limits", "Served", "make_application", "run_server"]

_MODULES = {
    "LOOPBACK": "admission",
    "Limits": "limits",
    "Served": "served",
    "make_application": "application",
    "run_server": "server",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a supervisor of workers runs without PyTorch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
