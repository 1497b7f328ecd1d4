"""What a network sees, and what a network is.

Here live preprocessing, whitening and augmentation, the networks by their names, and features of
images by a network that is trained already. In come rows as stored and a generator; out come
batches that networks take, networks with fresh weights, or features.
"""
