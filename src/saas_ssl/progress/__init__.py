"""What a run says of itself.

Here live the bars while it goes on, TensorBoard, `saas status`, and the summary in plain words at
the end. In come numbers, or the files of a run; out come sentences for people.
"""
