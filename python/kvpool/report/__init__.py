"""Reports: one self-contained HTML file each, to be kept, mailed and printed.

::

    page        the frame around every report, and pieces of HTML
    occupancy   who held how many blocks when, as a drawing
    demo        the report of ``kvpool demo``
    style.css, hover.js     put into the page as they are

A report loads nothing: style, drawings, data and script are in the file.

Examples
--------
>>> from kvpool.report import render_demo
>>> page = render_demo(result)                                    # doctest: +SKIP
>>> Path("report.html").write_text(page, "utf-8")                 # doctest: +SKIP
"""

from kvpool.report.demo import render_demo

__all__ = ["render_demo"]
