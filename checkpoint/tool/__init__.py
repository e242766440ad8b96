"""The command ``checkpoint``: what git is for source, for state.

``command`` is the frame of all commands, ``source`` what they work on, ``content`` what a checkpoint holds, and
``printing`` how they print. The other modules have a command or two each, and what these need.
"""
