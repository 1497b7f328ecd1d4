"""`saas review RUN --export F.csv`: the file of labels that the next run takes."""

import csv
from pathlib import Path

from saas_ssl.exporting.target import check_file, new_file
from saas_ssl.review.log import read_review
from saas_ssl.review.table import INFERRED
from saas_ssl.runs.finished import check_finished, protected_files, read_labels, tensor_of
from saas_ssl.sources.label_files import REVIEWED
from saas_ssl.sources.wording import counted


def export_corrected(run: Path, out: Path, overwrite: bool = False) -> str:
    """Write the given labels and those that were checked, and return what was written, in words.

    The column `source` keeps apart what was given from what was reviewed, which is no fair sample.
    """
    check_finished(run, labels=True)
    protected = protected_files(run, None)
    check_file(out, ".csv", "a file of labels", overwrite, protected, option="--export")
    labels = read_labels(run)
    decisions = read_review(run, [row["id"] for row in labels.rows], labels.classes).decisions
    before = tensor_of(run, "reviewed", len(labels.rows)).tolist()  # earlier runs' reviews
    written = 0
    with new_file(out) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path" if labels.has_images else "id", "label", "source"])
        for number, row in enumerate(labels.rows):
            decision, inferred = decisions.get(number), row["source"] == INFERRED
            label = row["label"] if decision is None else decision.label
            if label is not None and (decision is not None or not inferred):
                source = REVIEWED if inferred or before[number] else "given"
                writer.writerow([row["id"], label, source])
                written += 1
    changed = sum(
        decision.label not in (None, labels.rows[row]["label"])
        for row, decision in decisions.items()
    )
    return (
        f"{counted(written, 'label')} in {out}: {counted(len(decisions), 'row')} checked, "
        f"{counted(changed, 'label')} corrected"
    )
