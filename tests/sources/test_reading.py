import io
from pathlib import Path

import numpy as np
from PIL import Image
from pyarrow import parquet

from saas_ssl.images.pictures import as_picture
from saas_ssl.images.pixels import Encoded, only_bombs_noticed
from saas_ssl.images.pool import in_chunks
from saas_ssl.sources.finding import find
from saas_ssl.sources.reading import read_source
from saas_ssl.sources.source import Source
from samples import (
    encoded,
    picture,
    plain,
    refusal,
    write,
    write_hugging_face,
    write_idx,
    write_plain,
)


def test_rows_without_an_image_or_a_label_are_refused() -> None:
    # Broken parquet files have been seen to hold fewer values in one column than in another.
    images: list[Encoded] = [encoded(plain(1))]
    source = Source(["1", "2"], ["a", "b"], ["a", "b"], in_chunks(images))
    assert "there are 2 rows but 1 images" in refusal(lambda: read_source(source))
    assert "there are 2 rows but 1 labels" in refusal(
        lambda: Source(["1", "2"], ["a"], ["a"], in_chunks(images))
    )


def test_progress_is_told_in_images(tmp_path: Path) -> None:
    write_plain(tmp_path, {f"{'ab'[n % 2]}/{n}.png": n for n in range(150)})
    told = list[int]()
    read_source(find(str(tmp_path)), progress=told.append)
    assert told == [64, 128, 150]


def test_a_form_that_is_given_is_kept_to(tmp_path: Path) -> None:
    images = write_plain(tmp_path / "images", {"a/1.png": 10, "a/2.png": 20, "b/3.png": 30})
    colour = write(tmp_path / "colour" / "a" / "1.png", encoded(picture(40, 40)))
    write(tmp_path / "colour" / "b" / "2.png", encoded(picture(40, 40)))
    form = read_source(find(str(images))).form
    reading = read_source(find(str(colour.parent.parent)), form=form)
    assert reading.form == form
    assert reading.data.x.shape == (2, 1, 8, 8)


def test_the_image_of_any_row_can_be_had_by_its_number(tmp_path: Path) -> None:
    """Whatever it is stored in, and in any order: one grey value tells which row it is."""
    values = {f"{n}.png": 20 * n for n in range(7)}
    folder = write_plain(tmp_path / "photos", values)
    (tmp_path / "photos.csv").write_text("path\n" + "".join(f"photos/{n}.png\n" for n in range(7)))
    pixels = np.array([np.full((8, 8), 20 * n, np.uint8) for n in range(7)])
    np.savez(tmp_path / "x.npz", x=pixels)
    images = [encoded(plain(20 * n)) for n in range(7)]
    for at, part in enumerate((images[:5], images[5:])):
        file = write_hugging_face(tmp_path / "tables" / f"{at}.parquet", part, [0] * len(part))
        parquet.write_table(parquet.read_table(file), file, row_group_size=2)
    write_idx(tmp_path / "idx", pixels, np.zeros(7, np.uint8))
    specs = [folder, tmp_path / "photos.csv", tmp_path / "x.npz", tmp_path / "tables"]
    for spec in [*map(str, specs), f"idx:{tmp_path / 'idx'}"]:
        source = find(spec)
        for row in (6, 0, 3, 5, 4, 1, 2, 6):
            with only_bombs_noticed():
                data, kind = as_picture(source.image(row), 96)
            shown = Image.open(io.BytesIO(data))
            assert (shown.size, kind, shown.getextrema()) == ((8, 8), "image/png", (20 * row,) * 2)


def test_what_is_skipped_does_not_shift_the_images(tmp_path: Path) -> None:
    folder = write_plain(tmp_path / "photos", {"a/1.png": 10, "b/2.png": 20, "b/4.png": 40})
    write(folder / "b" / "3.png", b"broken")
    reading = read_source(find(str(folder)))
    assert reading.image is not None
    for row, id_ in enumerate(reading.data.ids):
        assert reading.image(row) == str(folder / id_)
    assert reading.reviewed.tolist() == [False] * 3
