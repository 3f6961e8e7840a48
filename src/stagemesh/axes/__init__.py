"""One file per parallel axis: what it means for a plan. No torch, no I/O, no axis knows another."""
