"""Image files -> pixels.

Here live the decoding of one image of any kind (`pixels`), of many by all cores (`pool`), their
common size, colours and white (`form`), the memory map that keeps them (`cache`), and pictures for
a browser. In come files, bytes or arrays; out come uint8 pixels of one form, and the reason for
each image that cannot be used. What runs in the processes that decode imports no torch.
"""
