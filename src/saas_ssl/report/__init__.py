"""A finished run as one page to look at: report.html."""

from saas_ssl.report.gallery import Thumbnail
from saas_ssl.report.report import write_report

__all__ = ["Thumbnail", "write_report"]
