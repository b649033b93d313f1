"""Images: files that Pillow reads, data URIs, folders with a folder for each class, and IDX files.

Every image becomes an array of bytes of one size, and a PNG in a data URI, which needs no file.
"""

import io
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.readers.data_uris import bytes_in, data_of, folder_beside, of_table, uri_of
from heedful.data.readers.kinds import extension
from heedful.data.readers.labelled import read_labelled
from heedful.data.readers.opening import open_input

Colours = Literal["grey", "rgb"]
ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
"""The endings of images in folders."""
MOST_PIXELS = 1 << 26
"""Of one image; a small file can claim to be much larger."""
_IDX_BYTES = b"\0\0\x08"
_WIDE = ("I;16", "I;16B", "I;16L", "I", "F")
"""Pillow's modes of more than a byte for each value."""
_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    SyntaxError,
    struct.error,
    Image.DecompressionBombError,
)
"""What Pillow raises for files that are damaged or too large; it depends on the place."""
_CAPTIONS = "the settings data.image and data.caption"
"""What chooses the columns of a table with captions."""
_ORIENTATION = 0x0112
"""EXIF's tag of the orientation."""
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF's orientation → how the image is turned to be upright."""


class Form(NamedTuple):
    """The form that all images are brought into."""

    rows: int
    columns: int
    colours: Colours
    frames: int = 1
    """Frames of a clip, which are below each other; 1 for the first frame alone."""

    @property
    def channels(self) -> int:
        """1 for grey, 3 for colours."""
        return 1 if self.colours == "grey" else 3


def decoded(data: bytes, form: Form, where: str) -> NDArray[np.uint8]:
    """An image as ``[rows, columns, channels]``, or a clip as ``[frames · rows, …]``.

    Of a clip (animated GIF, WebP, PNG), as many frames as ``form`` has are taken at equal
    distances, the first and the last one among them. The largest part of the middle that has the
    shape of ``form`` is scaled to its size. Transparent parts become white. A photo is turned as
    its EXIF orientation says.

    Args:
        data: a file's bytes.
        form: the size and colours.
        where: the image, for messages.

    Raises:
        UserError: the bytes are not an image that can be read, or it is too large.
    """
    try:
        with _opened(data) as image:
            if image.width * image.height > MOST_PIXELS:
                raise UserError(
                    f"{where}: {image.width:,} × {image.height:,} pixels are too many; at most "
                    f"{MOST_PIXELS:,} in all"
                )
            if image.mode in _WIDE:
                raise UserError(f"{where}: more than 8 bits a value; convert the image to 8 bits")
            return np.concatenate([_in_form(one, form) for one in _frames(image, form, where)])
    except UnidentifiedImageError as error:
        raise UserError(f"{where}: not an image that can be read (PNG, JPEG, …)") from error
    except _DAMAGED as error:
        raise UserError(f"{where}: the image is damaged ({error}); save it again") from error


def _opened(data: bytes) -> Image.Image:
    """An image whose pixels are not read yet; EPS is refused, because Pillow would start another
    program to read it."""
    image = Image.open(io.BytesIO(data))
    if image.format == "EPS":
        raise UnidentifiedImageError("EPS is a program, not an image")
    return image


def _frames(image: Image.Image, form: Form, where: str) -> Iterator[Image.Image]:
    """The frames of a form; the image itself, if it has only one.

    Raises:
        UserError: the image has fewer.
    """
    count = getattr(image, "n_frames", 1)
    if count < form.frames:
        raise UserError(
            f"{where}: {count:,} frame{'s' * (count > 1)}, but a clip of this run has "
            f"{form.frames:,} (data.frames); use an animated GIF, WebP or PNG with as many"
        )
    for number in range(form.frames):
        if form.frames > 1:
            image.seek(round(number * (count - 1) / (form.frames - 1)))
        yield image


def _in_form(image: Image.Image, form: Form) -> NDArray[np.uint8]:
    # Pillow's exif_transpose also writes the other tags again, which fails for some photos.
    turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    turned = image if turn is None else image.transpose(turn)
    plain = _without_transparency(turned).convert("L" if form.channels == 1 else "RGB")
    if plain.size != (form.columns, form.rows):
        plain = ImageOps.fit(plain, (form.columns, form.rows), Image.Resampling.BILINEAR)
    return np.asarray(plain, np.uint8).reshape(form.rows, form.columns, form.channels)


def _without_transparency(image: Image.Image) -> Image.Image:
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image
    own = image.convert("RGBA")
    white = Image.new("RGBA", own.size, "white")
    white.alpha_composite(own)
    return white.convert("RGB")


def encoded(pixels: NDArray[np.uint8], frames: int = 1) -> str:
    """A PNG of ``pixels [rows, columns, channels]`` as a data URI; of several frames, an animated
    one of ``pixels [frames · rows, columns, channels]``."""
    own = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    first, *rest = (Image.fromarray(one) for one in np.split(own, frames))
    file = io.BytesIO()
    if rest:
        first.save(file, "png", save_all=True, append_images=rest)
    else:
        first.save(file, "png")
    return uri_of("image/png", file.getvalue())


def image_bytes(uri: str, where: str = "the image") -> bytes:
    """The bytes of an image in a data URI.

    Raises:
        UserError: it is not a data URI of an image in base64.
    """
    return data_of(uri, ("image/",), where)


def as_uri(path: str | Path) -> str:
    """The bytes of an image file as a data URI.

    Raises:
        UserError: the file cannot be read, or it is not an image.
    """
    data = bytes_in(path, "the image")
    try:
        with _opened(data) as image:
            kind = Image.MIME.get(image.format or "", "image/png")
    except _DAMAGED as error:
        raise UserError(f"{path}: not an image that can be read (PNG, JPEG, …)") from error
    return uri_of(kind, data)


def read_image(path: str | Path, form: Form) -> NDArray[np.uint8]:
    """The image in a file; see :func:`decoded`.

    Raises:
        UserError: the file cannot be read.
    """
    return decoded(bytes_in(path, "the image"), form, str(path))


class LabelledImage(NamedTuple):
    """An image, as the data URI of its file, with its label."""

    uri: str
    label: str
    where: str
    """The image, for messages."""


def read_images(
    path: str, *, image: str, label: str, encoding: str | None = None
) -> Iterator[LabelledImage]:
    """The labelled images of a file or a folder.

    A folder has a folder for each label. A table (CSV, TSV, JSON lines) has columns with the path
    of an image, relative to the table, or a data URI, and its label. An IDX file of images has its
    labels beside it, in a file with ``labels-idx1`` instead of ``images-idx3`` in its name (LeCun
    et al., MNIST).

    Args:
        path: the file, the folder, or ``-`` for standard input.
        image: the table's column of paths.
        label: the table's column of labels.
        encoding: of the table; UTF-8 by default.

    Raises:
        UserError: a file is missing or invalid.
    """
    if path != "-" and Path(path).is_dir():
        for one in image_files(path):
            yield LabelledImage(as_uri(one), one.parent.relative_to(path).as_posix(), str(one))
    elif "images-idx3" in Path(path).name:
        yield from _read_idx(Path(path))
    else:
        base = Path() if path == "-" else Path(path).parent
        choice = "the settings data.image and data.label"
        rows = read_labelled(
            path, text=(image,), label=label, encoding=encoding, unlabelled=None, choice=choice
        )
        for found in rows:
            [named] = found.texts
            uri, where = _named(named, base, path)
            yield LabelledImage(uri, found.label, where)


class CaptionedImage(NamedTuple):
    """The bytes of an image file as a data URI, and its captions."""

    uri: str
    captions: list[str]
    where: str
    """The image, for messages."""


def read_captioned(
    path: str, *, image: str, caption: str, folder: str = "", encoding: str | None = None
) -> Iterator[CaptionedImage]:
    """The images of a table (CSV, TSV, JSON lines) with a caption in each row.

    An image can have several rows, in which its path may be written in several ways (``a.png`` and
    ``./a.png``); it is returned where its first one is.

    Args:
        path: the table, or ``-`` for standard input.
        image: its column of paths.
        caption: its column of captions.
        folder: the folder that paths are relative to, itself relative to the table or to the
            current folder; by default, the table's.
        encoding: of the table; UTF-8 by default.

    Raises:
        UserError: a file is missing or invalid.
    """
    base = folder_beside(path, folder)
    found: dict[str, tuple[str, list[str]]] = {}
    rows = read_labelled(
        path, text=(image,), label=caption, encoding=encoding, unlabelled=None, choice=_CAPTIONS
    )
    for row in rows:
        name = row.texts[0]
        key = name if name.startswith("data:") else os.path.normpath(base / name)
        found.setdefault(key, (name, []))[1].append(row.label)
    for name, captions in found.values():
        uri, where = _named(name, base, path)
        yield CaptionedImage(uri, captions, where)


def _named(name: str, base: Path, table: str) -> tuple[str, str]:
    """The data URI of an image that a table names, and its name for messages."""
    if name.startswith("data:"):
        return name, f"an image in {table}"
    return of_table(table, as_uri, base / name), str(base / name)


def notice_uncaptioned(
    tables: Sequence[str], image: str, caption: str, folder: str, encoding: str | None = None
) -> None:
    """Count the images of a folder that no row names, in a notice; nothing without a folder.

    The arguments are those of :func:`read_captioned`.

    Raises:
        UserError: a file is missing or invalid.
    """
    if not folder:
        return
    bases: set[Path] = set()
    named: set[Path] = set()
    for table in tables:
        base = folder_beside(table, folder).resolve()
        bases.add(base)
        rows = read_labelled(
            table,
            text=(image,),
            label=caption,
            encoding=encoding,
            unlabelled=None,
            choice=_CAPTIONS,
        )
        named.update((base / row.texts[0]).resolve() for row in rows)
    there = [one for base in bases for one in base.rglob("*") if extension(str(one)) in ENDINGS]
    left = sorted(one for one in there if one not in named)
    if left:
        notice(f"{len(left):,} of {len(there):,} images have no caption, such as {left[0]}")


def image_files(folder: str | Path) -> list[Path]:
    """The images in the folders of a folder, in order of their paths.

    Raises:
        UserError: there is none, or one is in no folder of its own.
    """
    found = sorted(one for one in Path(folder).rglob("*") if extension(str(one)) in ENDINGS)
    if not found:
        raise UserError(f"{folder}: no images ({', '.join(ENDINGS)}) in this folder")
    beside = [one for one in found if one.parent == Path(folder)]
    if beside:
        raise UserError(
            f"{beside[0]}: not in a folder with the name of its label; move it into one"
        )
    return found


def _read_idx(path: Path) -> Iterator[LabelledImage]:
    beside = _labels_beside(path)
    images, labels = _idx(path, 3), _idx(beside, 1)
    if len(images) != len(labels):
        raise UserError(f"{path} has {len(images):,} images, but {beside} {len(labels):,} labels")
    rows, columns = images.shape[1:]
    head = f"P5 {columns} {rows} 255\n".encode()  # a PNG would take ten times as long
    for pixels, label in zip(images, labels, strict=True):
        uri = uri_of("image/x-portable-graymap", head + pixels.tobytes())
        yield LabelledImage(uri, str(label), str(path))


def _labels_beside(path: Path) -> Path:
    """The file of the labels of an IDX file of images; each may be packed in its own way."""
    plain = path.name.removesuffix(".gz").removesuffix(".xz")
    name = plain.replace("images-idx3", "labels-idx1")
    for packing in ("", ".gz", ".xz"):
        found = path.with_name(name + packing)
        if found.is_file():
            return found
    raise UserError(f"{path}: its labels, {name}, are not beside it")


def _idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array in an IDX file of bytes, plain, gzip or xz."""
    with open_input(path) as file:
        data = b"".join(file.chunks())
    start = 4 + 4 * dimensions
    if not data.startswith(_IDX_BYTES) or data[3:4] != bytes([dimensions]) or len(data) < start:
        raise UserError(f"{path}: not an IDX file of bytes with {dimensions} dimensions")
    sizes = struct.unpack(f">{dimensions}I", data[4:start])
    values = np.frombuffer(data, np.uint8, offset=start)
    if values.size != int(np.prod(sizes, dtype=np.int64)):
        raise UserError(f"{path}: {values.size:,} values, but the sizes {sizes}; copy it again")
    return values.reshape(sizes)
