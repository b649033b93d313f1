"""Signals that end a training with a checkpoint."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # Windows has none


@contextmanager
def interruptible(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call ``interrupt`` at the first SIGINT (Ctrl-C), SIGTERM or SIGHUP (the terminal is closed).

    The second one raises `KeyboardInterrupt`. A SIGHUP that is ignored, as under ``nohup``, stays
    ignored. Only a process's main thread receives signals; elsewhere this does nothing.
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
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
