"""One run on the disk.

Here live the directory and its lock, run.json, checkpoints, tables of labels, and the classifier
with all that it needs to see new rows. In come results; out come files that are whole or not there,
and what a finished run says when it is read again. Nothing that is read here can run code.
"""
