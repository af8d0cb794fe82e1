"""Pairs as published: the best on what can be enumerated, legal on what cannot, and the same bits as scalar code."""

import itertools
import time

import pytest

pytest.importorskip("llvmlite")
pytest.importorskip("ortools")

from heddle.lanes import cost, ir, packs
from heddle.lanes import published as pairs
from heddle.lanes.choose import choice
from heddle.lanes.cost import is_constant
from heddle.lanes.dependence import regions
from heddle.lanes.ir import MEMORY_BYTES
from heddle.lanes.policy.kernels import kernel
from heddle.lanes.portfolio import Options, improve, read
from heddle.lanes.published.ilp import Terms, choose
from heddle.lanes.published.orders import LaneOrders
from heddle.lanes.published.units import Level, Unit
from tests.lanes.test_budget import sums
from tests.lanes.test_random_functions import agree, promised

TABLE = cost.table("znver3")
HEAD = "define float @f(ptr noalias %o, ptr noalias %a, ptr %b, float %s) {\n"


def region_of(lines, end="ret float %s"):
    made = ir.take_apart(ir.named(ir.parse_llvm(f"{HEAD}{lines}\n  {end}\n}}\n")))
    (region,) = regions(made.functions[0], made, smallest=1)
    return region


def access(array, index):
    return f"getelementptr inbounds i8, ptr %{array}, i64 {4 * index}"


def load(name, array, index):
    return f"  %p{name} = {access(array, index)}\n  %{name} = load float, ptr %p{name}, align 4\n"


def store(value, index, array="o"):
    return f"  %q{array}{index} = {access(array, index)}\n  store float %{value}, ptr %q{array}{index}, align 4\n"


SMALL = {
    "neighbors": load("x", "a", 0) + load("y", "a", 1) + "  %u = fadd float %x, %s\n  %v = fadd float %y, %s\n"
    + store("u", 0) + store("v", 1),
    "apart": load("x", "a", 0) + load("y", "a", 5) + "  %u = fmul float %x, %x\n  %v = fmul float %y, %s\n"
    "  %w = fmul float %v, %u\n" + store("u", 0) + store("v", 1),
    "commuted": load("x", "a", 0) + load("y", "a", 1) + load("z", "b", 0) + load("t", "b", 1)
    + "  %u = fmul float %x, %z\n  %v = fmul float %t, %y\n" + store("u", 0) + store("v", 1),
    "three stores": load("x", "a", 0) + "  %u = fadd float %x, 1.0\n  %v = fadd float %x, 2.0\n"
    "  %w = fadd float %x, 3.0\n" + store("u", 0) + store("v", 1) + store("w", 2),
    "crossed": load("x", "a", 0) + "  %u = fadd float %x, 1.0\n  %v = fmul float %u, 3.0\n  %w = fmul float %x, 2.0\n"
    "  %t = fadd float %w, 4.0\n" + store("v", 0) + store("t", 1),
    "shared": load("x", "a", 0) + load("y", "a", 1) + "  %u = fadd float %x, %y\n  %v = fsub float %x, %y\n"
    "  %w = fadd float %y, %s\n" + store("u", 0) + store("w", 1),
}  # fmt: skip


def by_enumeration(level, thought_of):
    """The published objective, written down once more and tried for every set of disjoint pairs."""
    region, statements = level.region, level.region.statements
    best = 0
    for size in range(1, len(level.units) // 2 + 1):
        for chosen in itertools.combinations(thought_of, size):
            members = [m for p in chosen for m in p.unit.members]
            if len(set(members)) < 2 * size or not schedulable(region, [p.unit.members for p in chosen]):
                continue
            made = [{statements[m].name for m in p.unit.members} for p in chosen]
            built = {tuple(sorted(c)): c for p in chosen for c in p.unit.columns if set(c) not in made}
            value = sum(building(c) for c in built.values()) - sum(p.saves for p in chosen)
            for m in members:
                readers = region.users.get(statements[m].name, [])
                if any(r not in members for r in readers) or statements[m].name in region.outside:
                    value += TABLE.get("extract <2 x float> 1")
            best = min(best, value)
    return best


def building(column):
    if all(is_constant(v) for v in column):
        return 0
    if len(set(column)) == 1:
        return TABLE.get("first <2 x float> 0") + TABLE.get("broadcast <2 x float>")
    if any(is_constant(v) for v in column):
        return min(TABLE.get(f"insert <2 x float> {k}") for k in (0, 1) if not is_constant(column[k]))
    return TABLE.get("first <2 x float> 0") + TABLE.get("insert <2 x float> 1")


def schedulable(region, groups):
    """Whether the statements can be put in an order with each group at once."""
    left = [set(g) for g in groups]
    left += [{m} for m in range(len(region.statements)) if not any(m in g for g in groups)]
    done = 0
    while left:
        ready = [g for g in left if all(region.before[m] & ~done == 0 for m in g)]
        if not ready:
            return False
        done |= sum(1 << m for g in ready for m in g)
        left = [g for g in left if g not in ready]
    return True


@pytest.mark.parametrize("name", SMALL)
def test_the_best_of_all_pairings_is_found(name):
    level = Level.first(region_of(SMALL[name]), TABLE)
    assert len(level.units) <= 10
    terms = Terms(level)
    found = choose(terms, 5)
    assert terms.pairs
    assert found.value == found.bound == terms.value(found.pairs) == by_enumeration(level, terms.pairs)


def test_both_ways_of_a_product_are_thought_of():
    terms = Terms(Level.first(region_of(SMALL["commuted"]), TABLE))
    ways = [p for p in terms.pairs if terms.level.statement(p.unit).op == "fmul"]
    assert {frozenset(p.unit.columns) for p in ways} == {
        frozenset({("%x", "%t"), ("%z", "%y")}),
        frozenset({("%x", "%y"), ("%z", "%t")}),
    }
    (kept,) = (p for p in ways if terms.pairs.index(p) in choose(terms, 5).pairs)
    assert set(kept.unit.columns) == {("%x", "%y"), ("%z", "%t")}  # which are neighbors in memory


def chain(lane, base):
    """Three operations in a row, the first and the last alike."""
    return (
        f"  %a{lane} = fadd float %s, {base}.0\n  %b{lane} = fmul float %a{lane}, 2.0\n"
        f"  %c{lane} = fadd float %b{lane}, {base + 1}.0\n"
    )


def test_pairs_that_wait_for_each_other_are_not_both_chosen():
    """The last of each of three chains with the first of the next, around: each two of them go, not all three."""
    region = region_of("".join(chain(k, 1 + k) for k in range(3)) + store("c0", 0) + store("c1", 9) + store("c2", 20))
    terms = Terms(Level.first(region, TABLE))
    named = {frozenset(region.statements[m].name for m in p.unit.members): n for n, p in enumerate(terms.pairs)}
    around = [named[frozenset({f"%c{k}", f"%a{(k + 1) % 3}"})] for k in range(3)]
    assert sorted(terms.cycle(around)) == sorted(around)
    for two in itertools.combinations(around, 2):
        assert terms.cycle(two) == []
        assert tuple(sorted(two, reverse=True)) not in terms.crossed
    assert terms.cycle(choose(terms, 5).pairs) == []


def test_packs_are_legal():
    widest = 0
    for seed in range(12):
        module = ir.take_apart(read(kernel(seed, 1 + seed % 3).text))
        for region in regions(module.functions[0], module):
            found = pairs.pack(region, TABLE, 0.1)
            for members in found.packs:
                some = [region.statements[m] for m in members]
                assert len({s.signature for s in some}) == 1, seed
                assert region.independent(list(members)), seed
                assert ir.BITS[some[0].type] * len(some) <= TABLE.register, seed
                if some[0].memory:
                    at = [region.addresses[m] for m in members]
                    size = MEMORY_BYTES[some[0].type]
                    assert len({a.line for a in at}) == 1, seed
                    assert [a.offset for a in at] == [at[0].offset + size * k for k in range(len(at))], seed
                widest = max(widest, len(members))
            narrow = {frozenset(p) for p in found.packs if len(p) == 2}  # in one order or several
            assert sum(map(len, narrow)) == len(frozenset().union(*narrow)), seed
            assert schedulable(region, narrow), seed
    assert widest >= 4


def test_pairs_of_pairs_fill_a_register():
    """Eight products of what lies the other way round: one shuffle, if all are in the order of one of the two."""
    lanes = [load(f"x{k}", "a", 7 - k) + f"  %m{k} = fmul float %x{k}, %s\n" + store(f"m{k}", k) for k in range(8)]
    region = region_of("".join(lanes))
    pairing = pairs.pack(region, TABLE, 1)
    assert [len(p) for p in pairing.packs].count(8) == 3
    graph = packs.build(region, TABLE, pairing.packs)
    found = pairs.solve(graph, pairing, 1)
    kinds = [graph.productions[n].kind for n in found.packing.order if graph.productions[n].cost]
    assert sorted(kinds) == ["broadcast", "load", "pack", "shuffle", "store"]
    assert found.gap == 0


def test_the_same_bits_as_scalar_code():
    emitted, cheaper = 0, 0
    for seed in range(8):
        made = kernel(seed, size=1 + seed % 2)
        found = improve(made.text, Options(method="pairs", seconds=0.2, trials=2, family="znver3"))
        (report,) = found.reports
        assert report.rejected == [], seed
        assert report.cost["pairs"] <= report.cost["scalar"], seed
        cheaper += report.cost["pairs"] < report.cost["scalar"]
        emitted += report.checked
        assert agree(made.text, found.modules["pairs"], made.type, promised(made.text)), seed
    assert emitted == cheaper > 3


def trees():
    """Four lanes whose operands lie in memory in some order each, and are stored in another or returned."""
    orders = [(0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 3, 2), (2, 0, 3, 1)]
    for first, second, third in itertools.product(orders, repeat=3):
        lines = "".join(load(f"x{k}", "a", k) + load(f"y{k}", "b", k) + load(f"z{k}", "a", 8 + k) for k in range(4))
        for k in range(4):
            lines += f"  %m{k} = fdiv float %x{first[k]}, %y{second[k]}\n  %r{k} = fsub float %m{k}, %z{third[k]}\n"
        yield region_of(lines + "".join(store(f"r{k}", 3 - k) for k in range(4)))


def test_lane_orders_are_the_best_for_trees():
    for region in itertools.islice(trees(), 0, None, 5):
        at = region.position
        units = [Unit(tuple(at[f"%{v}{k}"] for k in range(4)), ()) for v in "xyz"]
        units += [
            Unit(members, tuple(zip(*(region.statements[m].lanes for m in members), strict=True)))
            for members in (tuple(at[f"%{v}{k}"] for k in range(4)) for v in "mr")
        ]
        stores = [m for m, s in enumerate(region.statements) if s.op == "store"][::-1]
        units.append(Unit(tuple(stores), (tuple(region.statements[m].lanes[0] for m in stores),)))
        found = LaneOrders(region, TABLE, units).best()
        assert found[:3] == [u.members for u in units[:3]]  # memory's order
        assert found[5] == units[5].members

        def shuffles(m, r, region=region, units=units):
            """What lies between packs in these orders."""
            packs_of = {"x": units[0].members, "y": units[1].members, "z": units[2].members, "m": m, "r": r}
            read = [(m, 0, "x"), (m, 1, "y"), (r, 0, "m"), (r, 1, "z"), (units[5].members, 0, "r")]
            total = 0
            for reader, operand, pack in read:
                has = [region.statements[i].name for i in packs_of[pack]]
                wants = [region.statements[i].lanes[operand] for i in reader]
                total += TABLE.shuffle("float", 4, [has.index(v) for v in wants]) if has != wants else 0
            return total

        best = min(
            shuffles(m, r)
            for m in itertools.permutations(units[3].members)
            for r in itertools.permutations(units[4].members)
        )
        assert shuffles(found[3], found[4]) == best


def test_only_its_packs_are_used():
    region = region_of(SMALL["neighbors"])
    pairing = pairs.pack(region, TABLE, 1)
    graph = packs.build(region, TABLE, pairing.packs)
    found = pairs.solve(graph, pairing, 1)
    wide = [graph.productions[n] for n in found.packing.order if len(graph.productions[n].members) > 1]
    assert {p.members for p in wide} == set(pairing.packs)
    none = pairs.solve(graph, pairs.Pairing((), 0, 0.0, 0.0), 1)
    assert none.cost == choice.cost_of(graph, choice.used(graph, choice.scalar_choice(graph))) > found.cost


def test_packs_that_no_window_has_become_productions():
    region = region_of("".join(load(f"x{k}", "a", k) + store(f"x{k}", k) for k in range(5)))
    stores = tuple(m for m, s in enumerate(region.statements) if s.op == "store")
    for seed in itertools.pairwise(stores):
        assert sum(p.members == seed for p in packs.build(region, TABLE, [seed]).productions) == 1


def test_a_large_block_keeps_to_its_time():
    module = ir.take_apart(read(sums(60)))
    (region,) = regions(module.functions[0], module)
    began = time.process_time()
    found = pairs.pack(region, TABLE, 0.2)
    assert found.spent < 0.5
    assert time.process_time() - began < 6
    assert found.gap > 0
    assert found.packs
