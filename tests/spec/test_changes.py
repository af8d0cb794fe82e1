"""Single keys of a job changed, as `--set` does, and plans written as such changes."""

from typing import Any

import pytest

from heddle.errors import HeddleError
from heddle.spec.changes import apply_change, changes_of
from heddle.spec.layer_memory import LayerRun
from heddle.spec.network.link_codes import LinkCodes
from heddle.spec.plan import Plan
from heddle.spec.tables import build, to_table


def changed(*changes: str) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for change in changes:
        apply_change(document, change)
    return document


def test_a_change_reaches_a_table_within_a_table():
    assert changed("cluster.efficiency.matmul=0.6", "cluster.nodes=4", "train.name=a b") == {
        "cluster": {"efficiency": {"matmul": 0.6}, "nodes": 4},
        "train": {"name": "a b"},
    }


@pytest.mark.parametrize("change", ["train.steps=5\nsave_every=1", "train.steps=5\n# more", "train.name=a\nb"])
def test_text_after_the_end_of_a_line_is_not_dropped(change):
    with pytest.raises(HeddleError, match="more than one line"):
        changed(change)


@pytest.mark.parametrize("change", ["train", "train.steps", "steps=5", ".steps=5", "train.=5", "a..b=5"])
def test_a_change_needs_a_table_a_key_and_a_value(change):
    with pytest.raises(HeddleError, match="does not give a key and a value"):
        changed(change)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(),
        Plan(tensor=8, sequence=True, pipeline=4, stages=(6, 7, 7, 4), data=2, zero=1, recompute="selective"),
        Plan(
            layers=(LayerRun(layers="0-3", recompute="full", offload=("optimizer:host",)), LayerRun(layers="4", zero=3))
        ),
        Plan(recompute=("none", "full", "full", "none")),
        Plan(data=2, codes=(LinkCodes(groups=("a\"b'", "c"), gradients="int8"),)),
    ],
)
def test_a_plan_written_as_changes_is_read_as_the_same_plan(plan):
    written = changes_of("plan", to_table(plan))
    assert all("\n" not in change for change in written)
    assert build(Plan, changed(*written)["plan"], "plan") == plan
