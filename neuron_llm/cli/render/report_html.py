"""`bucket-report --html`: the report with pictures, as a file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from neuron_llm.cli.terminal.console import Console
from neuron_llm.errors import NeuronLLMError
from neuron_llm.report.bucket_report import BucketReport


def check_html_path(path: Path, others: Iterable[Path | None]) -> None:
    """Refuse a path that nothing can be written to, which would be found out after all the work.

    Args:
        path: where the page is wanted.
        others: the command's other files, as far as they are given; none of them is replaced.

    Raises:
        NeuronLLMError: it is a directory or one of `others`, or its folder is not there or cannot
            be written to.
    """
    if any(other is not None and other.resolve() == path.resolve() for other in others):
        reason = "another option names it too"
    elif path.is_dir():
        reason = "is a directory"
    elif not path.parent.is_dir():
        reason = "no such directory"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "permission denied"
    else:
        return
    raise NeuronLLMError(
        f"cannot write `{path}`: {reason}", hint="name a file in a folder that can be written to"
    )


def write_html(console: Console, report: BucketReport, path: Path) -> None:
    """Write the page.

    Args:
        console: told where.
        report: what the page shows.
        path: checked already.

    Raises:
        OSError: the disk is full, or the folder has gone since.
    """
    from neuron_llm.report.html.page import render_page

    path.write_text(render_page(report), encoding="utf-8")
    console.notice(f"wrote {path}")
