"""The end of a run in plain words."""

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saas_ssl.runs.files import LABELS_FILE, REPORT_FILE, SKIPPED_FILE
from saas_ssl.sources.wording import counted
from saas_ssl.training.outputs import is_clearly_worse


def summary(record: Mapping[str, Any], out: Path) -> list[str]:
    """What was found, and what to do next; `record` is run.json."""
    place = shlex.quote(str(out))
    return [
        *findings(record, f"{out}/{SKIPPED_FILE}"),
        f"Labels: {out}/{LABELS_FILE}. To look at: {out}/{REPORT_FILE}. To check labels: "
        f"saas review {place}. For new data: saas predict {place} NEW --out new.csv",
    ]


def findings(record: Mapping[str, Any], skipped: str) -> list[str]:
    """What was done, what to check, and whether the unlabelled rows helped.

    `record` is run.json, and `skipped` where the list of skipped files is.
    """
    results, data = record["results"], record["data"]
    given = data["labelled"] + data["validation"]
    lines = [
        f"{data['unlabelled']:,} rows were labelled from {given:,} given labels of "
        f"{len(data['classes'])} classes.",
        *_trusted(results, record["scrutiny"]["accept"]),
    ]
    if data["skipped"]:
        files = counted(data["skipped"], "file")
        lines.append(f"{files} could not be used: see {skipped}.")
    lines += [_did_it_help(results), *_known_errors(results)]
    short = inner_loop_too_short(results["inner"], record["config"]["inner_epochs"])
    if short is not None:
        lines.append(short)
    return lines


def _trusted(results: Mapping[str, Any], accept: float) -> list[str]:
    """How many labels are right, how many to review, and what looks wrong."""
    trust, lines = results["trust"], list[str]()
    if trust["left_out"]:
        lines.append(
            f"About {_expected(trust['all'])} of the labels are right, judged by "
            f"{counted(trust['left_out'], 'given label')} left out in turn."
        )
    else:
        lines.append(
            "How many of the labels are right cannot be said: no given label was left out to "
            "measure it, so the probabilities are a guess, too."
        )
    accepted = f"{results['accepted']:,} labels are accepted (probability at least {accept:.4g})"
    if trust["left_out"] and trust["accepted"] is not None:
        accepted += f", of which about {_expected(trust['accepted'])} are right"
    lines.append(f"{accepted}; {results['review']:,} are marked for review.")
    if trust["left_out"] and trust["few_labels"]:
        lines.append(
            "Some class has fewer than 3 given labels: these intervals were widened, and are "
            "little more than a guess."
        )
    if results["outliers"]:
        lines.append(
            f"{counted(results['outliers'], 'row')} may be none of the classes: marked outlier."
        )
    if trust["suspects"]:
        lines.append(
            f"{counted(trust['suspects'], 'given label')} may be wrong: marked review, with the "
            "reason. Wrong ones make the probabilities too cautious: put them right, and run again."
        )
    if (shift := trust["shift"]) is not None:
        lines.append(
            "The classes have other shares among the inferred labels than among the given ones: "
            f"{shift['class']!r} is {shift['inferred']:.0%} of the inferred and "
            f"{shift['given']:.0%} of the given. If that is not what you expect, check some."
        )
    return lines


def _expected(share: Mapping[str, float]) -> str:
    return f"{share['estimate']:.1%} ({share['low']:.1%} to {share['high']:.1%}, a 95 % interval)"


def inner_loop_too_short(inner: Mapping[str, Any], T: int) -> str | None:
    """A sentence if the networks of the inner loop end clearly worse than the supervised one."""
    error, supervised = inner["error"], inner["supervised_error"]
    if error is None or not is_clearly_worse(error, supervised, inner["rows"]):
        return None
    return (
        f"The inner loop seems too short: its networks end at {error:.1%} error on given labels "
        f"where the supervised baseline has {supervised:.1%}; try --inner-epochs {2 * T} or more."
    )


def _did_it_help(results: Mapping[str, Any]) -> str:
    """The difference to the supervised baseline on validation rows, with its standard error."""
    compared = results["validation"]
    if compared is None:
        return (
            "Whether the unlabelled rows helped cannot be said: no labels were set apart to "
            "measure it, which takes 20 in each class."
        )
    before, after = (results[name]["validation_error"] for name in ("supervised", "saas"))
    gain, noise = before - after, math.sqrt(compared["mended"] + compared["broken"])
    if abs(compared["mended"] - compared["broken"]) <= 2 * noise:
        verdict = "No clear effect of the unlabelled rows"
    elif gain > 0:
        verdict = "The unlabelled rows helped"
    else:
        verdict = "The unlabelled rows did harm"
    return (
        f"{verdict}: on {compared['rows']:,} validation rows the error went from {before:.1%} "
        f"(supervised) to {after:.1%} (SaaS), with a standard error of the difference of "
        f"{noise / compared['rows']:.1%}."
    )


def _known_errors(results: Mapping[str, Any]) -> list[str]:
    """Where the truth is known: the benchmark protocol."""
    saas, supervised = results["saas"], results["supervised"]
    lines = []
    if saas["unlabelled_error"] is not None:
        lines.append(f"Error on the unlabelled rows: {saas['unlabelled_error']:.2%}.")
    if saas["test_error"] is not None:
        lines.append(
            f"Test error: {saas['test_error']:.2%}; supervised baseline "
            f"{supervised['test_error']:.2%}."
        )
    return lines
