"""The explicit Runge-Kutta pair of order 8(5, 3) with continuous output: one step of dx/dt = f(t, x).

    k_1 = f(t, x),   k_s = f(t + c_s h, x + h sum_{j<s} a_sj k_j),   s = 2, ..., 12
    x(t + h) ~ y = x + h sum_j b_j k_j              of order 8;   k_13 = f(t + h, y) is the next step's first

Two embedded formulas of order 5 and 3 give the error (Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I,
2nd ed. 1993, sec. II.5 and II.10, the coefficients after Dormand and Prince),

    e = h |e5|^2 / sqrt(|e5|^2 + 0.01 |e3|^2),    e5 = sum_j E_j k_j,  e3 = sum_j G_j k_j,

root mean squares, each component relative to its scale. Between t and t + h, with three more slopes k_14, k_15, k_16 and
s = (time - t) / h, a polynomial of order 7 is

    x + s (F_1 + (1 - s) (F_2 + s (F_3 + (1 - s) (F_4 + s (F_5 + (1 - s) (F_6 + s F_7))))))
    F_1 = y - x,  F_2 = h k_1 - F_1,  F_3 = F_1 - h k_13 - F_2,  F_r = h sum_j D_rj k_j,  r = 4, ..., 7

Row i of ``K`` holds x_i and its slopes: K[i, 0] = x_i, K[i, s] the i-th component of k_s. ``equations(x, t, work)`` writes
f(t, x) to the head of ``work``, from which it is copied to its column within the next sum. This layout was the fastest for 8 to
14 unknowns. With one array per slope, compiled code tests at each stage which of them overlap, or waits for a vector whose
entries have just been written one by one. A separate copy becomes a scattered store. Each of these takes as long as the sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from refhmc.compile.compiled import jit_part, jit_template

COLUMNS = 17  # of K

# fmt: off
A2_1 = 0.05260015195876773
A3_1, A3_2 = 0.0197250569845379, 0.0591751709536137
A4_1, A4_3 = 0.02958758547680685, 0.08876275643042054
A5_1, A5_3, A5_4 = 0.2413651341592667, -0.8845494793282861, 0.924834003261792
A6_1, A6_4, A6_5 = 0.037037037037037035, 0.17082860872947386, 0.12546768756682242
A7_1, A7_4, A7_5, A7_6 = 0.037109375, 0.17025221101954405, 0.06021653898045596, -0.017578125
A8_1, A8_4, A8_5, A8_6, A8_7 = (
    0.03709200011850479, 0.17038392571223998, 0.10726203044637328, -0.015319437748624402, 0.008273789163814023,
)
A9_1, A9_4, A9_5, A9_6, A9_7, A9_8 = (
    0.6241109587160757, -3.3608926294469414, -0.868219346841726, 27.59209969944671, 20.154067550477894,
    -43.48988418106996,
)
A10_1, A10_4, A10_5, A10_6, A10_7, A10_8, A10_9 = (
    0.47766253643826434, -2.4881146199716677, -0.590290826836843, 21.230051448181193, 15.279233632882423,
    -33.28821096898486, -0.020331201708508627,
)
A11_1, A11_4, A11_5, A11_6, A11_7, A11_8, A11_9, A11_10 = (
    -0.9371424300859873, 5.186372428844064, 1.0914373489967295, -8.149787010746927, -18.52006565999696,
    22.739487099350505, 2.4936055526796523, -3.0467644718982196,
)
A12_1, A12_4, A12_5, A12_6, A12_7, A12_8, A12_9, A12_10, A12_11 = (
    2.273310147516538, -10.53449546673725, -2.0008720582248625, -17.9589318631188, 27.94888452941996,
    -2.8589982771350235, -8.87285693353063, 12.360567175794303, 0.6433927460157636,
)
B1, B6, B7, B8, B9, B10, B11, B12 = (
    0.054293734116568765, 4.450312892752409, 1.8915178993145003, -5.801203960010585, 0.3111643669578199,
    -0.1521609496625161, 0.20136540080403034, 0.04471061572777259,
)
A14_1, A14_7, A14_8, A14_9, A14_10, A14_11, A14_12, A14_13 = (
    0.056167502283047954, 0.25350021021662483, -0.2462390374708025, -0.12419142326381637, 0.15329179827876568,
    0.00820105229563469, 0.007567897660545699, -0.008298,
)
A15_1, A15_6, A15_7, A15_8, A15_11, A15_12, A15_13, A15_14 = (
    0.03183464816350214, 0.028300909672366776, 0.053541988307438566, -0.05492374857139099, -0.00010834732869724932,
    0.0003825710908356584, -0.00034046500868740456, 0.1413124436746325,
)
A16_1, A16_6, A16_7, A16_8, A16_9, A16_13, A16_14, A16_15 = (
    -0.42889630158379194, -4.697621415361164, 7.683421196062599, 4.06898981839711, 0.3567271874552811,
    -0.0013990241651590145, 2.9475147891527724, -9.15095847217987,
)
C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C14, C15, C16 = (
    0.05260015195876773, 0.0789002279381516, 0.1183503419072274, 0.2816496580927726, 0.3333333333333333, 0.25,
    0.3076923076923077, 0.6512820512820513, 0.6, 0.8571428571428571, 0.1, 0.2, 0.7777777777777778,
)
E1, E6, E7, E8, E9, E10, E11, E12 = (
    0.01312004499419488, -1.2251564463762044, -0.4957589496572502, 1.6643771824549864, -0.35032884874997366,
    0.3341791187130175, 0.08192320648511571, -0.022355307863886294,
)
G1, G6, G7, G8, G9, G10, G11, G12 = (
    -0.18980075407240762, 4.450312892752409, 1.8915178993145003, -5.801203960010585, -0.4226823213237919,
    -0.1521609496625161, 0.20136540080403034, 0.02265179219836082,
)
D4_1, D4_6, D4_7, D4_8, D4_9, D4_10, D4_11, D4_12, D4_13, D4_14, D4_15, D4_16 = (
    -8.428938276109013, 0.5667149535193777, -3.0689499459498917, 2.38466765651207, 2.117034582445028,
    -0.871391583777973, 2.2404374302607883, 0.6315787787694688, -0.08899033645133331, 18.148505520854727,
    -9.194632392478356, -4.436036387594894,
)
D5_1, D5_6, D5_7, D5_8, D5_9, D5_10, D5_11, D5_12, D5_13, D5_14, D5_15, D5_16 = (
    10.427508642579134, 242.28349177525817, 165.20045171727028, -374.5467547226902, -22.113666853125306,
    7.733432668472264, -30.674084731089398, -9.332130526430229, 15.697238121770845, -31.139403219565178,
    -9.35292435884448, 35.81684148639408,
)
D6_1, D6_6, D6_7, D6_8, D6_9, D6_10, D6_11, D6_12, D6_13, D6_14, D6_15, D6_16 = (
    19.985053242002433, -387.0373087493518, -189.17813819516758, 527.8081592054236, -11.57390253995963,
    6.8812326946963, -1.0006050966910838, 0.7777137798053443, -2.778205752353508, -60.19669523126412,
    84.32040550667716, 11.99229113618279,
)
D7_1, D7_6, D7_7, D7_8, D7_9, D7_10, D7_11, D7_12, D7_13, D7_14, D7_15, D7_16 = (
    -25.69393346270375, -154.18974869023643, -231.5293791760455, 357.6391179106141, 93.40532418362432,
    -37.45832313645163, 104.0996495089623, 29.8402934266605, -43.53345659001114, 96.32455395918828,
    -39.17726167561544, -149.72683625798564,
)

# fmt: on


@jit_part
def allowed(tolerance: float, x: float, y: float) -> float:
    """Return the allowed error of a component that changes from x to y."""
    return tolerance * (1.0 + max(abs(x), abs(y)))


# fmt: off
@jit_template
def step(
    equations: Callable, t: float, h: float, tolerance: float, work: np.ndarray, K: np.ndarray, y: np.ndarray
) -> float:
    """Make a step from x with the slope k_1 to ``y``, by the slopes k_2 to k_13.

    Return the error relative to the tolerance, which is NaN or inf if a slope is.
    """
    n = y.shape[0]
    for i in range(n):
        y[i] = K[i, 0] + h * (A2_1 * K[i, 1])
    equations(y, t + C2 * h, work)
    for i in range(n):
        k = K[i]
        k[2] = work[i]
        y[i] = k[0] + h * (A3_1 * k[1] + A3_2 * k[2])
    equations(y, t + C3 * h, work)
    for i in range(n):
        k = K[i]
        k[3] = work[i]
        y[i] = k[0] + h * (A4_1 * k[1] + A4_3 * k[3])
    equations(y, t + C4 * h, work)
    for i in range(n):
        k = K[i]
        k[4] = work[i]
        y[i] = k[0] + h * (A5_1 * k[1] + A5_3 * k[3] + A5_4 * k[4])
    equations(y, t + C5 * h, work)
    for i in range(n):
        k = K[i]
        k[5] = work[i]
        y[i] = k[0] + h * (A6_1 * k[1] + A6_4 * k[4] + A6_5 * k[5])
    equations(y, t + C6 * h, work)
    for i in range(n):
        k = K[i]
        k[6] = work[i]
        y[i] = k[0] + h * (A7_1 * k[1] + A7_4 * k[4] + A7_5 * k[5] + A7_6 * k[6])
    equations(y, t + C7 * h, work)
    for i in range(n):
        k = K[i]
        k[7] = work[i]
        y[i] = k[0] + h * (A8_1 * k[1] + A8_4 * k[4] + A8_5 * k[5] + A8_6 * k[6] + A8_7 * k[7])
    equations(y, t + C8 * h, work)
    for i in range(n):
        k = K[i]
        k[8] = work[i]
        y[i] = k[0] + h * (A9_1 * k[1] + A9_4 * k[4] + A9_5 * k[5] + A9_6 * k[6] + A9_7 * k[7] + A9_8 * k[8])
    equations(y, t + C9 * h, work)
    for i in range(n):
        k = K[i]
        k[9] = work[i]
        y[i] = k[0] + h * (
            A10_1 * k[1] + A10_4 * k[4] + A10_5 * k[5] + A10_6 * k[6] + A10_7 * k[7] + A10_8 * k[8]
            + A10_9 * k[9]
        )
    equations(y, t + C10 * h, work)
    for i in range(n):
        k = K[i]
        k[10] = work[i]
        y[i] = k[0] + h * (
            A11_1 * k[1] + A11_4 * k[4] + A11_5 * k[5] + A11_6 * k[6] + A11_7 * k[7] + A11_8 * k[8]
            + A11_9 * k[9] + A11_10 * k[10]
        )
    equations(y, t + C11 * h, work)
    for i in range(n):
        k = K[i]
        k[11] = work[i]
        y[i] = k[0] + h * (
            A12_1 * k[1] + A12_4 * k[4] + A12_5 * k[5] + A12_6 * k[6] + A12_7 * k[7] + A12_8 * k[8]
            + A12_9 * k[9] + A12_10 * k[10] + A12_11 * k[11]
        )
    equations(y, t + h, work)
    for i in range(n):
        k = K[i]
        k[12] = work[i]
        y[i] = k[0] + h * (
            B1 * k[1] + B6 * k[6] + B7 * k[7] + B8 * k[8] + B9 * k[9] + B10 * k[10] + B11 * k[11] + B12 * k[12]
        )
    equations(y, t + h, work)
    fifth = third = 0.0
    for i in range(n):
        k = K[i]
        k[13] = work[i]
        e5 = (
            E1 * k[1] + E6 * k[6] + E7 * k[7] + E8 * k[8] + E9 * k[9] + E10 * k[10] + E11 * k[11] + E12 * k[12]
        )
        e3 = (
            G1 * k[1] + G6 * k[6] + G7 * k[7] + G8 * k[8] + G9 * k[9] + G10 * k[10] + G11 * k[11] + G12 * k[12]
        )
        weight = 1 / allowed(tolerance, k[0], y[i])
        fifth += (e5 * weight) ** 2
        third += (e3 * weight) ** 2
    if fifth == 0.0:
        return 0.0
    return abs(h) * fifth / math.sqrt((fifth + 0.01 * third) * n)


@jit_template
def between(equations: Callable, t: float, h: float, work: np.ndarray, K: np.ndarray, x: np.ndarray) -> None:
    """Compute the slopes k_14 to k_16 of a step, for :func:`at`; ``x`` is workspace."""
    n = x.shape[0]
    for i in range(n):
        k = K[i]
        x[i] = k[0] + h * (
            A14_1 * k[1] + A14_7 * k[7] + A14_8 * k[8] + A14_9 * k[9] + A14_10 * k[10] + A14_11 * k[11]
            + A14_12 * k[12] + A14_13 * k[13]
        )
    equations(x, t + C14 * h, work)
    for i in range(n):
        k = K[i]
        k[14] = work[i]
        x[i] = k[0] + h * (
            A15_1 * k[1] + A15_6 * k[6] + A15_7 * k[7] + A15_8 * k[8] + A15_11 * k[11] + A15_12 * k[12]
            + A15_13 * k[13] + A15_14 * k[14]
        )
    equations(x, t + C15 * h, work)
    for i in range(n):
        k = K[i]
        k[15] = work[i]
        x[i] = k[0] + h * (
            A16_1 * k[1] + A16_6 * k[6] + A16_7 * k[7] + A16_8 * k[8] + A16_9 * k[9] + A16_13 * k[13]
            + A16_14 * k[14] + A16_15 * k[15]
        )
    equations(x, t + C16 * h, work)
    for i in range(n):
        K[i, 16] = work[i]


@jit_part
def at(s: float, h: float, K: np.ndarray, out: np.ndarray) -> None:
    """Evaluate the polynomial at the share ``s`` of the step, as x + h sum_j w_j k_j."""
    r = 1 - s
    f2, f3 = s * r, s * s * r
    f1, f4, f5, f6, f7 = s - f2 + 2 * f3, f3 * r, s * f3 * r, f3 * f2 * r, s * f3 * f2 * r
    w1 = f1 * B1 + f2 - f3 + f4 * D4_1 + f5 * D5_1 + f6 * D6_1 + f7 * D7_1
    w6 = f1 * B6 + f4 * D4_6 + f5 * D5_6 + f6 * D6_6 + f7 * D7_6
    w7 = f1 * B7 + f4 * D4_7 + f5 * D5_7 + f6 * D6_7 + f7 * D7_7
    w8 = f1 * B8 + f4 * D4_8 + f5 * D5_8 + f6 * D6_8 + f7 * D7_8
    w9 = f1 * B9 + f4 * D4_9 + f5 * D5_9 + f6 * D6_9 + f7 * D7_9
    w10 = f1 * B10 + f4 * D4_10 + f5 * D5_10 + f6 * D6_10 + f7 * D7_10
    w11 = f1 * B11 + f4 * D4_11 + f5 * D5_11 + f6 * D6_11 + f7 * D7_11
    w12 = f1 * B12 + f4 * D4_12 + f5 * D5_12 + f6 * D6_12 + f7 * D7_12
    w13 = -f3 + f4 * D4_13 + f5 * D5_13 + f6 * D6_13 + f7 * D7_13
    w14 = f4 * D4_14 + f5 * D5_14 + f6 * D6_14 + f7 * D7_14
    w15 = f4 * D4_15 + f5 * D5_15 + f6 * D6_15 + f7 * D7_15
    w16 = f4 * D4_16 + f5 * D5_16 + f6 * D6_16 + f7 * D7_16
    for i in range(out.shape[0]):
        k = K[i]
        out[i] = k[0] + h * (
            w1 * k[1] + w6 * k[6] + w7 * k[7] + w8 * k[8] + w9 * k[9] + w10 * k[10] + w11 * k[11] + w12 * k[12]
            + w13 * k[13] + w14 * k[14] + w15 * k[15] + w16 * k[16]
        )
# fmt: on
