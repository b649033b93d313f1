"""What a server takes on."""

from pydantic import Field

from heedful.basics.settings import Settings


class Limits(Settings):
    """Settings that keep a server answering under load.

    Raises:
        ValueError: one is out of range.
    """

    connections: int = Field(default=512, ge=1)
    """Connections at a time; further ones are told to come again (503)."""
    head_timeout: float = Field(default=10.0, gt=0.0)
    """Seconds within which a request's head has to come."""
    queue: int = Field(default=256, ge=1)
    """Requests that may wait or be worked on; further ones are told to come again (429)."""
    gather_ms: float = Field(default=5.0, ge=0.0, le=1000.0)
    """Milliseconds that a request waits for others to go through the model with it."""
    body: int = Field(default=2 << 20, ge=1)
    """Bytes of a request's body."""
    bodies: int = Field(default=64 << 20, ge=1)
    """Bytes of all bodies at a time, beyond the first 64 KiB of each, of requests without a good
    key in their head."""
    characters: int = Field(default=100_000, ge=1)
    """Characters of all texts of a request."""
    texts: int = Field(default=1_000, ge=1)
    """Texts of a request."""
    answer: int = Field(default=16 << 20, ge=1)
    """Bytes of an answer of ``/api/translate``, before compression."""
    timeout: float = Field(default=60.0, gt=0.0)
    """Seconds after which a request is given up (504)."""
    job_time: float = Field(default=10.0, gt=0.0)
    """Seconds that work which goes alone (a trace, other words, a text that is written) may take
    while other requests wait."""
    hypotheses: int = Field(default=16, ge=1)
    """The widest beam, and the most translations of one text."""
    tokens: int = Field(default=1_024, ge=1)
    """The most tokens that are written after a prompt."""
    grace: float = Field(default=30.0, ge=0.0)
    """Seconds that requests in hand have to finish when the server stops."""
