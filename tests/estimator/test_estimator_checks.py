"""scikit-learn's own checks of an estimator, as they are."""

from collections.abc import Callable
from typing import Any

from sklearn.utils.estimator_checks import check_classifiers_classes, parametrize_with_checks

from saas_ssl import SaaSClassifier

EXPECTED_TO_FAIL = {
    "check_classifiers_classes": "it takes -1 for a class, which here means unlabelled; for its "
    "own semi-supervised classifiers scikit-learn leaves that part out, by name"
}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [SaaSClassifier()], expected_failed_checks=lambda _estimator: EXPECTED_TO_FAIL
)
def test_scikit_learn_accepts_it(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_the_check_of_classes_passes_as_it_does_for_scikit_learns_own() -> None:
    check_classifiers_classes("SelfTrainingClassifier", SaaSClassifier(random_state=0))
    assert len(EXPECTED_TO_FAIL) == 1
