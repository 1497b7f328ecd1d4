"""What is asked of an export besides its format."""

from dataclasses import dataclass
from pathlib import Path

from saas_ssl.vision.networks import NetworkFactory


@dataclass(frozen=True)
class Asked:
    """Each format takes some of these; what is None or False was not asked for."""

    run: Path
    out: Path  # where it will be in the end
    input: str | None = None  # uint8 or float
    accepted: bool = False
    link: bool = False
    image_prefix: str | None = None
    data: str | None = None  # where the data of the run are now
    network: NetworkFactory | None = None  # of a network that is none of ours
