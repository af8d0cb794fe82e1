"""The quick look at a CPU: right while others work, and honest about it."""

import threading
import time

import numpy as np
import pytest

from heddle.cost.measured import local_machine as machine
from heddle.cost.measured.blas import one_thread
from heddle.cost.measured.local_machine import LONGER, Look, disturbed, look, measured_machine
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
        time.sleep(away)

    away = 0.02
    began = time.perf_counter()
    found = look(interrupted)
    assert found.seconds < away / 2
    assert "other work used its core" in found.doubt
    assert time.perf_counter() - began > LONGER  # it looked again, for longer


def test_samples_that_differ_are_doubted():
    assert "samples differ 3.0-fold" in machine._doubt(1.0, [0.001, 0.003, 0.003])
    assert machine._doubt(1.0, [0.001, 0.0011, 0.0012]) == ""


def test_a_product_is_timed_on_one_thread():
    """Threads that wait for each other are busy: on a busy machine they would count for many times the product."""
    a = np.ones((512, 512), dtype=np.float32)

    def threads() -> float:
        whole, own = time.process_time(), time.thread_time()
        for _ in range(20):
            a @ a
        return (time.process_time() - whole) / (time.thread_time() - own)

    usual = threads()
    with one_thread():
        a @ a
        assert threads() < 1.3
    assert threads() > 0.7 * usual  # as before


def test_a_look_of_several_threads_is_doubted():
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            pass

    other = threading.Thread(target=work)
    other.start()
    found = look(lambda: busy(0.002))
    over.set()
    other.join()
    assert "threads of this process were at work" in found.doubt


@pytest.mark.parametrize("doubt", ["", "other work used its core for 97% of the time"])
def test_a_disturbed_look_is_told_with_its_reason(monkeypatch, doubt):
    monkeypatch.setattr(machine, "looked", lambda: (Look(0.001, doubt), Look(0.001, doubt)))
    found = measured_machine(this_machine())
    assert disturbed(found) == bool(doubt)
    assert ("other work used its core for 97% of the time" in found.efficiency.source) == bool(doubt)


def test_processes_that_share_cores_have_the_speed_of_the_cores_together():
    from heddle.cost.measured.local_machine import sharing_cores
    from heddle.cost.step import pace

    two = measured_machine(None)
    eight = sharing_cores(two, 4 * two.devices)
    assert eight.device.tflops.fp32 == pytest.approx(two.device.tflops.fp32 / 4)
    assert eight.device.memory_gbs == pytest.approx(two.device.memory_gbs / 4)
    assert eight.efficiency.collective_us == pytest.approx(4 * two.efficiency.collective_us)
    assert eight.device.tflops.fp32 * pace(eight, 1) == pytest.approx(two.device.tflops.fp32)  # alone on a core


def test_a_process_with_several_cores_multiplies_with_all_of_them(monkeypatch):
    from dataclasses import replace

    from heddle.cost.measured.local_machine import sharing_cores

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    eight = replace(measured_machine(None), devices=8)
    for world, threads in ((1, 8), (2, 4), (3, 2), (5, 1), (8, 1)):
        found = sharing_cores(eight, world)
        assert found.device.tflops.fp32 == pytest.approx(threads * eight.device.tflops.fp32)
        assert found.device.memory_gib == pytest.approx(threads * eight.device.memory_gib)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # which PyTorch obeys, too
    assert sharing_cores(eight, 1).device.tflops.fp32 == pytest.approx(3 * eight.device.tflops.fp32)


def test_a_process_looks_at_its_machine_once():
    assert measured_machine(None) == measured_machine(this_machine())  # two looks would differ in some digit
