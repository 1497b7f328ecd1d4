"""What `saas label` and `saas predict` do, from what is asked for to a finished run.

Here live the data and settings that are asked for (`request`, `task`), the `planning`, one call in
one process or many (`session`, `workers`), the run itself (`job`), the `journal` that lets it go on
after a crash, and what it leaves (`outcome`). In comes what a user asked for; out comes a run
directory, or a table of labels for new data (`predicting`).
"""
