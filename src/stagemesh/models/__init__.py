"""One folder per model family: topology and facts in `pipeline.py`, networks beside it."""
