"""`saas export`: a finished run as other programs take it.

Here live one file for each kind of output (programs, tables, annotations, folders) and what they
share. In comes a run directory; out comes its classifier (ONNX, torch), or its labels as Label
Studio, FiftyOne, cleanlab or a table have them.
"""

from saas_ssl.exporting.export import FORMATS, export

__all__ = ["FORMATS", "export"]
