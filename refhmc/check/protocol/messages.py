"""The lines that two programs exchange: one JSON object a line, a request and its answer.

    > {"v": 1, "id": 1, "op": "logp", "target": "funnel", "args": {"n": 2}, "q": ["0x1p-1", "0x0p+0", "0x0p+0"]}
    < {"id": 1, "logp": "-0.013888888888888888", "hex": {"logp": "-0x1.c71c71c71c71cp-7"}, "digits": 17, "tol": "1.1e-14"}
    < {"id": 1, "error": {"code": "not_supported", "message": "..."}}

A number is a string, in C99's hex-float notation or in decimal, or a JSON number; "nan", "inf" and "-inf" are strings. An
array is a list of numbers, a matrix a list of its rows. refhmc sends every float64 so that it arrives exactly: hex in
requests, 17 significant digits beside the hex in answers. Unknown fields are ignored, an unknown ``op`` is refused.
An ``id`` is a string, a finite number or null, and comes back with the answer. ``LIMITS`` are what refhmc reads and answers at
most; ``capabilities`` states them.
The codes of errors: ``not_supported`` (this program has no such thing), ``bad_request`` (the request is at fault), ``failed``
(this once there is no answer: a solve did not converge, a metric was not positive definite).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

VERSION = 1
NOT_SUPPORTED, BAD_REQUEST, FAILED = "not_supported", "bad_request", "failed"
DIGITS = 17  # that tell every float64 from its neighbours
LIMITS = {
    "line": 2**24,  # characters
    "id": 1000,  # characters
    "dim": 1000,
    "n": 100_000,  # steps, draws
    "numbers": 1_000_000,  # in one answer
    "depth": 16,  # of NUTS's tree, and so bits
}
MESSAGE = 500  # characters of an error's


class Refusal(Exception):
    """An answer that is an error; ``code`` is one of the three."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def number(value: Any) -> float:
    """A number of the protocol as a float64; Refusal (``bad_request``) if it is none."""
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
    raise Refusal(BAD_REQUEST, f"not a number: {json.dumps(value)[:60]}")


def array(value: Any, rank: int | None = None) -> np.ndarray:
    """Nested lists of numbers as a float64 array, of ``rank`` axes if that is given; Refusal if they are none."""
    try:
        result = np.array(_numbers(value), dtype=float)
    except RecursionError:
        raise Refusal(BAD_REQUEST, "an array of too many axes") from None
    except ValueError:
        raise Refusal(BAD_REQUEST, "the rows of an array have different lengths") from None
    if rank is not None and result.ndim != rank:
        raise Refusal(BAD_REQUEST, f"an array of {rank} axes was wanted, got one of the shape {result.shape}")
    return result


def _numbers(value: Any) -> Any:
    return [_numbers(item) for item in value] if isinstance(value, list) else number(value)


def hexes(value: Any) -> Any:
    """A number or an array as hex-float strings, nested like the array."""
    return _texts(np.asarray(value, dtype=float).tolist(), lambda x: x.hex() if math.isfinite(x) else str(x))


def decimals(value: Any) -> Any:
    """A number or an array as decimal strings of 17 significant digits, nested like the array."""
    return _texts(np.asarray(value, dtype=float).tolist(), lambda x: format(x, f".{DIGITS}g"))


def _texts(value: Any, text: Callable[[float], str]) -> Any:
    return [_texts(item, text) for item in value] if isinstance(value, list) else text(value)


def line(message: dict) -> str:
    """One object as a line, with its end."""
    return json.dumps(message, separators=(",", ":"), default=str, allow_nan=False) + "\n"


def parse(text: str) -> dict[str, Any]:
    """A line as an object; Refusal (``bad_request``) if it is none."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refusal(BAD_REQUEST, f"not JSON: {str(error)[:120]}") from None
    if not isinstance(message, dict):
        raise Refusal(BAD_REQUEST, f"a JSON object was wanted, got a {type(message).__name__}")
    return message


def identity_of(message: dict) -> Any:
    """Its ``id``, None if it has none; Refusal for one that cannot be sent back."""
    value = message.get("id")
    fits = value is None or isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value))
    if not fits or (isinstance(value, str) and len(value) > LIMITS["id"]):
        raise Refusal(BAD_REQUEST, f"id: a string of at most {LIMITS['id']} characters, a finite number or null")
    return value


def error(identity: Any, code: str, message: str) -> dict:
    """The answer that refuses a request."""
    return {"id": identity, "error": {"code": code, "message": message[:MESSAGE]}}
