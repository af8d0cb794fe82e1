"""Who measures with whom, and when: all pairs in as few rounds as there can be, disjoint pairs at once."""

from __future__ import annotations


def rounds(players: int) -> list[list[tuple[int, int]]]:
    """The circle method of round-robin tournaments: everybody meets everybody once, in n - 1 rounds (n if n is odd).

    The first stays where it is, the others go round; with an odd number, whoever meets the empty seat rests.
    """
    seats: list[int | None] = [*range(players), *[None] * (players % 2)]
    half = len(seats) // 2
    found = []
    for _ in range(len(seats) - 1):
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        found.append([(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return [pairs for pairs in found if pairs]
