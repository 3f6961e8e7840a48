"""Stores over which ranks find each other: public in torch, but not in its types."""

from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore, Store, TCPStore

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]
