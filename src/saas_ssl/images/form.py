"""The form that every image of a set is brought to, and what a set has been found to be."""

from dataclasses import dataclass

SMALLEST_COMMON_SIZE, LARGEST_COMMON_SIZE = 8, 64  # networks take no smaller ones
LARGEST_SIDE = 1024
USUAL_SIZE = 32


@dataclass(frozen=True)
class Form:
    """What every image of a set is brought to."""

    height: int
    width: int
    channels: int  # 1 grey, 3 colour
    white: int = 255  # the value of 16-bit images that becomes 255


@dataclass(frozen=True)
class Seen:
    """What a set of images has been found to be, so far."""

    sizes: frozenset[tuple[int, int]] = frozenset()  # (height, width); two say that they differ
    colour: bool = False
    white: int = 255

    def __or__(self, other: "Seen") -> "Seen":
        sizes = frozenset(sorted(self.sizes | other.sizes)[:2])
        return Seen(sizes, self.colour or other.colour, max(self.white, other.white))

    def form(self, image_size: int | None) -> Form:
        """Squares of `image_size`; without one, the common size if it is small, else 32 x 32."""
        height = width = image_size or USUAL_SIZE
        if image_size is None and len(self.sizes) == 1:
            (common,) = self.sizes
            if min(common) >= SMALLEST_COMMON_SIZE and max(common) <= LARGEST_COMMON_SIZE:
                height, width = common
        return Form(height, width, 3 if self.colour else 1, self.white)
