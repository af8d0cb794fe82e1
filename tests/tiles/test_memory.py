"""Buffers share memory only where no order of tiles could disturb them."""

import random

import pytest
import torch

from heddle.tiles.graph import Tile, TileGraph
from heddle.tiles.memory import place_buffers
from heddle.tiles.values import Buffer, Rect


class Piece:
    kind = "test"

    def __init__(self, name, tiles):
        self.name, self.cut = name, tiles

    def tiles(self):
        return self.cut


@pytest.mark.parametrize("seed", range(20))
def test_memory_is_taken_over_only_by_descendants_of_all_who_used_it(seed):
    chance = random.Random(seed)
    buffers: list[Buffer] = []
    pieces = []
    for number in range(25):
        rows = chance.randint(1, 5)
        made = Buffer(rows * 16, torch.float32, 16)
        tiles = []
        for row in range(rows):
            reads = []
            for source in chance.sample(buffers[-4:], min(len(buffers), chance.randint(0, 2), 4)):
                top = chance.randrange(source.size // 16)
                reads.append((source, Rect(top, chance.randint(top + 1, source.size // 16), 0, 16)))
            tiles.append(Tile(None, [], reads, [(made, Rect(row, row + 1, 0, 16))]))
        buffers.append(made)
        pieces.append(Piece(str(number), tiles))
    graph = TileGraph.build(pieces)
    place_buffers(graph)
    before = graph.ancestors()
    for number, one in enumerate(buffers):
        for other in buffers[number + 1 :]:
            apart = one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset
            if not apart:
                users = [
                    n for n, tile in enumerate(graph.tiles, 1) if any(b is one for b, _ in tile.reads + tile.writes)
                ]
                writers = [n for n, tile in enumerate(graph.tiles, 1) if any(b is other for b, _ in tile.writes)]
                assert all(before[writer] >> user & 1 for writer in writers for user in users)


def test_a_chain_needs_two_buffers():
    buffers = [Buffer(1024, torch.float32, 1024) for _ in range(10)]
    whole = Rect(0, 1, 0, 1024)
    tiles = [
        Piece(str(n), [Tile(None, [], [(buffers[n - 1], whole)] if n else [], [(buffers[n], whole)])])
        for n in range(10)
    ]
    assert place_buffers(TileGraph.build(tiles)) < 3 * 4200
