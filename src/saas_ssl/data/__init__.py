"""Which rows and labels are used.

Here live splits and hidden labels, fair shares of classes, and arrays as notebooks hold them. In
come rows with labels, or arrays; out come the same rows, in the one form that the algorithm takes,
each labelled, unlabelled or set aside.
"""
