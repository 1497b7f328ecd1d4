"""The command line, one file a command, each thin.

Here live the commands, the options that they share (`options.py`), and the program they make
(`app.py`). In comes what was typed; out go calls of the rooms below, and one sentence for what a
user did wrong. Whatever is slow to import is imported inside a command.
"""
