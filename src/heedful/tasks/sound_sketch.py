"""Recordings of models on paper, for all tasks with recordings."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.data.sound_features import SoundFeatures

_SECONDS = 5.0
"""Of a recording, unless a length is given."""
CHARACTERS = 15
"""Of a second of speech."""
SYMBOLS = 46
"""Of a vocabulary of characters: letters, digits, a space, some punctuation, four fixed symbols."""


def frames_in(seconds: float, features: "SoundFeatures") -> int:
    """Frames of so many seconds, one for each step and one more.

    Example:
        >>> from heedful.data.sound_features import SoundFeatures
        >>> frames_in(5.0, SoundFeatures())
        501
    """
    return int(seconds / features.step) + 1


def usual_frames(longest: float, features: "SoundFeatures") -> int:
    """Frames of a recording, unless a length is given; ``longest`` is in seconds."""
    return frames_in(min(_SECONDS, longest), features)


def tokens_in(frames: int, features: "SoundFeatures", rate: float, most: int) -> int:
    """Tokens of the text of so many frames.

    Args:
        frames: of the recording.
        features: how sounds become frames.
        rate: tokens of a second.
        most: the largest number.

    Returns:
        From 1 to ``most``.

    Example:
        >>> from heedful.data.sound_features import SoundFeatures
        >>> tokens_in(501, SoundFeatures(), CHARACTERS, 200)
        75
    """
    return min(max(1, round(frames * features.step * rate)), most)


def described(features: "SoundFeatures", rate: float, tokens: str) -> str:
    """What the length of a recording counts, as text.

    Example:
        >>> from heedful.data.sound_features import SoundFeatures
        >>> described(SoundFeatures(), CHARACTERS, "characters")
        'frames of 10 ms, with 15 characters a second'
    """
    return f"frames of {1000 * features.step:g} ms, with {rate:g} {tokens} a second"
