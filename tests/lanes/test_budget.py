"""How the integer program's time is shared out, and work that may crash, hang or talk."""

import os
import time
from importlib import import_module

import pytest

pytest.importorskip("llvmlite")

from heddle.lanes import pack
from heddle.lanes.child import in_child
from heddle.lanes.portfolio import Options, improve


def test_one_region_gets_what_was_asked_for_and_many_share():
    alone, cut = ("f", "alone"), ("f", "cut")
    budget = pack.Budget(10.0)
    assert budget.share(alone, 1) == 10.0
    given = []
    for waiting in range(20, 0, -1):
        given.append(budget.share(cut, waiting))
        budget.spend(cut, given[-1])
    assert given[0] == 2.0  # an even share, twice
    assert sum(given) <= pack.PER_BLOCK * 10.0 + 20 * pack.LEAST


def test_a_module_never_runs_out_but_runs_short():
    budget = pack.Budget(10.0)
    given = []
    for k in range(400):
        block = "f", f"b{k}"
        given.append(budget.share(block, 1))
        budget.spend(block, given[-1])
    assert given[:3] == [10.0] * 3
    assert given == sorted(given, reverse=True)
    assert min(given) == pack.LEAST
    assert sum(given) <= pack.PER_MODULE * 10.0 + 400 * pack.LEAST


def sums(count):
    """A block in which every element is the sum of three, from places that lie apart."""
    lines = []
    for k in range(count):
        for name, at in (("x", k), ("y", 7 * k % count), ("z", 3 * k % count)):
            lines += [
                f"  %{name}p{k} = getelementptr inbounds i8, ptr %a, i64 {4 * at}",
                f"  %{name}{k} = load float, ptr %{name}p{k}, align 4",
            ]
        lines += [
            f"  %s{k} = fmul float %x{k}, %y{k}",
            f"  %t{k} = fadd float %s{k}, %z{k}",
            f"  %o{k} = getelementptr inbounds i8, ptr %o, i64 {4 * k}",
            f"  store float %t{k}, ptr %o{k}, align 4",
        ]
    return "define void @f(ptr noalias %o, ptr noalias %a) {\n" + "\n".join(lines) + "\n  ret void\n}\n"


@pytest.mark.slow
def test_a_long_block_says_that_time_was_short():
    (report,) = improve(sums(300), Options(seconds=0.2)).reports
    assert "ran short of time" in " ".join(report.notes)
    assert report.cost[report.chosen] <= report.cost["llvm"]


def test_too_long_a_block_is_left_to_llvm(monkeypatch):
    monkeypatch.setattr(pack, "MOST_STATEMENTS", 100)
    (report,) = improve(sums(40), Options(seconds=1)).reports
    assert "is left to LLVM; up to 100 are packed" in report.notes[0]
    assert report.blocks == []


def test_a_child_that_spins_crashes_or_prints_is_no_trouble(capfd):
    def spins():
        yield b"a"
        while True:
            pass

    def prints():
        os.write(1, b"to the user")
        yield b"b" if os.read(0, 1) == b"" else b"?"

    def crashes():
        yield b"c"
        os.abort()

    began = time.process_time()
    assert in_child(spins, seconds=1) == b"a"
    assert in_child(prints) == b"b"
    assert in_child(crashes) == b"c"
    assert time.process_time() - began < 1
    assert capfd.readouterr() == ("", "")


def many(count):
    """Blocks that each have something to pack."""
    lines = ["define void @f(ptr noalias %o, ptr %a, ptr %v) {", "entry:", "  br label %b0"]
    for n in range(count):
        lines.append(f"b{n}:")
        for k in range(4):
            lines += [
                f"  %p{n}.{k} = getelementptr inbounds i8, ptr %a, i64 {4 * k}",
                f"  %x{n}.{k} = load float, ptr %p{n}.{k}, align 4",
                f"  %y{n}.{k} = fadd float %x{n}.{k}, {n}.0",
                f"  %q{n}.{k} = getelementptr inbounds i8, ptr %o, i64 {4 * k}",
                f"  store float %y{n}.{k}, ptr %q{n}.{k}, align 4",
            ]
        lines += [f"  %c{n} = load volatile i1, ptr %v", f"  br i1 %c{n}, label %b{n + 1}, label %out"]
    return "\n".join([*lines, f"b{count}:", "  br label %out", "out:", "  ret void", "}", ""])


def test_many_regions_are_checked_together(monkeypatch):
    children = []
    module = import_module("heddle.lanes.check.check")
    monkeypatch.setattr(module, "in_child", lambda *work: children.append(1) or in_child(*work))
    (report,) = improve(many(40), Options(method="ilp", seconds=1)).reports
    assert report.checked == 40
    assert len(children) == 2


def test_what_there_is_no_time_for_is_left_to_llvm(monkeypatch):
    monkeypatch.setattr(pack, "BESIDE", 0.0)
    monkeypatch.setattr(pack, "BESIDE_LEAST", 0.05)
    (report,) = improve(many(40), Options(seconds=1)).reports
    assert report.checked < 80
    assert "regions are left to LLVM: time for the module ran out" in report.notes[-1]
