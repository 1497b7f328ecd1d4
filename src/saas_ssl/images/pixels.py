"""One image of any kind -> uint8 pixels of a given form.

Imports no torch, and numpy only for the images that need it: workers start fast.
"""

import io
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from saas_ssl.images.form import Form, Seen

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Array(Protocol):
    """A numpy array, or what can pass for one."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


Encoded = str | Path | bytes | Image.Image | Array
"""A file, its bytes, an opened image, or an array (H, W) or (H, W, C)."""

EXTENSIONS = (
    ".jpg",
    ".jpeg",
    ".jpe",
    ".jfif",
    ".png",
    ".webp",
    ".bmp",
    ".dib",
    ".tif",
    ".tiff",
    ".gif",
)
# Nothing else is tried: some of Pillow's readers start other programs.
# Importing these readers by name also spares each worker the import of all the others.
_FORMATS = tuple(
    reader.format
    for reader in (
        JpegImagePlugin.JpegImageFile,
        PngImagePlugin.PngImageFile,
        WebPImagePlugin.WebPImageFile,
        BmpImagePlugin.BmpImageFile,
        TiffImagePlugin.TiffImageFile,
        GifImagePlugin.GifImageFile,
    )
)
GREY = frozenset({"1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N", "F"})
_DEEP = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N", "F"})
_WHITES = (255, 1023, 4095, 16383, 65535)  # cameras of 10, 12 and 14 bits write files of 16

_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

_SWAPPING = frozenset(
    {
        Image.Transpose.TRANSPOSE,
        Image.Transpose.TRANSVERSE,
        Image.Transpose.ROTATE_90,
        Image.Transpose.ROTATE_270,
    }
)
_LARGEST_FILE = 1 << 29


class BadImageError(Exception):
    """An image that cannot be used; the message is the reason, for people."""


@dataclass(frozen=True)
class Decoded:
    """A chunk of images, decoded."""

    form: Form
    lines: bytes  # (n, H, C, W): those that could be used, in order
    bad: dict[int, str]  # place in the chunk -> why that image was not
    seen: Seen

    @cached_property
    def pixels(self) -> "NDArray[np.uint8]":
        """(n, C, H, W)"""
        import numpy as np

        shape = (-1, self.form.height, self.form.channels, self.form.width)
        lines = np.frombuffer(self.lines, np.uint8).reshape(shape)
        return lines.transpose(0, 2, 1, 3).copy()


def decode_chunk(images: Sequence[Encoded], form: Form) -> Decoded:
    """Decode what can be decoded, and say why the rest cannot."""
    lines, bad, kinds = list[bytes](), dict[int, str](), set[Seen]()
    with only_bombs_noticed():
        for place, source in enumerate(images):
            try:
                image, one = upright(source, form)
                lines.append(_lines(image, form))
            except Exception as error:  # decoders of broken files raise anything
                bad[place] = _reason(error)
            else:
                kinds.add(one)
    return Decoded(form, b"".join(lines), bad, reduce(or_, kinds, Seen()))


def look(images: Sequence[Encoded]) -> Seen:
    """What the readable ones among these are."""
    seen = Seen()
    for source in images:
        with suppress(Exception), only_bombs_noticed():  # decoding will tell what is wrong
            seen |= upright(source, None)[1]
    return seen


def upright(source: Encoded, form: Form | None) -> tuple[Image.Image, Seen]:
    """Open and load one image, turned as its EXIF data say, and what it is."""
    image = _open(source)
    width, height = image.size
    side = 2 * max(form.height, form.width) if form is not None else min(width, height)
    if min(width, height) >= 2 * side:  # JPEG files decode at a half or less for much less
        image.draft(None, (side, side))  # None: keep the mode
    image.load()  # this turns TIFF files, and removes their orientation
    try:
        turn = _UPRIGHT.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # a good image with broken EXIF data
        turn = None
    if turn is not None:
        image = image.transpose(turn)
        if turn in _SWAPPING:
            width, height = height, width
    white = 255
    if image.mode in _DEEP:
        brightest = float(_values(image).max())
        white = next((white for white in _WHITES if brightest <= white), _WHITES[-1])
    return image, Seen(frozenset({(height, width)}), image.mode not in GREY, white)


def _open(source: Encoded) -> Image.Image:
    if isinstance(source, Image.Image):
        return source.copy()  # loading changes it
    if isinstance(source, str | Path):
        with open(source, "rb") as file:
            if os.fstat(file.fileno()).st_size > _LARGEST_FILE:
                raise BadImageError("the file is larger than 512 MB")
            source = file.read()
    if not isinstance(source, bytes):
        return Image.fromarray(source)
    if not source:
        raise BadImageError("the file is empty")
    return Image.open(io.BytesIO(source), formats=_FORMATS)


@contextmanager
def only_bombs_noticed() -> Iterator[None]:
    """More pixels than Pillow's limit is an error; what else it warns of is no concern."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _lines(image: Image.Image, form: Form) -> bytes:
    """Bring an upright image to the form: its short side scaled, its centre kept."""
    image = converted(image, form)
    if image.size != (form.width, form.height):
        width, height = image.size
        scale = min(width / form.width, height / form.height)
        across, down = (width - scale * form.width) / 2, (height - scale * form.height) / 2
        image = image.resize(
            (form.width, form.height),
            Image.Resampling.BICUBIC,
            (across, down, width - across, height - down),
            reducing_gap=2.0,
        )
    return image.tobytes("raw", "L" if form.channels == 1 else "RGB;L")  # ;L: (H, C, W)


def converted(image: Image.Image, form: Form) -> Image.Image:
    """Any mode -> 8-bit grey or colour; what is transparent shows white."""
    if image.mode in _DEEP:
        deep = _values(image)
        # Floating-point images up to 1 have their white there.
        white = 1.0 if image.mode == "F" and deep.max() <= 1.0 else float(form.white)
        scaled = (deep * (255.0 / white)).clip(0.0, 255.0).round()
        image = Image.fromarray(scaled.astype("uint8"))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white_sheet = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white_sheet, image)
    mode = "L" if form.channels == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _values(image: Image.Image) -> "NDArray[np.float32]":
    """The numbers of a deep image; pixels without a value are black."""
    import numpy as np

    values = np.asarray(image).astype(np.float32)
    return np.nan_to_num(values, copy=False, posinf=0.0, neginf=0.0)


def _reason(error: Exception) -> str:
    """Why an image was skipped, without the addresses and paths that libraries put in."""
    if isinstance(error, BadImageError):
        return str(error)
    if isinstance(error, Image.DecompressionBombWarning | Image.DecompressionBombError):
        return f"the image has more than {Image.MAX_IMAGE_PIXELS or 0:,} pixels"
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known kind, or broken from its first bytes on"
    if isinstance(error, MemoryError):
        return "the image does not fit into memory"
    if isinstance(error, FileNotFoundError):
        return "the file does not exist"
    if isinstance(error, OSError) and error.errno is not None:
        return f"the file cannot be read: {error.strerror}"
    return f"broken image: {' '.join(str(error).split())[:200] or type(error).__name__}"
