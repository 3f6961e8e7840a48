"""One file per transport between stages. Declarations are free of torch; nothing here knows the runtime."""
