"""Data of any kind -> rows and labels: `read` and its parts.

Here live what a name means (`finding`), one file for each kind of source, and what they share:
files of labels and how names match, tables (CSV of paths is in `folders`, of features in
`features`). In comes what a user names (a folder, a file, `idx:DIR`); out comes a `Source`, found
but not decoded, and then a `Reading` with all rows.
"""
