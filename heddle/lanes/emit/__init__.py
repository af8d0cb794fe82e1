"""Vector IR for what was chosen: regions, the functions they are in, and whole modules."""

from heddle.lanes.emit.emitted import Emitted
from heddle.lanes.emit.emitter import emit, fresh_prefix

__all__ = ["Emitted", "emit", "fresh_prefix"]
