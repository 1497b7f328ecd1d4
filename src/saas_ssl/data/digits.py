"""scikit-learn's bundled digits: real data that every installation has."""

import torch
from torch.nn.functional import interpolate

from saas_ssl.data.partially_labelled import PartiallyLabelled


def read_digits(image_size: int = 16) -> PartiallyLabelled:
    """1,797 handwritten digits, 8x8 grey, enlarged bilinearly to `image_size`; all labelled."""
    from sklearn.datasets import load_digits  # heavy: only where it is needed

    bunch = load_digits()
    pixels = torch.from_numpy(bunch.images).float().unsqueeze(1) * (255 / 16)
    if image_size != pixels.shape[-1]:
        pixels = interpolate(pixels, size=(image_size, image_size), mode="bilinear")
    return PartiallyLabelled(
        x=pixels.round().clamp(0, 255).to(torch.uint8),
        y=torch.from_numpy(bunch.target).long(),
        classes=[str(name) for name in bunch.target_names],
        ids=[str(row) for row in range(len(pixels))],
    )
