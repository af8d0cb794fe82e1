"""Networks of unlike devices and links, and their files."""

from heddle.spec.network.network import Group, GroupLink, Network, Speed, in_words

__all__ = ["Group", "GroupLink", "Network", "Speed", "in_words"]
