"""A synthetic set in the place of the recordings of Cobb and Jalaian (2021), section 6, which are not public. Made by rule.

**Engines.** A recording of class c = 0, ..., 8 at microphone i is, at a rate of 1025.641 Hz,

    x_i(t) = g_i A(t) sum_h a_h cos(2 pi h Phi(t - tau_i) + phi_h) + wind_i(t) + noise_i(t)

    Phi' = f (1 + 0.02 sin(2 pi t / P + psi)),    f = 12 * 1.12^c e^{0.08 z} Hz,    h = 1, 2, ... below 400 Hz
    a_h = h^-s_c (1 + 0.8 cos(2 pi h / k_c)) e^{0.5 z_h},    s_c = 0.6 + 0.1 (c mod 3),   k_c = 2 + c mod 4
    A(t) = 1 / (1 + ((t - t_0) / 10 s)^2)                     the vehicle passes at t_0

with z standard normal, phases, P in (5, 20) s and t_0 uniform, gains g_i = e^{0.1 z}, delays tau_i of a triangle with sides of
1 m and a direction drawn uniformly. Wind is an AR(1) process with coefficient 0.98 of its own at each microphone; wind and
white noise have one power, together that of the loudest moment of the engine over a ratio drawn uniformly from -6 to 6 dB. So
the fundamentals of neighbouring classes overlap, and some recordings are mostly wind.

**Pipeline**, the paper's: ``scipy.signal.spectrogram`` with its defaults, chunks of 10 s, log power, the three microphones'
side by side in one image, 129 x 135; recordings (not chunks) in eight splits; scaled by the training set's mean and deviation.
"""

from __future__ import annotations

import numpy as np
import scipy.signal

RATE, CHUNK, CLASSES, SPLITS = 1025.641, 10256, 9, 8
SOUND = 343.0  # m/s


def recording(c: int, seconds: float, rng: np.random.Generator) -> np.ndarray:
    """Three microphones, (3, samples)."""
    n = round(seconds * RATE)
    t = np.arange(n) / RATE
    f = 12.0 * 1.12**c * np.exp(0.08 * rng.standard_normal())
    period, psi, direction = rng.uniform(5, 20), rng.uniform(0, 2 * np.pi), rng.uniform(0, 2 * np.pi)
    h = np.arange(1, int(400 / f) + 1)
    a = h ** -(0.6 + 0.1 * (c % 3)) * (1 + 0.8 * np.cos(2 * np.pi * h / (2 + c % 4)))
    a = a * np.exp(0.5 * rng.standard_normal(len(h)))
    phases, gains = rng.uniform(0, 2 * np.pi, len(h)), np.exp(0.1 * rng.standard_normal(3))
    loudness = 1 / (1 + ((t - rng.uniform(0, seconds)) / 10) ** 2)
    clean = np.zeros((3, n))
    for i in range(3):
        delay = np.cos(direction - 2 * np.pi * i / 3) / np.sqrt(3) / SOUND
        s = t - delay
        angle = f * (2 * np.pi * s - 0.02 * period * np.cos(2 * np.pi * s / period + psi))
        turn, power = np.exp(1j * angle), np.ones(n, complex)
        for a_h, phase in zip(a, phases, strict=True):
            power *= turn
            clean[i] += a_h * (power * np.exp(1j * phase)).real
    clean *= gains[:, None] * loudness
    level = np.sqrt(0.5 * np.sum(a**2) * loudness.max() ** 2 / 10 ** (rng.uniform(-6, 6) / 10) / 2)
    wind = scipy.signal.lfilter([np.sqrt(1 - 0.98**2)], [1, -0.98], rng.standard_normal((3, n)), axis=1)
    return clean + level * (wind + rng.standard_normal((3, n)))


def spectrograms(x: np.ndarray, coarse: int) -> np.ndarray:
    """The chunks of a recording as images (chunks, 129, 135); ``coarse`` > 1: means over squares of that side."""
    images = []
    for start in range(0, x.shape[1] - CHUNK + 1, CHUNK):
        _, _, power = scipy.signal.spectrogram(x[:, start : start + CHUNK], RATE)
        log = np.log(power + 1e-12)
        if coarse > 1:
            rows, columns = (size // coarse for size in log.shape[1:])
            log = (
                log[:, : rows * coarse, : columns * coarse].reshape(3, rows, coarse, columns, coarse).mean(axis=(2, 4))
            )
        images.append(np.concatenate(list(log), axis=1))
    return np.array(images)


def make(recordings: int, seconds: float, coarse: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images (n, height, width), classes (n,) and the split of each, 0 to 7."""
    rng = np.random.default_rng(seed)
    classes = np.arange(recordings) % CLASSES
    splits = rng.permutation(np.arange(recordings)) % SPLITS
    images = [spectrograms(recording(c, seconds, rng), coarse) for c in classes]
    counts = [len(each) for each in images]
    return np.concatenate(images), np.repeat(classes, counts), np.repeat(splits, counts)
