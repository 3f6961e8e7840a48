"""One file per command: a cheap declaration; the work is in the file of the same name with a leading `_`."""
