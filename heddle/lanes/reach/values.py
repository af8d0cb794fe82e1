"""What the integers of a function may be in one call, at a place where some facts hold."""

from __future__ import annotations

import re

from heddle.lanes.dependence.addresses import Address
from heddle.lanes.dependence.loops import LABEL
from heddle.lanes.ir import BITS, Statement, typed
from heddle.lanes.reach.flow import TURNED, Fact, Flow, holding
from heddle.lanes.reach.spans import (
    IntegerRange,
    NeverError,
    UnboundedError,
    calculated,
    fits,
    join,
    narrowed,
    unsigned,
)

DEEPEST = 64  # steps back through arithmetic


class Values:
    """Integers of one call, at a place where some facts hold."""

    def __init__(self, flow: Flow, given: dict[str, int], facts: list[Fact], busy: frozenset[str] = frozenset()):
        self.flow, self.given, self.facts, self.busy = flow, given, facts, busy
        self.known: dict[str, IntegerRange] = {}

    def reachable(self) -> bool:
        """Whether the facts can all be true."""
        for fact in self.facts:
            try:
                left, right = self.span(fact.left, fact.kind), self.span(fact.right, fact.kind)
                if narrowed(left, fact.predicate, right) is None:
                    return False
            except UnboundedError:
                continue
            except NeverError:
                return False
        return True

    def address(self, at: Address) -> IntegerRange:
        base = IntegerRange(0, 0) if at.base in self.flow.arguments else self._counted(at.base)
        for term, factor in at.terms:
            how, _, name = term.rpartition(":")
            span = self.span(name, self.flow.types.get(name, "i64"))
            if how == "z":
                span = unsigned(span, BITS[self.flow.types[name]])
            low, high = sorted((factor * span.least, factor * span.most))
            base = IntegerRange(base.least + low, base.most + high)
        return IntegerRange(base.least + at.offset, base.most + at.offset)

    def span(self, value: str, kind: str) -> IntegerRange:
        if re.fullmatch(r"-?\d+", value):
            return IntegerRange(int(value), int(value))
        if value in ("true", "false"):
            return IntegerRange(int(value == "true"), int(value == "true"))
        if value not in self.known:
            if value in self.busy or len(self.busy) > DEEPEST or kind not in BITS:
                raise UnboundedError
            self.busy |= {value}
            try:
                self.known[value] = self._narrow(value, self._made(value, kind))
            finally:
                self.busy -= {value}
        return self.known[value]

    def _narrow(self, value: str, span: IntegerRange) -> IntegerRange:
        for fact in self.facts:
            for left, predicate, right, kind in (fact, fact.turned):
                if left == value:
                    try:
                        found = narrowed(span, predicate, self.span(right, kind))
                    except UnboundedError:
                        continue
                    if found is None:
                        raise NeverError
                    span = found
        return span

    def _made(self, value: str, kind: str) -> IntegerRange:
        if value in self.given:
            return IntegerRange(self.given[value], self.given[value])
        s = self.flow.defs.get(value)
        if s is None:
            raise UnboundedError
        if s.op == "phi":
            return self._phi(value, s, kind)
        if s.op == "freeze":
            return self.span(typed(s.text.partition("freeze ")[2])[1], kind)
        if s.op == "select":
            return join(self.span(s.lanes[1], kind), self.span(s.lanes[2], kind))
        if not s.lanes:
            raise UnboundedError
        spans = [self.span(lane, s.operand_type) for lane in s.lanes]
        return calculated(s, spans, BITS[s.operand_type], BITS[kind])

    def _phi(self, value: str, s: Statement, kind: str) -> IntegerRange:
        if self.flow.counter(value) is not None:
            return fits(self._counted(value), BITS[kind])
        pairs = re.findall(rf"\[ (.*?), %{LABEL} \]", s.text)
        found: IntegerRange | None = None
        for name, label in pairs:
            # What holds on the way from there holds of what comes from there.
            other = Values(self.flow, self.given, self.flow.facts(label), self.busy)
            try:
                if other.reachable():
                    span = other.span(name.strip(), kind)
                    found = span if found is None else join(found, span)
            except NeverError:
                continue
        if found is None:
            raise NeverError
        return found

    def _counted(self, phi: str) -> IntegerRange:
        """From a phi's first value to that of its last time round."""
        counter = self.flow.counter(phi)
        if counter is None:
            raise UnboundedError
        first, step = counter
        begin = self._first(first, phi)
        grown = step * (self._rounds(self.flow.home[phi]) - 1)
        return IntegerRange(begin.least + min(0, grown), begin.most + max(0, grown))

    def _first(self, first: str, phi: str) -> IntegerRange:
        if self.flow.types[phi] == "ptr":
            return self.address(self.flow.addresses.address(first))
        return self.span(first, self.flow.types[phi])

    def _rounds(self, header: str) -> int:
        """How often the block that a loop begins with may run."""
        name = f"rounds of {header}"
        if name in self.busy:
            raise UnboundedError
        inside, ends = self.flow.loop(header)
        found = []
        outer = Values(self.flow, self.given, self.flow.facts(header), self.busy | {name})
        for label in {header, *ends} if len(ends) == 1 else {header}:
            taken = self.flow.condition(label)
            if taken and (taken[1] in inside) != (taken[2] in inside):
                fact = holding(taken[0], taken[1] in inside)
                for stays in (fact, fact.turned):
                    if self.flow.home.get(stays.right) in inside:
                        continue  # what it is compared with may change
                    try:
                        found.append(outer._stays(stays, header) + 1)
                    except UnboundedError:
                        continue
        if not found:
            raise UnboundedError
        return min(found)

    def _stays(self, fact: Fact, header: str) -> int:
        """How often in a row a comparison with a counter holds, at most."""
        phi, more = fact.left, 0
        if self.flow.types.get(phi) == "ptr":
            at = self.flow.addresses.address(phi)
            phi, more = at.base, at.offset
            if at.terms:
                raise UnboundedError
        elif (plus := self.flow.plus(phi)) is not None:
            phi, more = plus
        counter = self.flow.counter(phi)
        if counter is None or self.flow.home[phi] != header or not counter[1]:
            raise UnboundedError
        step, begin = counter[1], self._first(counter[0], phi)
        if fact.kind == "ptr":
            start, end = (self.flow.addresses.address(each) for each in (counter[0], fact.right))
            if start.base != end.base:
                raise UnboundedError
            limit = self.address(end)
        else:
            limit = self.span(fact.right, fact.kind)
        begin = IntegerRange(begin.least + more, begin.most + more)
        predicate = fact.predicate
        if predicate[0] == "u":
            if fact.kind != "ptr":
                begin, limit = (unsigned(each, BITS[fact.kind]) for each in (begin, limit))
            predicate = f"s{predicate[1:]}"
        if step < 0:
            begin, limit = IntegerRange(-begin.most, -begin.least), IntegerRange(-limit.most, -limit.least)
            step, predicate = -step, TURNED.get(predicate, predicate)
        if predicate == "ne":
            apart = limit.least - begin.most
            if apart < 0 or (step > 1 and (not begin.known or not limit.known or apart % step)):
                raise UnboundedError  # it never meets it
            return (limit.most - begin.least) // step
        if predicate not in ("slt", "sle"):
            raise UnboundedError
        distance = limit.most - begin.least + (predicate == "sle")
        rounds = max(0, -(-distance // step))
        if fact.kind != "ptr" and begin.most + step * rounds >= 1 << BITS[fact.kind] - (fact.predicate[0] == "s"):
            raise UnboundedError  # it wraps around before it gets there
        if counter[1] < 0 and fact.predicate[0] == "u" and begin.most + step * rounds > 0:
            raise UnboundedError  # below 0
        return rounds
