"""What `saas predict` does: labels for new data, row after row in flat memory."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from torch import Tensor

from saas_ssl.progress.display import counting
from saas_ssl.runs.model import load
from saas_ssl.runs.tables import STDOUT, check_output, skipped_beside, write_table
from saas_ssl.sources.finding import find
from saas_ssl.sources.source import Skipped
from saas_ssl.sources.wording import counted
from saas_ssl.trust.decisions import LabelRow, inferred_rows


def predict_into(run: str, data: str, out: str, overwrite: bool, console: Console) -> None:
    """Label new data with the classifier of a run, and say how many."""
    check_output(out, overwrite)
    if out != STDOUT and Path(out).resolve() == Path(data).resolve():
        raise ValueError(f"{out} is the data themselves")
    model, source = load(run), find(data)
    parts, skipped = model.stream(source), list(source.skipped)
    with counting(console, "labelling rows", len(source.ids)) as progress:
        write_table(out, _rows(parts, source.ids, model.classes, skipped, progress), skipped)
    n = len(source.ids) + len(source.skipped) - len(skipped)
    where = "" if out == STDOUT else f": see {skipped_beside(Path(out))}"
    more = f", {counted(len(skipped), 'file')} skipped{where}" if skipped else ""
    console.print(f"{counted(n, 'row')} labelled{more}")
    if out == STDOUT:  # there is no file to list them in
        console.print("\n".join(f"skipped {row.id}: {row.reason}" for row in skipped), end="")


def _rows(
    parts: Iterator[tuple[Tensor, dict[int, str]]],
    ids: Sequence[str],
    classes: Sequence[str],
    skipped: list[Skipped],
    progress: Callable[[int], None],
) -> Iterator[LabelRow]:
    """One row for each that can be used; the others are added to `skipped`."""
    done = 0
    for f, bad in parts:
        rows = range(done, done + len(f) + len(bad))
        kept = [ids[row] for row in rows if row not in bad]
        yield from inferred_rows(kept, classes, f.argmax(dim=1), f)
        skipped += [Skipped(ids[row], reason) for row, reason in bad.items()]
        done = rows.stop
        progress(done)
