"""Networks of unlike devices and links, and their files."""

from heddle.spec.network.network import DeviceGroup, GroupLink, Network, Speed, in_words

__all__ = ["DeviceGroup", "GroupLink", "Network", "Speed", "in_words"]
