"""Image files -> pixels.

Here live the decoding of one image of any kind, of many by all cores, and the memory map that keeps
them. In come files, bytes or arrays; out come uint8 pixels of one form, and the reason for each
image that cannot be used. What runs in the processes that decode imports no torch.
"""
