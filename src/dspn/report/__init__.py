"""One self-contained HTML page about a model and data."""

from dspn.report.page import report_html, write_report

__all__ = ["report_html", "write_report"]
