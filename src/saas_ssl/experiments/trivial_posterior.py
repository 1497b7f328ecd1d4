"""Text, section 2: the outputs of the supervised network are a trivial posterior.

    saas reproduce trivial-posterior --scale laptop --data idx:mnist --seeds 5 --workers 2

The paper: setting P_u to the outputs of the network trained on the labelled rows alone "would
result in the same test performance as that of a supervised baseline and does not utilize the
unlabeled samples at all". Four classifiers: the baseline; one on the labels that the baseline gives
(phase two on the trivial posterior); SaaS started from the trivial posterior; SaaS from its own
start.

Ours (laptop, MNIST, 5 labelled sets): it does not hold. Test errors of the four: 7.97 ± 0.88, 6.47
± 0.47, 5.02 ± 0.66 and 5.10 ± 0.62 %. Hard labels of the baseline for ten times as many rows are
worth half of what SaaS gains, and SaaS ends at the same place from either start.

Runtime on two cores: smoke 10 s, laptop 7 min. paper: 92 h (CIFAR-10) or 22 h (SVHN) on one modern
GPU, by an estimate.
"""

from collections.abc import Sequence

from matplotlib.figure import Figure
from torch import Tensor

from saas_ssl.algorithm.posterior import hard_labels
from saas_ssl.experiments.experiment import Experiment, Records
from saas_ssl.experiments.plots import columns
from saas_ssl.experiments.protocol import Protocol, base
from saas_ssl.experiments.trial import (
    Case,
    Cost,
    Record,
    classify,
    cost_of_phase_one,
    cost_of_phase_two,
    cost_of_supervised,
    run_saas,
    run_supervised,
    supervise,
)
from saas_ssl.experiments.verdicts import UNDECIDED, Answer, Effect, Verdict, by_seed, lower_by
from saas_ssl.training.outputs import predict
from saas_ssl.training.problem import Problem

SUPERVISED, TRIVIAL, STARTED, SAAS = "supervised", "trivial", "saas-from-trivial", "saas"


def arms(_protocol: Protocol) -> Sequence[str]:
    """Four classifiers."""
    return (SUPERVISED, TRIVIAL, STARTED, SAAS)


def trivial_posterior(case: Case, problem: Problem) -> Tensor:
    """f_w(x_u) of the supervised network, the very one of the baseline: same seed, same bits."""
    data, network = problem.training, supervise(case, problem)
    return predict(network, problem.preprocessing, data.x, data.unlabelled_rows)


def run(case: Case, arm: str) -> Record:
    """One of the four."""
    problem = case.problem()
    if arm == SUPERVISED:
        return run_supervised(case, problem)
    if arm == SAAS:
        return run_saas(case, problem)
    P_u = trivial_posterior(case, problem)
    if arm == STARTED:
        return run_saas(case, problem, P_u)
    wrong = (hard_labels(P_u) != case.truth(problem)).double().mean().item()
    classifier = classify(case, problem, P_u)
    return {"unlabelled_error": wrong, "test_error": case.error(classifier, problem.preprocessing)}


def cost(case: Case, arm: str) -> Cost:
    """The baseline first, unless SaaS begins as usual."""
    problem = case.problem()
    two = cost_of_phase_two(problem)
    return {
        SUPERVISED: cost_of_supervised(problem),
        TRIVIAL: cost_of_supervised(problem) + two,
        STARTED: cost_of_supervised(problem) + cost_of_phase_one(problem) + two,
        SAAS: cost_of_phase_one(problem) + two,
    }[arm]


def judged(gain: Effect, gain_of_saas: Effect) -> Answer:
    """Trivial if it gains nothing, or at least surely less than half of what SaaS gains."""
    low, high = gain.estimate.low, gain.estimate.high
    if low is None or high is None:
        return UNDECIDED
    if low > 0:
        return "does not hold"
    return "holds" if high < gain_of_saas.estimate.mean / 2 else UNDECIDED


def verdicts(records: Records) -> list[Verdict]:
    """What a classifier on the trivial posterior gains over the baseline, and what SaaS does."""
    errors = {arm: by_seed(records[arm], "test_error") for arm in records}
    gain, ours, started = (
        lower_by(f"lower test error than the baseline: {name}", errors[SUPERVISED], errors[arm])
        for arm, name in (
            (TRIVIAL, "phase two on the trivial posterior"),
            (SAAS, "SaaS"),
            (STARTED, "SaaS started from the trivial posterior"),
        )
    )
    rule = (
        "holds if the 95 % interval reaches 0 and ends below half of what SaaS gains; "
        "does not hold if it is above 0"
    )
    return [Verdict("8", judged(gain, ours), [gain], rule, [ours, started])]


def draw(figure: Figure, records: Records) -> None:
    """Test errors."""
    names = {
        SUPERVISED: "supervised",
        TRIVIAL: "trivial posterior",
        STARTED: "SaaS from it",
        SAAS: "SaaS",
    }
    tests = {
        name: {"test": list(by_seed(records[arm], "test_error").values())}
        for arm, name in names.items()
    }
    columns(figure.subplots(), tests)


EXPERIMENT = Experiment(__doc__, base, arms, run, cost, verdicts, draw)
