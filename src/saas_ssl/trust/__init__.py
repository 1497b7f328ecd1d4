"""How far labels can be believed.

Here live calibration, the decision on each label (accept, review, outlier), given labels that look
wrong, the expected accuracy, and which rows to check first. In come scores of rows, some of them
with labels that were left out; out come probabilities, decisions and intervals.
"""
