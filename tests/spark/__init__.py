"""Tests of the Spark layer, over one shared session."""
