"""The HTTP API and the local page."""

from heedful.serving.admission import LOOPBACK
from heedful.serving.application import make_application
from heedful.serving.limits import Limits
from heedful.serving.served import Served
from heedful.serving.server import run_server

__all__ = ["LOOPBACK", "Limits", "Served", "make_application", "run_server"]
