"""Streams to other processes that nobody handed over: who may come in, and how one gets out."""
