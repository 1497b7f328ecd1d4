"""Data of any kind -> rows and labels: `read` and its parts.

Here lives one file for each kind of source, and what they share: files of labels, tables, and the
words for what is wrong with them. In comes what a user names (a folder, a file, `idx:DIR`); out
comes a `Source`, found but not decoded, and then a `Reading` with all rows.
"""
