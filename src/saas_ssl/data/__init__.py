"""Data of any kind -> one PartiallyLabelled value."""

from saas_ssl.data.digits import read_digits
from saas_ssl.data.partially_labelled import SET_ASIDE, UNLABELLED, PartiallyLabelled
from saas_ssl.data.reading import read
from saas_ssl.data.splits import hold_out, keep_labels, split_validation

__all__ = [
    "SET_ASIDE",
    "UNLABELLED",
    "PartiallyLabelled",
    "hold_out",
    "keep_labels",
    "read",
    "read_digits",
    "split_validation",
]
