"""One severity per row, from OTLP's number and text, in upper case.

The number decides where it is one of OTLP's 24; otherwise the text does, by the words that loggers use; a text that is
none of them is kept, in upper case; "" means that there is neither.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakerunner.pipeline.read.rows import Coded, Numbers, Rows

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
WORDS = {
    **{level: level for level in LEVELS},
    "FINEST": "TRACE",
    "FINER": "TRACE",
    "VERBOSE": "TRACE",
    "FINE": "DEBUG",
    "CONFIG": "DEBUG",
    "INFORMATION": "INFO",
    "INFORMATIONAL": "INFO",
    "NOTICE": "INFO",
    "WARNING": "WARN",
    "ERR": "ERROR",
    "SEVERE": "ERROR",
    "CRIT": "FATAL",
    "CRITICAL": "FATAL",
    "ALERT": "FATAL",
    "EMERG": "FATAL",
    "EMERGENCY": "FATAL",
    "PANIC": "FATAL",
}


def severity_of(number: int, text: str) -> str:
    """The severity of one record."""
    if 1 <= number <= 24:
        return LEVELS[(number - 1) // 4]
    word = text.strip().upper()
    return WORDS.get(word, word)


def reconcile_severity(rows: Rows) -> Rows:
    """Adds severity."""
    texts = rows.column("severity_text", Coded)
    by_text = [severity_of(0, text) for text in texts.values.to_pylist()]
    known = list(dict.fromkeys((*LEVELS, *by_text)))
    code_of = {severity: code for code, severity in enumerate(known)}
    codes_by_text = np.array([code_of[severity] for severity in by_text], np.int32)
    number = rows.column("severity_number", Numbers).values
    by_number = (number - 1) >> 2
    codes = np.where((number >= 1) & (number <= 24), by_number, codes_by_text[texts.codes])
    return rows.plus(severity=Coded(codes.astype(np.int32), pa.array(known, pa.string())))
