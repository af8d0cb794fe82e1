"""Where a run keeps what leaves its device: page-locked host memory, or a file on disk that nobody else can see."""

from heddle.runtime.tiers.disk import Disk
from heddle.runtime.tiers.host import Host
from heddle.runtime.tiers.tier import Slot, Tier, tier_of
from heddle.runtime.tiers.tiers import Tiers

__all__ = ["Disk", "Host", "Slot", "Tier", "Tiers", "tier_of"]
