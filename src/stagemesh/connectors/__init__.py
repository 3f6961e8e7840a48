"""One file per transport between stages; declarations without torch, nothing knows the runtime."""
