"""One image of any kind -> a small picture that every browser shows."""

import io
from dataclasses import replace

from PIL import Image

from saas_ssl.images.form import LARGEST_COMMON_SIZE, Form
from saas_ssl.images.pixels import GREY, Encoded, converted, upright


def as_picture(source: Encoded, side: int, white: int = 255) -> tuple[bytes, str]:
    """(A file that every browser shows, its media type): the whole image, no side above `side`.

    Made anew from the pixels, so that nothing else that a file may hold gets through. To be called
    within `only_bombs_noticed`.
    """
    form = Form(side, side, 3, white)
    image = upright(source, form)[0]
    image = converted(image, replace(form, channels=1 if image.mode in GREY else 3))
    image.thumbnail((side, side), Image.Resampling.BICUBIC, reducing_gap=2.0)
    image.info.clear()  # comments, profiles, whatever the file said besides
    buffer = io.BytesIO()
    if max(image.size) <= LARGEST_COMMON_SIZE:  # every pixel counts
        image.save(buffer, "PNG", optimize=True)
        return buffer.getvalue(), "image/png"
    image.save(buffer, "JPEG", quality=80)
    return buffer.getvalue(), "image/jpeg"
