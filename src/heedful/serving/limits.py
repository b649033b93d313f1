"""The limits of a server."""

from pydantic import Field

from heedful.basics.settings import Settings

MEDIA_BODY = 24 << 20
"""Maximum bytes of a request body if a model reads images or sounds, unless one is given."""


class Limits(Settings):
    """Settings that keep a server responsive under load.

    Raises:
        ValueError: a value is out of range.
    """

    connections: int = Field(default=512, ge=1)
    """Maximum open connections; further ones get status 503."""
    head_timeout: float = Field(default=10.0, gt=0.0)
    """Seconds to wait for the headers of a request."""
    queue: int = Field(default=256, ge=1)
    """Maximum waiting and running requests; further ones get status 429."""
    gather_ms: float = Field(default=5.0, ge=0.0, le=1000.0)
    """Milliseconds that a request waits for others to share its batch."""
    body: int = Field(default=2 << 20, ge=1)
    """Maximum bytes of a request body; by default, :data:`MEDIA_BODY` if a model reads images or
    sounds."""
    bodies: int = Field(default=64 << 20, ge=1)
    """Maximum bytes of all bodies at a time. It counts the bytes beyond the first 64 KiB of each
    body, for requests without a valid key in their headers."""
    characters: int = Field(default=100_000, ge=1)
    """Maximum characters in all texts of a request. Images and sounds do not count."""
    texts: int = Field(default=1_000, ge=1)
    """Maximum texts in a request."""
    answer: int = Field(default=16 << 20, ge=1)
    """Maximum bytes of a response of ``/api/translate``, before compression."""
    files: int = Field(default=64 << 20, ge=1)
    """Maximum bytes of all translated files that wait to be downloaded."""
    file_time: float = Field(default=1800.0, gt=0.0)
    """Seconds after which a translated file is deleted."""
    timeout: float = Field(default=60.0, gt=0.0)
    """Seconds after which a request is cancelled (504)."""
    job_time: float = Field(default=10.0, gt=0.0)
    """Maximum seconds of a job (a trace, alternatives, a generated text) while other requests
    wait."""
    hypotheses: int = Field(default=16, ge=1)
    """Maximum beam, and maximum translations of one text."""
    tokens: int = Field(default=1_024, ge=1)
    """Maximum tokens generated after a prompt."""
    grace: float = Field(default=30.0, ge=0.0)
    """Seconds to finish running requests at shutdown."""
