"""Ends training with a checkpoint when a signal arrives."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

END_WITH_INPUT = "HEEDFUL_END_WITH_INPUT"
"""Environment variable: end training when standard input is closed, because the process that holds
its other end has ended, however that happened."""
_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # Windows has none


@contextmanager
def interruptible(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call ``interrupt`` at the first SIGINT (Ctrl-C), SIGTERM or SIGHUP (closed terminal).

    The second signal raises `KeyboardInterrupt`. If SIGHUP is ignored, as under ``nohup``, it stays
    ignored. Only the main thread of a process receives signals; in other threads nothing happens.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = False

    def receive(number: int, frame: FrameType | None) -> None:
        nonlocal received
        if received:
            raise KeyboardInterrupt
        received = True
        interrupt()

    kinds = [signal.SIGINT, signal.SIGTERM]
    if _HANGUP is not None and signal.getsignal(_HANGUP) != signal.SIG_IGN:
        kinds.append(_HANGUP)
    before = {kind: signal.signal(kind, receive) for kind in kinds}
    if os.environ.pop(END_WITH_INPUT, None):
        threading.Thread(target=_terminate_with_input, daemon=True).start()
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _terminate_with_input() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
