"""A finished run as one page to look at: report.html.

Here live what the page shows and why those rows, its charts, and the names made fit to be shown;
`theme.css` is worn by the review page as well. In come the files of a run; out comes one file that
needs no other and runs nothing.
"""

from saas_ssl.report.gallery import Thumbnail
from saas_ssl.report.report import write_report

__all__ = ["Thumbnail", "write_report"]
