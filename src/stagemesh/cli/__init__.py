"""One file per command: a cheap declaration, and its work in the same name with a leading `_`."""
