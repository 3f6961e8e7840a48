"""Fakes and one conformance suite per plug-in kind; public, so that third parties can use them."""
