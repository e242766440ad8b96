"""Tests of chains: run files, manifests, locations and caches."""
