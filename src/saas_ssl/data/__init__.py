"""Data of any kind -> one PartiallyLabelled value."""

from saas_ssl.data.digits import read_digits
from saas_ssl.data.partially_labelled import UNLABELLED, PartiallyLabelled
from saas_ssl.data.splits import hold_out, keep_labels, split_validation

__all__ = [
    "UNLABELLED",
    "PartiallyLabelled",
    "hold_out",
    "keep_labels",
    "read_digits",
    "split_validation",
]
