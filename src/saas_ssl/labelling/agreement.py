"""What the first of several processes tells the others before they begin."""

from hashlib import sha256

import torch
from pydantic import BaseModel

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.training.presets import Settings
from saas_ssl.training.ranks import Ranks


class Agreement(BaseModel):
    """What rank 0 tells the others before they begin."""

    settings: Settings
    data: str  # a hash, so that no rank works on others


def agreed(ranks: Ranks, agreement: Agreement) -> Agreement:
    """What rank 0 says, if this is about the same data."""
    text = ranks.text_from_first(agreement.model_dump_json())
    told = Agreement.model_validate_json(text)
    if told.data != agreement.data:
        raise ValueError("the data here are not those that the first process has read")
    return told


def sample(data: PartiallyLabelled) -> str:
    """A hash of the labels and of a thousand rows: cheap, and unlike for unlike data."""
    rows = torch.arange(len(data.y))[:: max(1, len(data.y) // 1000)]
    return sha256(data.y.numpy().tobytes() + data.x[rows].numpy().tobytes()).hexdigest()
