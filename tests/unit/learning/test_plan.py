"""Plans are values that can be written down and compared."""

import json
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from enum import Enum

import numpy as np
import pytest

from dspn.errors import StructureError
from dspn.io.json_values import plain
from dspn.learning import NO_PRIORS, ConditionalLikelihood, EmOptions, Priors
from dspn.learning.growth import GrowthMode, GrowthOptions
from dspn.learning.learner import Plan
from dspn.learning.partitions import PartitionOptions
from dspn.learning.run import describe_options
from dspn.learning.search import Mode, SearchOptions
from dspn.leaves import CategoricalPrior, GaussianPrior
from dspn.structure import Root

OTHERS = [
    Plan(growth=GrowthOptions(patience=7)),
    Plan(growth=GrowthOptions(mode="literal")),
    Plan(growth=GrowthOptions(em=EmOptions(max_steps=7))),
    Plan(search=None),
    Plan(search=SearchOptions(mode="literal")),
    Plan(search=SearchOptions(round_size=5)),
    Plan(search=SearchOptions(partitions=PartitionOptions(threshold=4))),
    Plan(search=SearchOptions(new_part=EmOptions(max_steps=7))),
    Plan(search=SearchOptions(whole=EmOptions(max_steps=7))),
    Plan(priors=NO_PRIORS),
    Plan(priors=Priors(leaves=(CategoricalPrior(0.5),))),
    Plan(priors=Priors(leaves=(CategoricalPrior(0.5), GaussianPrior(0.0, 1.0, 0.1)))),
    Plan(score=ConditionalLikelihood(("x",))),
    Plan(score=ConditionalLikelihood(("y",))),
    Plan(root="last"),
    Plan(tied=False),
    Plan(refit=None),
    Plan(refit=EmOptions(max_steps=7)),
]


def written(plan: Plan) -> str:
    """The plan as a file holds it."""
    return json.dumps(plain(plan.to_json(), "plan"), sort_keys=True, allow_nan=False)


def test_plan_survives_being_written_and_read() -> None:
    for plan in [Plan(), *OTHERS]:
        assert json.loads(written(plan)) == plan.to_json()


def test_equal_plans_are_written_alike_and_others_are_not() -> None:
    assert Plan() == Plan() and hash(Plan()) == hash(Plan()) and written(Plan()) == written(Plan())
    assert len({written(plan) for plan in [Plan(), *OTHERS]}) == len(OTHERS) + 1
    assert len({Plan(), *OTHERS}) == len(OTHERS) + 1


@pytest.mark.parametrize("owner", [GrowthOptions, SearchOptions, EmOptions, PartitionOptions, Plan])
def test_every_option_is_written(owner: type) -> None:
    made = describe_options(owner())
    if owner is Plan:
        made = {"class": "Plan", **Plan().to_json()}
    assert isinstance(made, dict)
    assert made.keys() == {"class", *(field.name for field in fields(owner))}
    assert made["class"] == owner.__name__


def test_names_stand_for_their_members() -> None:
    assert Plan(root="last").root is Root.LAST
    assert GrowthOptions(mode="literal").mode is GrowthMode.LITERAL
    assert SearchOptions(mode="literal").mode is Mode.LITERAL
    assert Plan(root="first") == Plan(root=Root.FIRST)
    assert Plan(root="last").to_json()["root"] == "last"


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("growth", None),
        ("growth", SearchOptions()),
        ("search", GrowthOptions()),
        ("search", "literal"),
        ("priors", 0.1),
        ("score", "likelihood"),
        ("tied", 1),
        ("tied", None),
        ("refit", 10),
        ("root", "middle"),
        ("root", None),
    ],
)
def test_part_of_another_type_is_refused(name: str, bad: object) -> None:
    with pytest.raises(StructureError, match=f"`{name}` must be"):
        replace(Plan(), **{name: bad})


def test_plans_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Plan().tied = False  # type: ignore[misc]


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Spot:
    colour: Colour
    places: tuple[int, ...]


def test_description_goes_through_every_kind_of_value() -> None:
    spot = Spot(Colour.RED, (1, 2))
    expected = {"class": "Spot", "colour": "red", "places": [1, 2]}
    assert describe_options(spot) == expected
    assert describe_options({"a": spot, 2: [spot]}) == {"a": expected, "2": [expected]}
    assert [describe_options(value) for value in (None, True, 1, 1.5, "x")] == [
        None,
        True,
        1,
        1.5,
        "x",
    ]
    assert describe_options(np.float64(0.1)) == 0.1
    assert describe_options(1 + 2j) == "(1+2j)"
