"""What was found in data, in the form that tests compare."""

from torch import Tensor

from saas_ssl.algorithm.partially_labelled import UNLABELLED, PartiallyLabelled
from saas_ssl.sources.source import Source


def given(source: Source) -> dict[str, str | None]:
    return dict(zip(source.ids, source.labels, strict=True))


def tensor(source: Source) -> Tensor:
    assert isinstance(source.rows, Tensor)
    return source.rows


def names(data: PartiallyLabelled) -> list[str | None]:
    return [None if k == UNLABELLED else data.classes[k] for k in data.y.tolist()]
