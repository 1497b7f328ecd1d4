import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from saas_ssl.images.pictures import as_picture
from saas_ssl.images.pixels import only_bombs_noticed
from samples import encoded, picture, turned


def test_pictures_are_small_and_whole(tmp_path: Path) -> None:
    """No side is longer than asked for, nothing is cut off, and 16 bits become 8."""
    wide = encoded(picture(100, 400), "JPEG", exif=turned(6))
    deep = encoded(Image.fromarray(np.full((80, 80), 4095 * 16, np.uint16)))
    clear = encoded(Image.new("RGBA", (100, 100), (0, 0, 0, 0)))
    with only_bombs_noticed():
        data, kind = as_picture(wide, 96)
        assert (Image.open(io.BytesIO(data)).size, kind) == ((24, 96), "image/jpeg")
        grey = Image.open(io.BytesIO(as_picture(deep, 96, white=65535)[0]))
        assert grey.getpixel((40, 40)) == pytest.approx(255, abs=2)
        white = Image.open(io.BytesIO(as_picture(clear, 96)[0]))
        assert white.convert("L").getextrema() == (255, 255)
