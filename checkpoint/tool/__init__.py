"""The command ``checkpoint``: what git is for source, for state."""
