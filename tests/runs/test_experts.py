"""What a run writes of the use of its experts, and what is read of it again."""

from __future__ import annotations

from heddle.reporting.experts import experts
from heddle.runs.experts import ExpertUses, dead_in_words, read_uses


def test_lines_are_read_as_they_were_written_and_a_resumed_run_writes_them_again(tmp_path):
    path = tmp_path / "experts.jsonl"
    rows = [ExpertUses(step, {0: [step, 2], 3: [1, 1]}) for step in (10, 20, 30)]
    again = ExpertUses(20, {0: [9, 9], 3: [1, 1]})
    path.write_text("".join(row.line + "\n" for row in [*rows, again]) + '{"step": 30, "lay')
    assert read_uses(path) == [rows[0], again]
    assert read_uses(tmp_path / "none") == []


def test_balance_is_that_of_the_least_even_layer_and_dead_experts_are_named():
    uses = ExpertUses(5, {0: [100, 100, 100, 100], 2: [400, 0, 0, 0], 4: [1, 0, 0, 0]})
    assert uses.balance == 4.0
    assert uses.dead == {2: [1, 2, 3]}  # of the last layer too little is known
    assert dead_in_words(uses.dead) == "layer 2: 1, 2, 3"
    assert dead_in_words({n: list(range(20)) for n in range(9)}).endswith("layer 3: 0, 1, 2, 3, 4, 5, 6, 7, …; …")


def test_the_page_draws_the_least_even_layer_over_time():
    rows = [ExpertUses(step, {0: [50, 50], 7: [100 - step, step]}) for step in range(1, 200)]
    drawn = experts(rows)
    assert "layer 7" in drawn
    assert drawn.count("<rect") == 2 * 67  # at most 80 points in time
    assert "step 199, expert 1: 199 tokens" in drawn
    assert experts([]) == ""
