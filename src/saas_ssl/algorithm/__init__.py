"""The paper, and nothing else: Algorithm 1 is `phases.py`, in the paper's symbols.

Here live both phases, what they are made of (projection, losses, batches, descent), the one form in
which data reach them, and every draw. In come rows with a few labels, a way to draw networks and a
view of the rows; out come posteriors P_u and a classifier, iteration by iteration. It imports torch
and itself only: no files, no devices, no progress.
"""
