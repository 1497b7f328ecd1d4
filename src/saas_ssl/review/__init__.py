"""`saas review`: labels checked by a person, on a local page.

Here live the page and its server, who is let in, the log of every decision, and the file of labels
that comes of it. In comes a finished run; out comes `review.jsonl`, written before the page says
so, and labels for the next run.
"""
