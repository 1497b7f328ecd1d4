import io
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from saas_ssl.images.form import Form, Seen
from saas_ssl.images.pixels import Encoded, decode_chunk, look
from saas_ssl.images.pool import CHUNK, in_chunks
from saas_ssl.sources.reading import read, read_source
from saas_ssl.sources.source import Source, class_names
from samples import Bytes, encoded, noise, picture, plain, turned, write

RGB8 = Form(8, 8, 3)
GREY8 = Form(8, 8, 1)

LOSSLESS = [
    ("PNG", {}),
    ("BMP", {}),
    ("TIFF", {}),
    ("TIFF", {"compression": "tiff_lzw"}),
    ("TIFF", {"compression": "tiff_adobe_deflate"}),
    ("TIFF", {"compression": "packbits"}),
    ("WEBP", {"lossless": True}),
]


def pixels_of(image: Encoded, form: Form) -> Bytes:
    decoded = decode_chunk([image], form)
    assert decoded.bad == {}
    (pixels,) = decoded.pixels
    return np.asarray(pixels, np.uint8)


def rgb(image: Image.Image) -> Bytes:
    """What the pixels should be, by Pillow alone."""
    pixels: Bytes = np.asarray(image.convert("RGB"))
    return pixels.transpose(2, 0, 1)


def source_of(images: list[Encoded]) -> Source:
    labels = ["ab"[row % 2] for row in range(len(images))]
    ids = [str(row) for row in range(len(images))]
    return Source(ids, labels, class_names(labels), in_chunks(images))


def form_of(images: list[Encoded], image_size: int | None = None) -> Form:
    form = read_source(source_of(images), image_size).form
    assert form is not None
    return form


@pytest.mark.parametrize(("kind", "options"), LOSSLESS)
def test_lossless_kinds_keep_every_pixel(kind: str, options: dict[str, object]) -> None:
    image = picture()
    assert (pixels_of(encoded(image, kind, **options), RGB8) == rgb(image)).all()


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_lossy_kinds_stay_close(kind: str) -> None:
    smooth = picture(2, 2).resize((8, 8), Image.Resampling.BILINEAR)
    found = pixels_of(encoded(smooth, kind, quality=95), RGB8).astype(int)
    assert np.abs(found - rgb(smooth)).mean() < 12


def test_a_gif_shows_its_first_frame() -> None:
    red, blue = Image.new("RGB", (8, 8), "red"), Image.new("RGB", (8, 8), "blue")
    data = encoded(red, "GIF", save_all=True, append_images=[blue])
    assert (pixels_of(data, RGB8) == rgb(red)).all()


def test_a_jpeg_of_several_pictures_shows_its_first() -> None:
    # Telephones write these, which Pillow calls MPO.
    red, blue = Image.new("RGB", (8, 8), "red"), Image.new("RGB", (8, 8), "blue")
    data = encoded(red, "MPO", save_all=True, append_images=[blue])
    assert pixels_of(data, RGB8)[0].min() > 240


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr"])
def test_opaque_modes_look_as_pillow_shows_them(mode: str) -> None:
    image = picture(mode=mode)
    data = encoded(image, "TIFF")
    assert np.abs(pixels_of(data, RGB8).astype(int) - rgb(image)).max() <= 2


@pytest.mark.parametrize(
    ("mode", "colour"), [("1", False), ("L", False), ("LA", False), ("P", True), ("RGBA", True)]
)
def test_grey_modes_are_told_from_colour(mode: str, colour: bool) -> None:
    assert look([encoded(picture(mode=mode), "PNG")]).colour is colour


def test_a_jpeg_of_printing_colours_is_not_inverted() -> None:
    white = Image.new("CMYK", (8, 8), (0, 0, 0, 0))
    assert pixels_of(encoded(white, "JPEG", quality=95), RGB8).min() > 245


def palette_with_a_hole() -> Image.Image:
    image = Image.new("P", (8, 8), 0)
    image.putpalette([0, 0, 0, 10, 200, 30])
    image.paste(1, (4, 0, 8, 8))
    return image


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_what_is_transparent_in_a_palette_shows_white(kind: str) -> None:
    found = pixels_of(encoded(palette_with_a_hole(), kind, transparency=0), RGB8)
    assert (found[:, :, :4] == 255).all()
    assert found[:, 0, 7].tolist() == [10, 200, 30]


def test_a_palette_without_transparency_is_not_whitened() -> None:
    found = pixels_of(encoded(palette_with_a_hole(), "PNG"), RGB8)
    assert (found[:, :, :4] == 0).all()


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_what_is_transparent_in_colour_shows_white(kind: str) -> None:
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    image.paste((200, 0, 0, 255), (4, 0, 8, 8))
    image.paste((0, 0, 0, 128), (0, 4, 4, 8))
    options = {"lossless": True} if kind == "WEBP" else {}
    found = pixels_of(encoded(image, kind, **options), RGB8)
    assert (found[:, :4, :4] == 255).all()
    assert (found[:, 4:, :4] == 127).all()  # half black, half the white sheet
    assert found[:, 0, 7].tolist() == [200, 0, 0]


def test_what_is_transparent_in_grey_shows_white_and_stays_grey() -> None:
    image = Image.new("LA", (8, 8), (0, 0))
    image.paste((90, 255), (4, 0, 8, 8))
    data = encoded(image, "PNG")
    assert form_of([data, data]).channels == 1
    assert pixels_of(data, GREY8)[0, 0].tolist() == [255] * 4 + [90] * 4


def sixteen_bits(kind: str, brightest: int) -> bytes:
    values = np.linspace(0, brightest, 64).round().astype(np.uint16).reshape(8, 8)
    return encoded(Image.fromarray(values), kind)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize(
    ("brightest", "white"), [(200, 255), (1023, 1023), (3900, 4095), (16000, 16383), (40000, 65535)]
)
def test_deep_images_have_the_white_of_their_camera(kind: str, brightest: int, white: int) -> None:
    data = sixteen_bits(kind, brightest)
    form = form_of([data, data])
    assert form == Form(8, 8, 1, white)
    expected = np.linspace(0, brightest, 64).round() * 255 / white
    assert np.abs(pixels_of(data, form).reshape(-1) - expected).max() <= 0.51


def test_the_white_is_that_of_the_whole_set() -> None:
    # Each by its own brightest pixel would make a dark photo as bright as a bright one.
    dark, bright = sixteen_bits("PNG", 900), sixteen_bits("TIFF", 4000)
    many: list[Encoded] = [*[dark] * CHUNK, bright, dark]
    reading = read_source(source_of(many))
    assert reading.form == Form(8, 8, 1, 4095)
    assert int(reading.data.x[0].max()) == round(900 * 255 / 4095)
    assert int(reading.data.x[CHUNK].max()) == round(4000 * 255 / 4095)


@pytest.mark.parametrize(("top", "white"), [(1.0, 1.0), (200.0, 255.0), (4000.0, 4095.0)])
def test_images_of_floating_point_numbers_are_scaled(top: float, white: float) -> None:
    values = np.linspace(0, top, 64, dtype=np.float32).reshape(8, 8)
    data = encoded(Image.fromarray(values), "TIFF")
    found = pixels_of(data, form_of([data, data]))
    assert np.abs(found.reshape(-1) - values.reshape(-1) * (255 / white)).max() <= 0.51


def test_pixels_without_a_value_are_black_and_do_not_change_the_white() -> None:
    values = np.full((8, 8), 0.5, np.float32)
    values[0, :3] = np.nan, np.inf, -np.inf
    data = encoded(Image.fromarray(values), "TIFF")
    form = form_of([data, data])
    assert form.white == 255
    found = pixels_of(data, form)[0]
    assert found[0, :3].tolist() == [0, 0, 0]
    assert (found[1:] == 128).all()


QUARTERS = np.repeat(
    np.repeat(np.array([[0, 80], [160, 255], [30, 120]], np.uint8), 16, axis=0), 16, axis=1
)
"""48 x 32 of six greys, so that no two turns look the same."""

UPRIGHT = {
    1: QUARTERS,
    2: QUARTERS[:, ::-1],
    3: QUARTERS[::-1, ::-1],
    4: QUARTERS[::-1],
    5: QUARTERS.T,
    6: np.rot90(QUARTERS, -1),
    7: np.rot90(QUARTERS, 2).T,
    8: np.rot90(QUARTERS, 1),
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
def test_photos_are_turned_upright(kind: str, orientation: int) -> None:
    options = {"quality": 95} if kind == "JPEG" else {}
    data = encoded(Image.fromarray(QUARTERS), kind, exif=turned(orientation), **options)
    upright = UPRIGHT[orientation]
    form = form_of([data, data])
    assert (form.height, form.width) == upright.shape
    assert np.abs(pixels_of(data, form)[0].astype(int) - upright).max() <= 4


@pytest.mark.parametrize("orientation", [0, 9, 200])
def test_an_unknown_orientation_turns_nothing(orientation: int) -> None:
    data = encoded(Image.fromarray(QUARTERS), "PNG", exif=turned(orientation))
    assert (pixels_of(data, Form(48, 32, 1))[0] == QUARTERS).all()


def thirds(width: int, height: int) -> Image.Image:
    image = Image.new("L", (width, height), 0)
    image.paste(120, (width // 3, 0, 2 * width // 3, height))
    image.paste(255, (2 * width // 3, 0, width, height))
    return image


def test_of_a_wide_image_the_centre_is_kept() -> None:
    found = pixels_of(encoded(thirds(300, 100)), Form(20, 20, 1))[0]
    assert (found[:, 2:-2] == 120).all()  # only the resampling at its edges sees the others


def test_of_a_high_image_the_centre_is_kept() -> None:
    tall = thirds(300, 100).transpose(Image.Transpose.ROTATE_90)
    found = pixels_of(encoded(tall), Form(20, 20, 1))[0]
    assert (found[2:-2] == 120).all()


def test_the_short_side_is_scaled_not_cropped() -> None:
    found = pixels_of(encoded(thirds(90, 90)), Form(30, 30, 1))[0]
    assert found[15, [3, 15, 26]].tolist() == [0, 120, 255]


def test_a_small_image_is_enlarged() -> None:
    assert (pixels_of(encoded(plain(77, 3, 5)), Form(32, 32, 1)) == 77).all()


def test_a_line_of_one_pixel_is_an_image_too() -> None:
    assert (pixels_of(encoded(plain(77, 500, 1)), Form(32, 32, 1)) == 77).all()


@pytest.mark.parametrize(
    ("sizes", "image_size", "expected"),
    [
        ([(40, 40), (40, 40)], None, (40, 40)),
        ([(24, 60), (24, 60)], None, (24, 60)),
        ([(64, 64), (64, 64)], None, (64, 64)),
        ([(64, 65), (64, 65)], None, (32, 32)),
        ([(40, 40), (40, 41)], None, (32, 32)),
        ([(40, 41), (41, 40)], None, (32, 32)),
        ([(40, 40), (40, 40)], 20, (20, 20)),
        ([(200, 100), (30, 80)], 48, (48, 48)),
    ],
)
def test_the_default_size_is_a_small_common_one_or_32(
    sizes: list[tuple[int, int]], image_size: int | None, expected: tuple[int, int]
) -> None:
    images: list[Encoded] = [encoded(plain(50, *size)) for size in sizes]
    form = form_of(images, image_size)
    assert (form.height, form.width) == expected
    assert read_source(source_of(images), image_size).data.x.shape == (2, 1, *expected)


@pytest.mark.parametrize("late", [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK + 3])
def test_one_colour_image_gives_all_three_channels(late: int) -> None:
    images: list[Encoded] = [encoded(plain(row)) for row in range(2 * CHUNK + 9)]
    images[late] = encoded(Image.new("RGB", (8, 8), (200, 100, 0)))
    data = read_source(source_of(images)).data
    assert data.x.shape == (len(images), 3, 8, 8)
    assert data.x[late, :, 0, 0].tolist() == [200, 100, 0]
    others = [row for row in range(len(images)) if row != late]
    assert data.x[others].amin(dim=(1, 2, 3)).tolist() == others  # each row is still its own image


def test_a_late_image_of_another_size_changes_them_all() -> None:
    # What was written at 60 x 60 is longer than all that is to come.
    images: list[Encoded] = [encoded(plain(row, 60, 60)) for row in range(CHUNK + 1)]
    images[CHUNK] = encoded(plain(CHUNK, 9, 9))
    data = read_source(source_of(images)).data
    assert data.x.shape == (CHUNK + 1, 1, 32, 32)
    assert data.x[:, 0, 5, 5].tolist() == list(range(CHUNK + 1))


def test_bad_images_of_later_chunks_are_the_right_ones() -> None:
    images: list[Encoded] = [encoded(plain(row)) for row in range(2 * CHUNK + 1)]
    bad = [3, CHUNK, CHUNK + 7, 2 * CHUNK]
    for row in bad:
        images[row] = b""
    reading = read_source(source_of(images))
    assert reading.skipped == [(str(row), "the file is empty") for row in bad]
    good = [row for row in range(len(images)) if row not in bad]
    assert reading.data.ids == [str(row) for row in good]
    assert reading.data.x[:, 0, 0, 0].tolist() == good
    assert reading.data.y.tolist() == [row % 2 for row in good]


def test_what_was_seen_adds_up() -> None:
    grey, colour = Seen(frozenset({(8, 8)})), Seen(frozenset({(9, 8)}), True, 4095)
    assert (grey | colour).form(None) == Form(32, 32, 3, 4095)
    assert (grey | grey).form(None) == Form(8, 8, 1)


def test_a_large_jpeg_decoded_small_is_close_to_the_whole() -> None:
    smooth = picture(4, 6).resize((1500, 1000), Image.Resampling.BICUBIC)
    data = encoded(smooth, "JPEG", quality=90)
    fast = pixels_of(data, Form(32, 32, 3)).astype(int)
    whole = pixels_of(np.asarray(Image.open(io.BytesIO(data))), Form(32, 32, 3)).astype(int)
    assert np.abs(fast - whole).mean() < 2
    assert look([data]).sizes == decode_chunk([data], Form(32, 32, 3)).seen.sizes == {(1000, 1500)}


def test_arrays_and_opened_images_are_decoded_too() -> None:
    array = noise(8, 8, 3)
    assert (pixels_of(array, RGB8) == array.transpose(2, 0, 1)).all()
    assert (pixels_of(Image.fromarray(array), RGB8) == array.transpose(2, 0, 1)).all()


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims to be huge and holds next to nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


BAD = {
    "empty": (b"", "the file is empty"),
    "text": (b"no image at all", "not an image of a known kind"),
    "random": (noise(2000).tobytes(), "not an image of a known kind"),
    "truncated png": (encoded(picture(40, 40))[:2000], "broken image"),
    "truncated jpeg": (encoded(picture(40, 40), "JPEG")[:700], "broken image"),
    "truncated tiff": (encoded(picture(40, 40), "TIFF")[:-3000], "broken"),
    "truncated webp": (encoded(picture(40, 40), "WEBP")[:500], "broken image"),
    "truncated bmp": (encoded(picture(40, 40), "BMP")[:500], "broken image"),
    "truncated gif": (encoded(picture(40, 40), "GIF")[:1200], "broken image"),
    "bomb": (png_header(50_000, 50_000), "the image has more than 89,478,485 pixels"),
    # Between the limit and its double Pillow only warns.
    "large": (png_header(10_000, 10_000), "the image has more than 89,478,485 pixels"),
    # Its reader would start Ghostscript.
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", "not an image of a known"),
}


@pytest.mark.parametrize(("data", "reason"), BAD.values(), ids=BAD)
def test_a_bad_image_is_skipped_with_its_reason(data: bytes, reason: str, tmp_path: Path) -> None:
    good = encoded(picture())
    bad: list[Encoded] = [data, write(tmp_path / "a.png", data)]
    for one in bad:
        decoded = decode_chunk([good, one, good], RGB8)
        assert list(decoded.bad) == [1]
        assert reason in decoded.bad[1]
        assert "\n" not in decoded.bad[1]
        assert str(tmp_path) not in decoded.bad[1]
        assert len(decoded.pixels) == 2
        assert (decoded.pixels[1] == rgb(picture())).all()
        assert look([one]) == Seen() or "broken image" in decoded.bad[1]


def test_folders_and_missing_files_are_skipped_with_their_reason(tmp_path: Path) -> None:
    decoded = decode_chunk([tmp_path, tmp_path / "no.png"], RGB8)
    assert decoded.bad == {
        0: "the file cannot be read: Is a directory",
        1: "the file does not exist",
    }


def test_a_file_of_more_than_512_mb_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.png"
    with path.open("wb") as file:
        file.truncate((1 << 29) + 1)  # takes no room on the disk
    assert decode_chunk([path], RGB8).bad == {0: "the file is larger than 512 MB"}


def test_an_image_that_pillow_warns_of_is_used_without_a_warning() -> None:
    data = encoded(picture(), "PNG", exif=turned(6).tobytes()[:-6])
    with pytest.warns(UserWarning, match="Corrupt EXIF"):
        Image.open(io.BytesIO(data)).getexif()
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        assert decode_chunk([data], RGB8).bad == {}
        assert look([data]).sizes == {(8, 8)}
    assert noticed == []


def test_bad_images_leave_the_others_with_their_labels(tmp_path: Path) -> None:
    for row in range(6):
        write(tmp_path / "ab"[row % 2] / f"{row}.png", encoded(plain(row * 40)))
    write(tmp_path / "a" / "1.png", b"")
    write(tmp_path / "b" / "2.png", encoded(plain(9))[:40])
    with pytest.warns(UserWarning, match=r"2 files skipped; the first is a/1.png: the file is"):
        data = read(tmp_path)
    assert data.ids == ["a/0.png", "a/2.png", "a/4.png", "b/1.png", "b/3.png", "b/5.png"]
    assert [data.classes[k] for k in data.y.tolist()] == ["a", "a", "a", "b", "b", "b"]
    assert data.x[:, 0, 0, 0].tolist() == [0, 80, 160, 40, 120, 200]
