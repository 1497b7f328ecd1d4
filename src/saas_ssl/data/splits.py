"""Which rows are held out, and which labels are kept: seeded and stratified."""

import torch
from torch import Generator, Tensor

from saas_ssl.algorithm.partially_labelled import SET_ASIDE, UNLABELLED, PartiallyLabelled

FEWEST_LABELS_TO_VALIDATE = 20


def hold_out(
    data: PartiallyLabelled, n: int, generator: Generator
) -> tuple[PartiallyLabelled, PartiallyLabelled]:
    """(The rest, n rows with the class shares of the whole): a test set of fully labelled data."""
    _require_full_labels(data)
    if not 0 < n < len(data.y):
        raise ValueError(f"cannot hold out {n} of {len(data.y)} rows")
    counts = _apportion(torch.bincount(data.y, minlength=data.n_classes), n)
    held = _draw_per_class(data.y, counts, generator)
    return data.take(_others(held, len(data.y))), data.take(held)


def keep_labels(
    data: PartiallyLabelled, n: int, generator: Generator, unlabelled: int | None = None
) -> PartiallyLabelled:
    """Hide all labels but n, as many in each class (one more in some if n is no multiple of K).

    With `unlabelled`, only so many of the other rows are used, with the class shares of them all.
    """
    _require_full_labels(data)
    K = data.n_classes  # noqa: N806
    counts = torch.full((K,), n // K)
    counts[torch.randperm(K, generator=generator)[: n % K]] += 1
    present = torch.bincount(data.y, minlength=K)
    if n < K:
        raise ValueError(f"cannot keep {n} labels of {K} classes: each class needs at least one")
    if (counts > present).any():
        k = int((counts > present).nonzero()[0])
        raise ValueError(
            f"cannot keep {int(counts[k])} labels of class {data.classes[k]!r}: "
            f"it has only {int(present[k])} rows"
        )
    kept = _draw_per_class(data.y, counts, generator)
    y = torch.full_like(data.y, UNLABELLED)
    y[kept] = data.y[kept]
    if unlabelled is not None:
        others = torch.where(y == UNLABELLED, data.y, SET_ASIDE)
        left = present - counts
        if not 0 < unlabelled <= int(left.sum()):
            raise ValueError(
                f"cannot use {unlabelled} unlabelled rows: there are {int(left.sum())} besides the "
                f"{n} labelled ones"
            )
        used = _draw_per_class(others, _apportion(left, unlabelled), generator)
        y[y == UNLABELLED] = SET_ASIDE
        y[used] = UNLABELLED
    return data.with_labels(y)


def split_validation(
    data: PartiallyLabelled, share: float, generator: Generator
) -> tuple[PartiallyLabelled, PartiallyLabelled | None]:
    """(Training data, validation data): a stratified share of the labels, at least one a class.

    Both hold all rows, and each sets aside those of the other: nothing is copied.
    With fewer than 20 labels in some class all of them are worth more in training: no validation.
    """
    labelled = data.labelled_rows
    counts = torch.bincount(data.y[labelled], minlength=data.n_classes)
    if share == 0 or counts.min() < FEWEST_LABELS_TO_VALIDATE:
        return data, None
    wanted = (counts * share).round().long().clamp(min=1).minimum(counts - 1)
    held = labelled[_draw_per_class(data.y[labelled], wanted, generator)]
    training, validation = data.y.clone(), torch.full_like(data.y, SET_ASIDE)
    training[held], validation[held] = SET_ASIDE, data.y[held]
    return data.with_labels(training), data.with_labels(validation)


def _require_full_labels(data: PartiallyLabelled) -> None:
    missing = int((data.y < 0).sum())
    if missing:
        raise ValueError(f"this needs fully labelled data, but {missing} rows have no label")


def _draw_per_class(y: Tensor, counts: Tensor, generator: Generator) -> Tensor:
    """Rows, sorted, with counts[k] random ones of each class k."""
    chosen = []
    for k, count in enumerate(counts.tolist()):
        rows = (y == k).nonzero().squeeze(1)
        chosen.append(rows[torch.randperm(len(rows), generator=generator)[:count]])
    return torch.cat(chosen).sort().values


def _apportion(counts: Tensor, n: int) -> Tensor:
    """Whole numbers that sum to n, in proportion to the counts; largest remainders go up."""
    exact = counts * (n / counts.sum())
    shares = exact.floor().long()
    shares[(exact - shares).argsort(descending=True, stable=True)[: n - int(shares.sum())]] += 1
    return shares


def _others(rows: Tensor, n: int) -> Tensor:
    rest = torch.ones(n, dtype=torch.bool)
    rest[rows] = False
    return rest.nonzero().squeeze(1)
