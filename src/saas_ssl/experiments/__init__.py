"""`saas compare` and `saas reproduce`.

Here lives one file for each table and figure of the paper, independent of one another, and what
they share: protocols, folders of runs that are not repeated, statistics, verdicts, plots. In come
data and seeds; out come numbers with their spread, figures, and a verdict on what the paper claims.
"""
