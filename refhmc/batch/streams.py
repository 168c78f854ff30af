"""Random numbers of many chains, each from its own stream that does not depend on the batch: Philox 4x64-10.

A counter-based generator (Salmon, Moraes, Dror and Shaw 2011) has no state: ten rounds of

    (c0, c1, c2, c3) <- (hi(M1 c2) ^ c1 ^ k0,  lo(M1 c2),  hi(M0 c0) ^ c3 ^ k1,  lo(M0 c0)),    k0 += W0,  k1 += W1

make four words of 64 bits from a counter c and a key k; hi and lo are the halves of a product of 128 bits. Here

    k  of chain i               SeedSequence(entropy, spawn_key=(i,)).generate_state(2, uint64)
    c  of numbers 4b ... 4b+3   (b + 1, t, purpose, 0) in the chain's transition t
    uniform from a word w       floor(w / 2^11) 2^-53
    normals from two of them    sqrt(-2 log(1 - u1)) cos(2 pi u2),  sqrt(-2 log(1 - u1)) sin(2 pi u2)    (Box and Muller)

so that the uniforms of chain i in transition t are also those of NumPy's own generator,

    numpy.random.Generator(numpy.random.Philox(key=k, counter=[0, t, purpose, 0])).random(n)

and are identical in every namespace. Normals 2k and 2k + 1 are made from uniforms 2k and 2k + 1. They depend on the logarithm,
sine and cosine of the namespace, are at most 8.6 in size, and differ by a few units in the last place.

The array implementation stores words as int64, which every namespace has; products wrap around. It has some 500 operations,
each of which a GPU would have to start. So NumPy's arrays are filled by the compiled implementation, and CuPy's by one kernel.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numba import types as nb

from refhmc.compile.compiled import entry, jit
from refhmc.core import types
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

M0, M1 = 0xD2E7470EE14C6C93, 0xCA5A826395121157
W0, W1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
ROUNDS = 10
# Of SeedSequence's hash.
HASH_A, MULTIPLIER_A, HASH_B, MULTIPLIER_B = 0x43B0D7E5, 0x931E8875, 0x8B51F9DD, 0x58F38DED
MIX_LEFT, MIX_RIGHT = 0xCA01F9DD, 0x4973F715
LOW = 0xFFFFFFFF
UNIT = 2.0**-53

Rows = slice | Array  # which of the chains: all of them, or their numbers (r,)


class Purpose(enum.IntEnum):
    """Purpose of random numbers; each has its own stream in a transition."""

    KERNEL = 0  # a transition's uniforms, in the order of :mod:`refhmc.core.randomness`
    MOMENTUM = 1
    START = 2  # random starts; the try instead of the transition
    STEP_SIZE = 3  # momenta of the search for a step size; the try instead of the transition
    REFRESHMENT = 4  # normals of refreshments between steps, by their places on the tape of a transition


def signed(word: int) -> int:
    """Return a word of 64 bits as the int64 with the same bits."""
    return word - (1 << 64) if word >> 63 else word


class RandomNumbers(Protocol):
    """Protocol of random numbers of chains: their streams, or recorded numbers."""

    def uniforms(self, rows: Rows, transition: Array, purpose: Purpose, first: Array, count: int) -> Array: ...
    def normals(
        self, rows: Rows, transition: Array, purpose: Purpose, count: int, first: Array | None = None
    ) -> Array: ...
    def compared(self, rows: Rows, number: Array, probability: Array, asked: Array | bool = True) -> None: ...


class Streams(NamedTuple):
    """The streams of n chains: ``keys`` (n, 2), int64."""

    keys: Array

    def uniforms(self, rows: Rows, transition: Array, purpose: Purpose, first: Array, count: int) -> Array:
        """Return numbers ``first``, ..., ``first + count - 1`` on [0, 1) of the chains ``rows``, (r, count).

        ``transition`` (r,) has the numbers of their transitions, and ``first`` is (r,).
        """
        keys = self.keys[rows]
        if isinstance(keys, np.ndarray):
            out = np.empty((len(keys), count))
            fill_uniforms(keys, transition, int(purpose), first, out)
            return out
        return uniforms(keys, transition, purpose, first, count)

    def compared(self, rows: Rows, number: Array, probability: Array, asked: Array | bool = True) -> None:
        """Do nothing; recorded numbers store each decision (:mod:`refhmc.batch.recorded`)."""

    def normals(self, rows: Rows, transition: Array, purpose: Purpose, count: int, first: Array | None = None) -> Array:
        """Return standard normals ``first`` (r,), ..., ``first + count - 1``, from the uniforms of these numbers; (r, count).

        By default they are the first ones.
        """
        if first is None:
            u = self.uniforms(rows, transition, purpose, 0 * transition, count + count % 2)
            return normals_of(u)[..., :count]
        odd = first % 2
        z = normals_of(self.uniforms(rows, transition, purpose, first - odd, count + 2 - count % 2))
        return batched.namespace(z).where(odd[:, None] > 0, z[..., 1 : count + 1], z[..., :count])


def keys_of(entropy: int, chains: int) -> np.ndarray:
    """Return the chains' keys, (n, 2), int64: those of NumPy's SeedSequence from entropy and (k,), for all chains together.

    This is M. E. O'Neill's hash, in words of 32 bits. A pool of four is filled from the entropy's words, and each is mixed
    into the others. Then the words after the fourth, and k after them, are mixed in.
    """
    words = [np.uint32((entropy >> shift) & LOW) for shift in range(0, max(entropy.bit_length(), 1), 32)]
    words = [*words, *[np.uint32(0)] * (4 - len(words))]
    constant = HASH_A

    def hashed(x: np.ndarray) -> np.ndarray:
        nonlocal constant
        x = x ^ np.uint32(constant)
        constant = constant * MULTIPLIER_A & LOW
        return shifted(x * np.uint32(constant))

    with np.errstate(over="ignore"):
        pool = [hashed(np.array([word])) for word in words[:4]]
        for i in range(4):
            for j in range(4):
                if i != j:
                    pool[j] = mixed(pool[j], hashed(pool[i]))
        for word in [*(np.array([word]) for word in words[4:]), np.arange(chains, dtype=np.uint32)]:
            pool = [mixed(x, hashed(word)) for x in pool]
        constant, out = HASH_B, []
        for x in pool:
            x = x ^ np.uint32(constant)
            constant = constant * MULTIPLIER_B & LOW
            out.append(shifted(x * np.uint32(constant)).astype(np.uint64))
    keys = [out[0] | out[1] << np.uint64(32), out[2] | out[3] << np.uint64(32)]
    return np.stack(keys, axis=1).view(np.int64)


def shifted(x: np.ndarray) -> np.ndarray:
    """Return x ^ (x >> 16)."""
    return x ^ (x >> np.uint32(16))


def mixed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the mix of two words."""
    return shifted(np.uint32(MIX_LEFT) * x - np.uint32(MIX_RIGHT) * y)


def uniforms(keys: Array, transition: Array, purpose: int, first: Array, count: int) -> Array:
    """Return uniforms on arrays, (..., count), from keys (..., 2), transition and first (...)."""
    xp = batched.namespace(keys)
    number = first[..., None] + xp.arange(count, dtype=xp.int64)
    if hasattr(xp, "ElementwiseKernel"):
        kernel = kernel_on_device(xp.ElementwiseKernel)
        return kernel(keys[..., :1], keys[..., 1:], transition[..., None], int(purpose), number)
    block, t = number // 4 + 1, transition[..., None] + 0 * number
    words = philox((block, t, 0 * t + int(purpose), 0 * t), (keys[..., :1], keys[..., 1:]))
    word = words[3]
    for k in (2, 1, 0):
        word = xp.where(number % 4 == k, words[k], word)
    return xp.astype((word >> 11) & ((1 << 53) - 1), xp.float64) * UNIT


ON_DEVICE = f"""
unsigned long long c0 = number / 4 + 1, c1 = transition, c2 = purpose, c3 = 0, k0 = key0, k1 = key1;
for (int round = 0; round < {ROUNDS}; ++round) {{
    const unsigned long long high0 = __umul64hi({M0:#x}ull, c0), low0 = {M0:#x}ull * c0;
    const unsigned long long high1 = __umul64hi({M1:#x}ull, c2), low1 = {M1:#x}ull * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += {W0:#x}ull;
    k1 += {W1:#x}ull;
}}
const unsigned long long words[4] = {{c0, c1, c2, c3}};
u = (words[number % 4] >> 11) * {UNIT!r};
"""


@functools.cache
def kernel_on_device(make: Callable) -> Callable:
    """Return :func:`uniforms` as a kernel of CuPy, whose ElementwiseKernel is ``make``."""
    return make(
        "int64 key0, int64 key1, int64 transition, int64 purpose, int64 number",
        "float64 u",
        ON_DEVICE,
        "refhmc_uniforms",
    )


def philox(counter: tuple, key: tuple) -> tuple:
    """Return four words from a counter of four and a key of two, all int64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        high0, low0 = product(M0, c0)
        high1, low1 = product(M1, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + signed(W0), k1 + signed(W1)
    return c0, c1, c2, c3


def product(m: int, x: Array) -> tuple[Array, Array]:
    """Return hi and lo of m x, 64 bits each, from halves of 32 bits; x is taken as unsigned."""
    m0, m1, x0, x1 = m & LOW, m >> 32, x & LOW, (x >> 32) & LOW
    low, middle, other = m0 * x0, m1 * x0, m0 * x1
    carry = ((low >> 32) & LOW) + (middle & LOW) + (other & LOW)
    return m1 * x1 + ((middle >> 32) & LOW) + ((other >> 32) & LOW) + (carry >> 32), signed(m) * x


def normals_of(u: Array) -> Array:
    """Return Box and Muller's normals (..., 2k) from uniforms (..., 2k)."""
    xp = batched.namespace(u)
    radius, angle = xp.sqrt(-2 * xp.log(1 - u[..., 0::2])), 2 * math.pi * u[..., 1::2]
    pairs = xp.stack([radius * xp.cos(angle), radius * xp.sin(angle)], axis=-1)
    return xp.reshape(pairs, u.shape)


@jit
def high_word(m: np.uint64, x: np.uint64) -> np.uint64:
    """Return hi(m x)."""
    low, shift = np.uint64(LOW), np.uint64(32)
    m0, m1, x0, x1 = m & low, m >> shift, x & low, x >> shift
    middle, other = m1 * x0, m0 * x1
    carry = ((m0 * x0) >> shift) + (middle & low) + (other & low)
    return m1 * x1 + (middle >> shift) + (other >> shift) + (carry >> shift)


@entry(
    lambda: nb.void(nb.int64[:, ::1], nb.int64[::1], nb.int64, nb.int64[::1], types.MATRIX),
    "random numbers of many chains",
)
def fill_uniforms(keys: np.ndarray, transition: np.ndarray, purpose: int, first: np.ndarray, out: np.ndarray) -> None:
    """Write :func:`uniforms` to ``out`` (n, count)."""
    m0, m1, w0, w1 = np.uint64(M0), np.uint64(M1), np.uint64(W0), np.uint64(W1)
    for i in range(out.shape[0]):
        number = first[i]
        last = number + out.shape[1]
        while number < last:
            c0, c1, c2, c3 = np.uint64(number // 4 + 1), np.uint64(transition[i]), np.uint64(purpose), np.uint64(0)
            k0, k1 = np.uint64(keys[i, 0]), np.uint64(keys[i, 1])
            for _ in range(ROUNDS):
                high0, high1 = high_word(m0, c0), high_word(m1, c2)
                c0, c1, c2, c3 = high1 ^ c1 ^ k0, m1 * c2, high0 ^ c3 ^ k1, m0 * c0
                k0, k1 = k0 + w0, k1 + w1
            words = (c0, c1, c2, c3)
            for k in range(number % 4, 4):
                if number < last:
                    out[i, number - first[i]] = (words[k] >> np.uint64(11)) * UNIT
                    number += 1
