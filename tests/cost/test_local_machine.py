"""The quick look at a CPU: right while others work, and honest about it."""

import time

import pytest

from heddle.cost import local_machine as machine
from heddle.cost.local_machine import LONGER, Look, disturbed, look, measured_machine
from heddle.spec.this_machine import this_machine


def busy(seconds: float) -> None:
    """Work for so long by the processor's clock, whoever else works."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_time_away_from_the_core_is_not_counted():
    """A look whose core others have 95 % of the time finds what its own work takes, and says that it was disturbed."""

    def interrupted():
        busy(0.001)
        time.sleep(0.02)

    began = time.perf_counter()
    found = look(interrupted)
    assert found.seconds < 0.01
    assert "other work used its core" in found.doubt
    assert time.perf_counter() - began > LONGER  # it looked again, for longer


def test_samples_that_differ_are_doubted():
    assert "samples differ 3.0-fold" in machine._doubt(1.0, [0.001, 0.003, 0.003])
    assert machine._doubt(1.0, [0.001, 0.0011, 0.0012]) == ""
    assert machine._doubt(2.0, [0.001, 0.0011, 0.0012]) == ""  # two threads


@pytest.mark.parametrize("doubt", ["", "other work used its core for 97% of the time"])
def test_a_disturbed_look_is_told_with_its_reason(monkeypatch, doubt):
    monkeypatch.setattr(machine, "look", lambda work: Look(0.001, doubt))
    found = measured_machine(this_machine())
    assert disturbed(found) == bool(doubt)
    assert doubt in found.efficiency.source


def test_processes_that_share_cores_have_the_speed_of_the_cores_together():
    from heddle.cost.local_machine import sharing_cores
    from heddle.cost.step import pace

    two = measured_machine(None)
    eight = sharing_cores(two, 4 * two.devices)
    assert eight.device.tflops.fp32 == pytest.approx(two.device.tflops.fp32 / 4)
    assert eight.device.memory_gbs == pytest.approx(two.device.memory_gbs / 4)
    assert eight.efficiency.collective_us == pytest.approx(4 * two.efficiency.collective_us)
    assert eight.device.tflops.fp32 * pace(eight, 1) == pytest.approx(two.device.tflops.fp32)  # alone on a core
