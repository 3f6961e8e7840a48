"""Who starts the processes of stages: this start itself, or others that come from elsewhere."""
