"""What ``heedful serve`` was asked for, in a form that worker processes can be given."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from heedful.basics.settings import Settings
from heedful.serving.limits import Limits

if TYPE_CHECKING:
    from fastapi import FastAPI

    from heedful.serving.served import Served
    from heedful.serving.shared import Shared


class Setup(Settings):
    """A server: its runs, its options and its limits."""

    runs: list[Path]
    """Folders of runs."""
    languages: list[str] = Field(default_factory=list)
    """``RUN=source:target`` for runs whose languages are not recorded."""
    keys: Path | None = None
    """The file of API keys."""
    origins: list[str] = Field(default_factory=list)
    hosts: list[str] = Field(default_factory=list)
    addresses: bool = False
    """As for `heedful.serving.make_application`."""
    split_sentences: bool = True
    examples: bool = False
    log_requests: bool = False
    log_texts: bool = False
    engine: dict[str, str | None] = Field(default_factory=dict)
    """``engine`` and ``quantization``."""
    device: str = "auto"
    precision: str = "float32"
    threads: int | None = None
    """Threads of this process; PyTorch's default if None."""
    plugins: list[Path] = Field(default_factory=list)
    """Files of plug-ins."""
    limits: Limits = Field(default_factory=Limits)

    def load(self) -> "list[Served]":
        """Load the models.

        Raises:
            UserError: a run cannot be served.
        """
        from heedful.serving.loading import load_all

        return load_all(
            self.runs,
            self.languages,
            dict(self.engine),
            examples=self.examples,
            device=self.device,
            precision=self.precision,
        )

    def application(self, models: "list[Served]", shared: "Shared | None" = None) -> "FastAPI":
        """The application that serves loaded models.

        Raises:
            UserError: the file of keys cannot be read.
        """
        from heedful.serving.application import make_application
        from heedful.serving.keys import Keys

        return make_application(
            models,
            limits=self.limits,
            keys=None if self.keys is None else Keys.read(self.keys),
            origins=self.origins,
            hosts=self.hosts,
            addresses=self.addresses,
            log_requests=self.log_requests or self.log_texts,
            log_texts=self.log_texts,
            split_sentences=self.split_sentences,
            shared=shared,
        )

    def reload(self, application: "FastAPI", threads: int) -> Callable[[], None]:
        """Load the models and the keys again, in a thread other than the event loop's.

        Args:
            application: from `application`.
            threads: the number of threads of this process.

        Returns:
            A function that serves what was loaded; it is called in the event loop.

        Raises:
            UserError: a run or the file of keys cannot be read.
        """
        import torch

        from heedful.serving.keys import Keys

        torch.set_num_threads(threads)  # of this thread
        keys = None if self.keys is None else Keys.read(self.keys)
        return partial(_serve, application, self.load(), keys)


def _serve(application: Any, models: "list[Served]", keys: Any) -> None:
    application.state.models.replace(models)
    if keys is not None:
        application.state.keys.replace(keys)
