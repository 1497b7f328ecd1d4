"""One whole run: the supervised baseline and both phases, measured, shown and written down."""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saas_ssl.algorithm.batches import steps_per_epoch
from saas_ssl.algorithm.blocks import below, under
from saas_ssl.algorithm.network import copied_state, unwrapped
from saas_ssl.algorithm.phases import Epoch
from saas_ssl.algorithm.posterior import hard_labels
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.labelling.journal import Journal, show_what_is_done
from saas_ssl.labelling.outcome import (
    compared,
    errors,
    model_of,
    order_of_review,
    share_wrong,
    thumbnails,
    write_label_files,
)
from saas_ssl.labelling.request import Truth
from saas_ssl.progress.summary import inner_loop_too_short
from saas_ssl.report import write_report
from saas_ssl.runs.checkpoints import sync_folder
from saas_ssl.runs.files import (
    LABELS_FILE,
    SKIPPED_FILE,
    write_skipped,
)
from saas_ssl.runs.labels import write_labels
from saas_ssl.runs.model import save
from saas_ssl.runs.record import complete, write_run
from saas_ssl.sources.reading import Reading
from saas_ssl.training.budget import ENDLESS, Deadline, within
from saas_ssl.training.forecast import AVERAGED_EPOCHS
from saas_ssl.training.held_out import Evidence, Scored, infer_with_held_out, without
from saas_ssl.training.outputs import error_rate, predict
from saas_ssl.training.pipeline import (
    initial_passes,
    initial_posterior,
    train_classifier,
    train_supervised,
)
from saas_ssl.training.problem import Problem
from saas_ssl.trust.decisions import label_rows
from saas_ssl.trust.expectation import decision_counts, in_numbers, measured
from saas_ssl.trust.judging import Scrutiny, judge

_SEEN = "seen."
DEFAULT_SCRUTINY = Scrutiny()


def run_job(
    problem: Problem,
    truth: Truth,
    directory: Path,
    journal: Journal,
    about: Mapping[str, Any],
    deadline: Deadline | None = None,
    scrutiny: Scrutiny = DEFAULT_SCRUTINY,
    reading: Reading | None = None,
) -> dict[str, Any] | None:
    """Do everything that is not done yet, write the run directory, and return the results.

    `about` is what run.json says besides them, `scrutiny` how labels are checked, and `reading`
    where the rows came from, if they were read. Ranks that share the rows all call it, and only the
    first one writes and returns anything.
    """
    data, ranks, display = problem.data, problem.ranks, journal.display
    show_what_is_done(problem, journal)
    if journal.is_new:
        journal.save()  # from here on there is something to go on with
    baseline = _train_baseline(problem, journal)
    problem = _refitted(problem, journal, deadline)
    P_u, seen = _infer(problem, truth, journal, deadline, directory, scrutiny.label_folds)
    inner = {
        "error": journal.facts["inner_error"],
        "supervised_error": error_rate(baseline, problem.preprocessing, problem.probe),
        "rows": len(problem.probe.labelled_rows),
    }
    display.say(inner_loop_too_short(inner, problem.settings.inner_epochs))
    classifier, f_u = _train_classifier(problem, P_u, journal, deadline)
    saas_cost = journal.cost()
    if not journal.facts["changes"]:  # no outer iteration has seen anything
        seen = replace(seen, s_u=f_u.log(), s_early=f_u.log())
    f_supervised = predict(
        baseline, problem.preprocessing, problem.training.x, problem.training.unlabelled_rows
    )
    P_u, f_u, f_supervised, s_u, s_early, s_once = (
        ranks.all_rows(own.cpu(), len(data.unlabelled_rows))
        for own in (P_u, f_u, f_supervised, seen.s_u, seen.s_early, seen.s_once)
    )
    if ranks.rank:
        return None

    seen = replace(seen, s_u=s_u, s_early=s_early, s_once=s_once)
    inferred = hard_labels(P_u)
    trust = judge(problem.training, inferred, seen, f_supervised, scrutiny.accept)
    order = order_of_review(problem, trust, inferred, classifier)
    write_label_files(problem, P_u, trust, order, scrutiny.accept, directory)
    save(model_of(problem, classifier, reading), directory)
    write_skipped(directory / SKIPPED_FILE, reading.skipped if reading else ())
    results = {
        "supervised": {**errors(problem, baseline, truth), **journal.facts["costs"]["supervised"]},
        "saas": {
            "unlabelled_error": share_wrong(inferred, truth.unlabelled),
            "classifier_unlabelled_error": share_wrong(f_u.argmax(dim=1), truth.unlabelled),
            **errors(problem, classifier, truth),
        },
        "inner": inner,
        "validation": compared(problem, baseline, classifier),
        **decision_counts(trust, inferred, scrutiny.accept),
        "trust": {
            **in_numbers(trust, problem.fair, inferred, scrutiny.accept),
            "measured": measured(trust, f_u, inferred, truth.unlabelled, scrutiny.accept),
        },
        "outer_iterations": len(journal.facts["changes"]),
        "bytes_sent": ranks.sent,
        **saas_cost,
    }
    journal.sync()
    fitted = {"config": problem.settings.model_dump(), "effective_step": problem.effective_step}
    record = complete({**about, **fitted, "results": results})
    write_report(directory, record, thumbnails(data, reading))
    sync_folder(directory)
    write_run(directory, record)
    return results


def take_part(problem: Problem, journal: Journal, deadline: Deadline | None, folds: int) -> None:
    """Run trajectories for rank 0, which does everything else."""
    journal.begin("one", 0)
    problem = _refitted(problem, journal, deadline)
    changes = _changes_so_far(problem, journal)
    if changes is not None:
        size = (len(problem.data.unlabelled_rows), problem.data.n_classes)
        for _ in _outers(problem, journal, torch.empty(size), changes, deadline, folds):
            pass


def _train_baseline(problem: Problem, journal: Journal) -> nn.Module:
    """The supervised baseline, trained now or by an earlier process."""
    network = problem.new_network(generator_at(problem.seed, "probe"))
    if not journal.is_past("supervised"):
        passes = problem.supervised_passes() * problem.ranks.sharing
        steps = steps_per_epoch(len(problem.training.labelled_rows), problem.supervised_B)
        journal.begin("supervised", passes / steps)
        inside, scores = journal.taken_inside(), list(journal.facts["scores"])
        state = below("w.", inside or {})
        for epoch in train_supervised(problem, scores, journal.after_step, inside):
            state = copied_state(epoch.w)
            _end_epoch(journal, epoch, passes)
        journal.tensors |= under("baseline.", state)
    unwrapped(network).load_state_dict(below("baseline.", journal.tensors))
    return network


def _refitted(problem: Problem, journal: Journal, deadline: Deadline | None) -> Problem:
    """With a budget: T, M and epochs for the time that the baseline has left, once, for all."""
    if deadline is None:
        return problem
    facts, settings = journal.facts, problem.settings
    if problem.ranks.rank == 0 and "fitted" not in facts:
        facts["fitted"] = deadline.refit(settings, facts["costs"]["supervised"]["seconds"])
    fitted = json.loads(problem.ranks.text_from_first(json.dumps(facts.get("fitted"))))
    return replace(problem, settings=settings.changed(**fitted))


def _infer(
    problem: Problem,
    truth: Truth,
    journal: Journal,
    deadline: Deadline | None,
    directory: Path,
    folds: int,
) -> tuple[Tensor, Evidence]:
    """The posterior, and what was seen of the rows on the way.

    After each outer iteration the labels so far are in the run directory.
    """
    P_u, seen = journal.tensors.get("P_u"), _seen_so_far(problem, journal)
    P_u = initial_posterior(problem) if P_u is None else P_u
    changes = _changes_so_far(problem, journal)
    if changes is None:
        return P_u, seen
    settings, sharing = problem.settings, problem.ranks.shares_rows
    network = problem.new_network(generator_at(problem.seed, "probe"))
    passes = problem.passes(settings.inner_epochs) * problem.ranks.size
    journal.tensors["P_u"] = P_u
    journal.begin("one", passes / (settings.inner_epochs * problem.steps))
    for scored in _outers(problem, journal, P_u, changes, deadline, folds):
        outer, seen = scored.outer, seen.and_of(scored)
        P_u, labels = outer.P_u, hard_labels(outer.P_u).cpu()
        known = without(problem, problem.training.labelled_rows[scored.held_out])
        unwrapped(network).load_state_dict(outer.w)
        wrong = None if sharing else share_wrong(labels, truth.unlabelled)
        fields = {
            "outer": outer.m,
            "cumulative_loss": outer.cumulative_loss,
            "changed": outer.changed,
            "unlabelled_accuracy": None if wrong is None else 1.0 - wrong,
            "inner_error": error_rate(network, problem.preprocessing, known.probe),
        }
        if not sharing:  # otherwise no process has all rows before the end
            write_labels(directory / LABELS_FILE, label_rows(problem.data, labels, P_u.cpu()))
        taken = scored.passes * problem.ranks.size + (0 if outer.m else initial_passes(problem))
        journal.note(taken, fields)
        if journal.log is not None and not sharing:
            journal.log.outer(fields, P_u.cpu(), problem.data)
        M = _replanned(problem, journal, outer.m + 1, passes, deadline)
        journal.display.outer(outer.m, M, outer.cumulative_loss, outer.changed)
        journal.facts["inner_error"] = fields["inner_error"]
        journal.facts["changes"].append(outer.changed)
        journal.tensors |= {"P_u": P_u, **under(_SEEN, vars(seen))}
        journal.save()
    return P_u, seen


def _seen_so_far(problem: Problem, journal: Journal) -> Evidence:
    seen = below(_SEEN, journal.tensors)
    if seen:
        return Evidence(**seen)
    data = problem.training
    return Evidence.none(len(data.unlabelled_rows), len(data.labelled_rows), data.n_classes)


def _changes_so_far(problem: Problem, journal: Journal) -> list[float] | None:
    """Of the outer iterations that rank 0 has behind it, for all; None if it wants no more."""
    own = None if journal.is_past("one") else journal.facts["changes"]
    told: list[float] | None = json.loads(problem.ranks.text_from_first(json.dumps(own)))
    return told


def _outers(
    problem: Problem,
    journal: Journal,
    P_u: Tensor,
    changes: Sequence[float],
    deadline: Deadline | None,
    folds: int,
) -> Iterator[Scored]:
    """Outer iterations from where rank 0 is, as many as the settings or the deadline allow."""
    ranks = problem.ranks
    if ranks.shares_trajectories:
        P_u = ranks.from_first(P_u)
    by_clock = deadline is not None and deadline.decides_outer_iterations
    outers = infer_with_held_out(
        problem,
        folds,
        P_u,
        changes,
        journal.after_step,
        journal.taken_inside(),
        ENDLESS if by_clock else None,
    )
    return within(outers, deadline, problem.settings, len(changes))


def _replanned(
    problem: Problem, journal: Journal, done: int, passes: int, deadline: Deadline | None
) -> int:
    """How many outer iterations there will be; a budget changes that while time passes."""
    if deadline is None or not deadline.decides_outer_iterations:
        return problem.settings.outer_iterations
    M = done + deadline.more(problem.settings)
    journal.display.replan("one", M * passes)
    return M


def _train_classifier(
    problem: Problem, P_u: Tensor, journal: Journal, deadline: Deadline | None
) -> tuple[nn.Module, Tensor]:
    """The classifier, and its softmax on the unlabelled rows averaged over the last epochs."""
    states = deque[dict[str, Tensor]](maxlen=AVERAGED_EPOCHS)
    kept = range(sum(name.startswith("epochs.") for name in journal.tensors))
    states.extend(state for n in kept if (state := below(f"epochs.{n}.", journal.tensors)))
    passes = problem.passes() * problem.ranks.sharing
    journal.begin("two", passes / problem.steps)
    rate = None
    if deadline is not None:
        rate = deadline.rate(problem.settings, len(journal.facts["scores"]))
        journal.display.replan("two", passes * deadline.epochs())
    inside, scores = journal.taken_inside(), list(journal.facts["scores"])
    for epoch in train_classifier(problem, P_u, scores, journal.after_step, inside, rate):
        states.append(copied_state(epoch.w))
        journal.tensors = {n: t for n, t in journal.tensors.items() if not n.startswith("epochs.")}
        for n, state in enumerate(states):
            journal.tensors |= under(f"epochs.{n}.", state)
        _end_epoch(journal, epoch, passes)
    network = problem.new_network(generator_at(problem.seed, "probe"))
    data, f_u = problem.training, torch.zeros(P_u.shape)
    for state in states:
        unwrapped(network).load_state_dict(state)  # the last one is the classifier
        f_u += predict(network, problem.preprocessing, data.x, data.unlabelled_rows) / len(states)
    return network, f_u


def _end_epoch(journal: Journal, epoch: Epoch, passes: int) -> None:
    """Write down what an epoch did, and save if the last checkpoint is old."""
    fields = {"epoch": epoch.n, "loss": epoch.loss, "rate": epoch.rate, "score": epoch.score}
    journal.facts["scores"].append(epoch.score)
    journal.note(passes, fields)
    journal.display.epoch(epoch.n, epoch.score)
    if journal.log is not None:
        journal.log.epoch(journal.facts["stage"], fields)
    if journal.ranks.any(journal.is_due()):
        journal.save(epoch.sgd)
