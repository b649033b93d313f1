"""Pictures and sounds of the axes of a trace: PNG and WAV bytes, checked.

A trace may be untrusted, so sizes are limited and headers are checked before anything is drawn.
"""

import io
import struct
import wave
import zlib
from dataclasses import dataclass, field

import torch
from torch import Tensor

PNG, WAV = "image/png", "audio/wav"
MOST_BYTES = 16 << 20
"""Of one medium."""
MOST_PIXELS = 4096
"""Of a side of a picture."""
MOST_SAMPLES = (MOST_BYTES - 44) // 2
"""Of a sound: what its header leaves, in samples of 16 bits."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = struct.Struct(">4sIIBBBBB")


@dataclass(frozen=True)
class Media:
    """A picture or a sound.

    Args:
        type: ``image/png`` or ``audio/wav``.
        data: the file's bytes, at most 16 MiB.

    Raises:
        ValueError: the type is unknown, or the bytes are not such a file or too large.
    """

    type: str
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if self.type not in (PNG, WAV):
            raise ValueError(
                f"unknown type of media {self.type!r}; known types are {PNG} and {WAV}"
            )
        if len(self.data) > MOST_BYTES:
            raise ValueError(f"{len(self.data):,} bytes of {self.type}; at most {MOST_BYTES:,}")
        _ = self.size if self.type == PNG else self.seconds

    @classmethod
    def picture(cls, pixels: Tensor) -> "Media":
        """A PNG of ``pixels``: grey ``[rows, columns]``, or ``[rows, columns, 3]`` in RGB.

        Args:
            pixels: from 0 to 1, or uint8 from 0 to 255.

        Raises:
            ValueError: the shape is wrong, or the picture is too large.
        """
        if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
            raise ValueError(
                f"pixels has shape {list(pixels.shape)}: expected [rows, columns] or "
                "[rows, columns, 3]"
            )
        if pixels.dtype != torch.uint8:
            pixels = (pixels.detach().float().clamp(0, 1) * 255).round().to(torch.uint8)
        rows, columns = pixels.shape[:2]
        lines = pixels.cpu().reshape(rows, -1)
        # Each line begins with the number of its filter: none.
        raw = torch.cat([torch.zeros(rows, 1, dtype=torch.uint8), lines], 1).numpy().tobytes()
        colour = 0 if pixels.ndim == 2 else 2
        header = struct.pack(">IIBBBBB", columns, rows, 8, colour, 0, 0, 0)
        parts = ((b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b""))
        return cls(PNG, _SIGNATURE + b"".join(_chunk(*part) for part in parts))

    @classmethod
    def small_picture(cls, pixels: Tensor) -> "Media":
        """As :meth:`picture`, but of each n-th row and column if there are too many."""
        step = 1
        while max(pixels[::step, ::step].shape[:2]) > MOST_PIXELS or (
            pixels[::step, ::step].numel() > MOST_BYTES - MOST_BYTES // 64  # as noise compresses
        ):
            step += 1
        return cls.picture(pixels[::step, ::step])

    @classmethod
    def sound(cls, samples: Tensor, rate: int) -> "Media":
        """A WAV of one channel, 16 bits a sample.

        Args:
            samples: ``[N]``, from -1 to 1.
            rate: samples per second.
        """
        values = (samples.detach().float().cpu().clamp(-1, 1) * 32767).round().to(torch.int16)
        file = io.BytesIO()
        with wave.open(file, "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(rate)
            out.writeframes(values.numpy().astype("<i2").tobytes())
        return cls(WAV, file.getvalue())

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of a picture, in pixels.

        Raises:
            ValueError: the header is not that of a PNG, or a side is too long.
        """
        start = len(_SIGNATURE) + 4
        if not self.data.startswith(_SIGNATURE) or len(self.data) < start + _HEADER.size + 4:
            raise ValueError("a picture is not a PNG")
        name, columns, rows, *_ = _HEADER.unpack_from(self.data, start)
        length, check = self.data[start - 4 : start], self.data[start + _HEADER.size :][:4]
        own = struct.pack(">I", zlib.crc32(self.data[start : start + _HEADER.size]))
        if name != b"IHDR" or length != b"\0\0\0\r" or check != own:
            raise ValueError("a picture is a damaged PNG")
        if not (1 <= rows <= MOST_PIXELS and 1 <= columns <= MOST_PIXELS):
            raise ValueError(f"a picture of {rows:,} × {columns:,}; at most {MOST_PIXELS:,} a side")
        return rows, columns

    @property
    def seconds(self) -> float:
        """Duration of a sound in seconds.

        Raises:
            ValueError: the bytes are not a PCM WAV file, or it is shorter than its header says.
        """
        if self.data[:4] != b"RIFF" or self.data[8:12] != b"WAVE":
            raise ValueError("a sound is not a WAV")
        try:
            with wave.open(io.BytesIO(self.data)) as file:
                frames, rate = file.getnframes(), file.getframerate()
                width = file.getsampwidth() * file.getnchannels()
        except (wave.Error, EOFError) as error:
            raise ValueError(f"a sound is a damaged WAV, or not PCM: {error}") from error
        if not rate or not frames or frames * width > len(self.data):
            raise ValueError("a sound is a damaged WAV: its header does not fit its size")
        length: float = frames / rate
        return length


def _chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)
