"""What `saas label` and `saas predict` do, from what is asked for to a finished run.

Here live the request and the task, the plan, one call in one process or many (`session.py`), the
run itself (`job.py`), the journal that lets it go on after a crash, and what it leaves. In comes
what a user asked for; out comes a run directory.
"""
