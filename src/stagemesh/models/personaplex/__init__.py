"""PersonaPlex: listens and speaks at the same time, frame by frame."""
