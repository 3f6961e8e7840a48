"""One folder per model family: topology and facts in pipeline.py without torch, networks beside it."""
