from pathlib import Path

import pytest

from saas_ssl.runs.directory import check_target, free_name, is_running, new_run


def test_before_a_checkpoint_an_error_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"

    def interrupted(directory: Path) -> None:
        (directory / "run.json").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), new_run(out) as directory:
        interrupted(directory)
    assert list((tmp_path / "deep").iterdir()) == []
    with new_run(out) as directory:
        (directory / "run.json").write_text("whole")
        assert is_running(out)
    assert not is_running(out)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["run"]
    assert [path.name for path in out.iterdir()] == ["run.json"]


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    out = tmp_path / "run"
    for text in ("first", "second"):
        with new_run(out, overwrite=text == "second") as directory:
            (directory / "run.json").write_text(text)
    assert (out / "run.json").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with pytest.raises(ValueError, match="exists"), new_run(out):
        pass
    with pytest.raises(RuntimeError), new_run(out, overwrite=True):
        raise RuntimeError
    assert (out / "run.json").read_text() == "second"  # a failed attempt leaves the old run
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_only_a_run_directory_is_ever_replaced(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "mine"
    if kind == "folder":
        out.mkdir()
        (out / "photo.jpg").write_text("precious")
    elif kind == "file":
        out.write_text("precious")
    else:
        (tmp_path / "target").mkdir()
        (tmp_path / "target" / "run.json").write_text("{}")
        out.symlink_to(tmp_path / "target")
    with pytest.raises(ValueError, match="not a run directory"), new_run(out, overwrite=True):
        pass
    assert out.exists()


def test_what_a_user_put_into_a_run_is_never_deleted(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with new_run(out) as directory:
        (directory / "run.json").write_text("first")
    (out / "photos").mkdir()
    with pytest.raises(ValueError, match="holds photos, which no run has written"):
        check_target(out, overwrite=True)


def test_new_folders_are_readable_like_any_other(tmp_path: Path) -> None:
    with new_run(tmp_path / "run") as directory:
        (directory / "run.json").write_text("{}")
    (tmp_path / "usual").mkdir()
    modes = [(tmp_path / name).stat().st_mode for name in ("run", "usual")]
    assert modes[0] == modes[1]


def test_free_name(tmp_path: Path) -> None:
    assert free_name(tmp_path / "demo") == tmp_path / "demo"
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo-2").mkdir()
    assert free_name(tmp_path / "demo") == tmp_path / "demo-3"
