import torch
from sklearn.datasets import load_digits

from found import given, tensor
from saas_ssl.sources.digits import read_digits
from saas_ssl.sources.finding import find
from samples import refusal


def test_the_digits_in_their_parts() -> None:
    everything = find("digits")
    parts = [find("digits:train"), find("digits:test")]
    assert [len(source.ids) for source in (everything, *parts)] == [1797, 1347, 450]
    assert sorted([*parts[0].ids, *parts[1].ids], key=int) == list(everything.ids)
    assert {**given(parts[0]), **given(parts[1])} == given(everything)
    assert tensor(everything).shape == (1797, 1, 16, 16)
    assert "no part 'extra'" in refusal(lambda: find("digits:extra"))


def test_they_are_those_that_scikit_learn_loads() -> None:
    digits, theirs = read_digits(image_size=8), load_digits()
    assert torch.equal(digits.x[:, 0], torch.from_numpy(theirs.images * (255 / 16)).round().byte())
    assert digits.y.tolist() == theirs.target.tolist()
    assert list(digits.classes) == [str(name) for name in theirs.target_names]
