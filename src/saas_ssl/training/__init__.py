"""Data and settings -> both phases and the supervised baseline.

Here live settings and presets, the problem they make with the data, phase one with labels left out,
what networks say of rows, budgets of time, devices, and several processes. In come partly labelled
rows and settings; out come posteriors, classifiers and their errors. Nothing is written here.
"""
