"""Measurements beside the rivals: each ratio is of two things done in turn in the same run."""
