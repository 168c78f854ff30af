"""Messages that two programs exchange: one JSON object per line, a request and its answer.

    > {"v": 1, "id": 1, "op": "logp", "target": "funnel", "args": {"n": 2}, "q": ["0x1p-1", "0x0p+0", "0x0p+0"]}
    < {"id": 1, "logp": "-0.013888888888888888", "hex": {"logp": "-0x1.c71c71c71c71cp-7"}, "digits": 17, "tol": "1.1e-14"}
    < {"id": 1, "error": {"code": "not_supported", "message": "..."}}

A number is a string, in C99's hex-float notation or in decimal, or a JSON number; "nan", "inf" and "-inf" are strings. An
array is a list of numbers, a matrix a list of its rows. refhmc sends every float64 exactly: as hex in
requests, with 17 significant digits and hex in answers. Unknown fields are ignored, an unknown ``op`` is rejected.
An ``id`` is a string, a finite number or null, and is returned with the answer. ``LIMITS`` are the largest requests and answers
of refhmc; ``capabilities`` states them.
Error codes: ``not_supported`` (this program does not have the operation), ``bad_request`` (the request is invalid), ``failed``
(no answer in this case: a solve did not converge, or a metric was not positive definite).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

VERSION = 1
NOT_SUPPORTED, BAD_REQUEST, FAILED = "not_supported", "bad_request", "failed"
DIGITS = 17  # enough to distinguish every float64
LIMITS = {
    "line": 2**24,  # characters
    "id": 1000,  # characters
    "dim": 1000,
    "n": 100_000,  # steps, draws
    "numbers": 1_000_000,  # in one answer
    "depth": 16,  # of NUTS's tree, and so of bits
}
MESSAGE = 500  # largest number of characters of an error message


class Rejection(Exception):
    """An answer that is an error, with one of the three codes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def number(value: Any) -> float:
    """Return a number of the protocol as a float64; Rejection (``bad_request``) if it is invalid."""
    if isinstance(value, str):
        text = value.strip()
        try:
            return float.fromhex(text) if "x" in text.lower() else float(text)
        except (ValueError, OverflowError):
            pass
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise Rejection(BAD_REQUEST, f"a number is expected; got {json.dumps(value)[:60]}")


def array(value: Any, rank: int | None = None) -> np.ndarray:
    """Return nested lists of numbers as a float64 array, with ``rank`` axes if that is given; Rejection if invalid."""
    try:
        result = np.array(_numbers(value), dtype=float)
    except RecursionError:
        raise Rejection(BAD_REQUEST, "the array has too many axes") from None
    except ValueError:
        raise Rejection(BAD_REQUEST, "the rows of the array have different lengths") from None
    if rank is not None and result.ndim != rank:
        raise Rejection(BAD_REQUEST, f"an array with {rank} axes is expected; got shape {result.shape}")
    return result


def _numbers(value: Any) -> Any:
    return [_numbers(item) for item in value] if isinstance(value, list) else number(value)


def hexes(value: Any) -> Any:
    """Return a number or an array as hex-float strings, nested like the array."""
    return _texts(np.asarray(value, dtype=float).tolist(), lambda x: x.hex() if math.isfinite(x) else str(x))


def decimals(value: Any) -> Any:
    """Return a number or an array as decimal strings of 17 significant digits, nested like the array."""
    return _texts(np.asarray(value, dtype=float).tolist(), lambda x: format(x, f".{DIGITS}g"))


def _texts(value: Any, text: Callable[[float], str]) -> Any:
    return [_texts(item, text) for item in value] if isinstance(value, list) else text(value)


def line(message: dict) -> str:
    """Return one object as a line, including its end."""
    return json.dumps(message, separators=(",", ":"), default=str, allow_nan=False) + "\n"


def parse(text: str) -> dict[str, Any]:
    """Return a line as an object; Rejection (``bad_request``) if it is invalid."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Rejection(BAD_REQUEST, f"not valid JSON: {str(error)[:120]}") from None
    if not isinstance(message, dict):
        raise Rejection(BAD_REQUEST, f"a JSON object is expected; got a {type(message).__name__}")
    return message


def identity_of(message: dict) -> Any:
    """Return its ``id``, or None; Rejection for one that cannot be returned."""
    value = message.get("id")
    fits = value is None or isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value))
    if not fits or (isinstance(value, str) and len(value) > LIMITS["id"]):
        raise Rejection(
            BAD_REQUEST, f"id must be a string of at most {LIMITS['id']} characters, a finite number or null"
        )
    return value


def error(identity: Any, code: str, message: str) -> dict:
    """Return the answer that rejects a request."""
    return {"id": identity, "error": {"code": code, "message": message[:MESSAGE]}}
