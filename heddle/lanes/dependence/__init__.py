"""What may be packed together: stretches of blocks, addresses as sums, loops, and who waits for whom."""

from heddle.lanes.dependence.addresses import Address, Addresses
from heddle.lanes.dependence.loops import loops
from heddle.lanes.dependence.regions import Region, regions

__all__ = ["Address", "Addresses", "Region", "loops", "regions"]
