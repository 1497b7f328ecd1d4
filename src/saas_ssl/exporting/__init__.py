"""A finished run as other programs take it: its classifier, or its labels."""

from saas_ssl.exporting.export import FORMATS, export

__all__ = ["FORMATS", "export"]
