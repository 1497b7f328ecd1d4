from found import given, tensor
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
