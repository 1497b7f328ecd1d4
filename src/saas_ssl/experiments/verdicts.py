"""What the paper claims, and whether our runs bear it out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from saas_ssl.experiments.statistics import Estimate, Runs, differences, estimate

CLAIMS = {
    "1": "wrong labels slow training, monotonically",
    "2": "α > 0 beats α = 0",
    "3": "more unlabelled data, lower error",
    "4": "later pseudo-labels train faster",
    "5": "|B| = 25 beats 100, and noise closes the gap",
    "6": "without augmentation SaaS suffers",
    "7": "SaaS beats its supervised baseline clearly",
    "8": "starting P_u at the outputs of the supervised baseline is a trivial solution",
    "9": "SaaS combines with VAT",
    "footnote 2": "weights drawn anew or reset to the first draw give similar results",
}

Answer = Literal["holds", "does not hold", "undecided at this scale"]
UNDECIDED: Answer = "undecided at this scale"


@dataclass(frozen=True)
class Effect:
    """A number that the claim says is positive, over the runs."""

    what: str
    unit: str
    estimate: Estimate

    @property
    def size(self) -> float | None:
        """Cohen's d: the mean in standard deviations."""
        spread = self.estimate.std
        return self.estimate.mean / spread if spread else None

    def as_json(self) -> dict[str, Any]:
        """With all numbers."""
        own = self.estimate
        ends = {"low": own.low, "high": own.high}
        return {"what": self.what, "unit": self.unit, "size": self.size, **asdict(own), **ends}

    def answer(self) -> Answer:
        """Whether it is positive, negative, or cannot be told from 0."""
        low, high = self.estimate.low, self.estimate.high
        if low is None or high is None:
            return UNDECIDED
        return "holds" if low > 0 else "does not hold" if high < 0 else UNDECIDED


@dataclass(frozen=True)
class Verdict:
    """A claim, the effects that it is judged by, and the judgement."""

    claim: str  # its number in CLAIMS
    answer: Answer
    effects: Sequence[Effect]
    rule: str
    also: Sequence[Effect] = ()  # what explains it, without a say in it

    def as_json(self) -> dict[str, Any]:
        """With all numbers."""
        return {
            "claim": self.claim,
            "text": CLAIMS[self.claim],
            "verdict": self.answer,
            "rule": self.rule,
            "effects": [effect.as_json() for effect in self.effects],
            "also": [effect.as_json() for effect in self.also],
        }


def effect(what: str, values: Sequence[float], unit: str = "points") -> Effect:
    """An effect from one number for each run."""
    return Effect(what, unit, estimate(values))


def lower_by(what: str, a: Runs, b: Runs) -> Effect:
    """By how many points error b is below error a, run for run."""
    return effect(what, [100 * d for d in differences(a, b)])


def all_positive(claim: str, *effects: Effect, also: Sequence[Effect] = ()) -> Verdict:
    """The claim holds if all effects are positive, and does not if one is negative."""
    answers = [own.answer() for own in effects]
    answer: Answer = UNDECIDED
    if "does not hold" in answers:
        answer = "does not hold"
    elif all(own == "holds" for own in answers):
        answer = "holds"
    rule = "holds if the 95 % intervals of all effects are above 0"
    return Verdict(claim, answer, effects, rule, also)


def similar(claim: str, difference: Effect, margin: float) -> Verdict:
    """The claim holds if the whole interval of a difference is within the margin."""
    low, high = difference.estimate.low, difference.estimate.high
    answer: Answer = UNDECIDED
    if low is not None and high is not None:
        if -margin <= low and high <= margin:
            answer = "holds"
        elif low > margin or high < -margin:
            answer = "does not hold"
    rule = f"holds if the 95 % interval is within ± {margin:g} ({difference.unit})"
    return Verdict(claim, answer, [difference], rule)


def in_words(effect: Effect) -> str:
    """+1.20 points (95 % interval +0.40 to +2.00, 5 runs): ..."""
    own = effect.estimate
    runs = f"{own.runs} run{'s' if own.runs != 1 else ''}"
    between = "" if own.low is None else f"95 % interval {own.low:+.2f} to {own.high:+.2f}, "
    return f"{own.mean:+.2f} {effect.unit} ({between}{runs}): {effect.what}"


def as_markdown(verdicts: Sequence[Verdict]) -> str:
    """A table for people."""
    lines = ["| claim | verdict | effect | mean / std |", "|---|---|---|---|"]
    for verdict in verdicts:
        head = f"({verdict.claim}) {CLAIMS[verdict.claim]}"
        sizes = "; ".join(
            "none" if own.size is None else f"{own.size:+.1f}" for own in verdict.effects
        )
        effects = "; ".join(in_words(own) for own in verdict.effects)
        head = head.replace("|", "\\|")
        lines.append(f"| {head} | **{verdict.answer}** | {effects} | {sizes} |")
    also = [f"- {in_words(own)}" for verdict in verdicts for own in verdict.also]
    return "\n".join([*lines, *(["", "Besides:", "", *also] if also else [])]) + "\n"


def by_seed(records: Mapping[int, Mapping[str, Any]], name: str) -> dict[int, float]:
    """One number of each run."""
    return {seed: float(record[name]) for seed, record in records.items()}
