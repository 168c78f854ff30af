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

Slopes are the rows of ``K``. ``equations(x, t, work)`` writes f(t, x) into the head of ``work``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from refhmc.core.compiled import jit_part, jit_template

SLOPES = 16  # rows of K
TERMS = 7  # rows of F

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


@jit_template
def slope(equations: Callable, x: np.ndarray, t: float, work: np.ndarray, k: np.ndarray) -> None:
    """k = f(t, x)."""
    equations(x, t, work)
    for i in range(x.shape[0]):
        k[i] = work[i]


# fmt: off
@jit_template
def step(equations: Callable, u: np.ndarray, t: float, h: float, work: np.ndarray, K: np.ndarray, y: np.ndarray) -> None:
    """From x = ``u`` with the slope k_1 to ``y``, by the slopes k_2 to k_13."""
    n = u.shape[0]
    k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13 = (
        K[0], K[1], K[2], K[3], K[4], K[5], K[6], K[7], K[8], K[9], K[10], K[11], K[12],
    )
    for i in range(n):
        y[i] = u[i] + h * (A2_1 * k1[i])
    slope(equations, y, t + C2 * h, work, k2)
    for i in range(n):
        y[i] = u[i] + h * (A3_1 * k1[i] + A3_2 * k2[i])
    slope(equations, y, t + C3 * h, work, k3)
    for i in range(n):
        y[i] = u[i] + h * (A4_1 * k1[i] + A4_3 * k3[i])
    slope(equations, y, t + C4 * h, work, k4)
    for i in range(n):
        y[i] = u[i] + h * (A5_1 * k1[i] + A5_3 * k3[i] + A5_4 * k4[i])
    slope(equations, y, t + C5 * h, work, k5)
    for i in range(n):
        y[i] = u[i] + h * (A6_1 * k1[i] + A6_4 * k4[i] + A6_5 * k5[i])
    slope(equations, y, t + C6 * h, work, k6)
    for i in range(n):
        y[i] = u[i] + h * (A7_1 * k1[i] + A7_4 * k4[i] + A7_5 * k5[i] + A7_6 * k6[i])
    slope(equations, y, t + C7 * h, work, k7)
    for i in range(n):
        y[i] = u[i] + h * (A8_1 * k1[i] + A8_4 * k4[i] + A8_5 * k5[i] + A8_6 * k6[i] + A8_7 * k7[i])
    slope(equations, y, t + C8 * h, work, k8)
    for i in range(n):
        y[i] = u[i] + h * (A9_1 * k1[i] + A9_4 * k4[i] + A9_5 * k5[i] + A9_6 * k6[i] + A9_7 * k7[i] + A9_8 * k8[i])
    slope(equations, y, t + C9 * h, work, k9)
    for i in range(n):
        y[i] = u[i] + h * (
            A10_1 * k1[i] + A10_4 * k4[i] + A10_5 * k5[i] + A10_6 * k6[i] + A10_7 * k7[i] + A10_8 * k8[i]
            + A10_9 * k9[i]
        )
    slope(equations, y, t + C10 * h, work, k10)
    for i in range(n):
        y[i] = u[i] + h * (
            A11_1 * k1[i] + A11_4 * k4[i] + A11_5 * k5[i] + A11_6 * k6[i] + A11_7 * k7[i] + A11_8 * k8[i]
            + A11_9 * k9[i] + A11_10 * k10[i]
        )
    slope(equations, y, t + C11 * h, work, k11)
    for i in range(n):
        y[i] = u[i] + h * (
            A12_1 * k1[i] + A12_4 * k4[i] + A12_5 * k5[i] + A12_6 * k6[i] + A12_7 * k7[i] + A12_8 * k8[i]
            + A12_9 * k9[i] + A12_10 * k10[i] + A12_11 * k11[i]
        )
    slope(equations, y, t + h, work, k12)
    for i in range(n):
        y[i] = u[i] + h * (
            B1 * k1[i] + B6 * k6[i] + B7 * k7[i] + B8 * k8[i] + B9 * k9[i] + B10 * k10[i] + B11 * k11[i]
            + B12 * k12[i]
        )
    slope(equations, y, t + h, work, k13)


@jit_part
def error_of(h: float, K: np.ndarray, scale: np.ndarray) -> float:
    """The error of a step, at most 1 if it is small enough; NaN or inf where a slope is."""
    n = scale.shape[0]
    fifth = third = 0.0
    k1, k6, k7, k8, k9, k10, k11, k12 = K[0], K[5], K[6], K[7], K[8], K[9], K[10], K[11]
    for i in range(n):
        e5 = (
            E1 * k1[i] + E6 * k6[i] + E7 * k7[i] + E8 * k8[i] + E9 * k9[i] + E10 * k10[i] + E11 * k11[i]
            + E12 * k12[i]
        )
        e3 = (
            G1 * k1[i] + G6 * k6[i] + G7 * k7[i] + G8 * k8[i] + G9 * k9[i] + G10 * k10[i] + G11 * k11[i]
            + G12 * k12[i]
        )
        fifth += (e5 / scale[i]) ** 2
        third += (e3 / scale[i]) ** 2
    if fifth == 0.0:
        return 0.0
    return abs(h) * fifth / math.sqrt((fifth + 0.01 * third) * n)


@jit_template
def between(
    equations: Callable, u: np.ndarray, t: float, h: float, work: np.ndarray, K: np.ndarray, y: np.ndarray, x: np.ndarray,
    F: np.ndarray,
) -> None:
    """The polynomial's coefficients ``F`` of a step from ``u`` to ``y``; ``x`` is room."""
    n = u.shape[0]
    k1, k6, k7, k8, k9, k10, k11, k12, k13, k14, k15, k16 = (
        K[0], K[5], K[6], K[7], K[8], K[9], K[10], K[11], K[12], K[13], K[14], K[15],
    )
    for i in range(n):
        x[i] = u[i] + h * (
            A14_1 * k1[i] + A14_7 * k7[i] + A14_8 * k8[i] + A14_9 * k9[i] + A14_10 * k10[i] + A14_11 * k11[i]
            + A14_12 * k12[i] + A14_13 * k13[i]
        )
    slope(equations, x, t + C14 * h, work, k14)
    for i in range(n):
        x[i] = u[i] + h * (
            A15_1 * k1[i] + A15_6 * k6[i] + A15_7 * k7[i] + A15_8 * k8[i] + A15_11 * k11[i] + A15_12 * k12[i]
            + A15_13 * k13[i] + A15_14 * k14[i]
        )
    slope(equations, x, t + C15 * h, work, k15)
    for i in range(n):
        x[i] = u[i] + h * (
            A16_1 * k1[i] + A16_6 * k6[i] + A16_7 * k7[i] + A16_8 * k8[i] + A16_9 * k9[i] + A16_13 * k13[i]
            + A16_14 * k14[i] + A16_15 * k15[i]
        )
    slope(equations, x, t + C16 * h, work, k16)
    for i in range(n):
        F[0, i] = y[i] - u[i]
        F[1, i] = h * k1[i] - F[0, i]
        F[2, i] = F[0, i] - h * k13[i] - F[1, i]
        F[3, i] = h * (
            D4_1 * k1[i] + D4_6 * k6[i] + D4_7 * k7[i] + D4_8 * k8[i] + D4_9 * k9[i] + D4_10 * k10[i]
            + D4_11 * k11[i] + D4_12 * k12[i] + D4_13 * k13[i] + D4_14 * k14[i] + D4_15 * k15[i] + D4_16 * k16[i]
        )
        F[4, i] = h * (
            D5_1 * k1[i] + D5_6 * k6[i] + D5_7 * k7[i] + D5_8 * k8[i] + D5_9 * k9[i] + D5_10 * k10[i]
            + D5_11 * k11[i] + D5_12 * k12[i] + D5_13 * k13[i] + D5_14 * k14[i] + D5_15 * k15[i] + D5_16 * k16[i]
        )
        F[5, i] = h * (
            D6_1 * k1[i] + D6_6 * k6[i] + D6_7 * k7[i] + D6_8 * k8[i] + D6_9 * k9[i] + D6_10 * k10[i]
            + D6_11 * k11[i] + D6_12 * k12[i] + D6_13 * k13[i] + D6_14 * k14[i] + D6_15 * k15[i] + D6_16 * k16[i]
        )
        F[6, i] = h * (
            D7_1 * k1[i] + D7_6 * k6[i] + D7_7 * k7[i] + D7_8 * k8[i] + D7_9 * k9[i] + D7_10 * k10[i]
            + D7_11 * k11[i] + D7_12 * k12[i] + D7_13 * k13[i] + D7_14 * k14[i] + D7_15 * k15[i] + D7_16 * k16[i]
        )
# fmt: on


@jit_part
def at(s: float, u: np.ndarray, F: np.ndarray, out: np.ndarray) -> None:
    """The polynomial at the share ``s`` of the step."""
    for i in range(u.shape[0]):
        total = F[5, i] + s * F[6, i]
        total = F[3, i] + s * (F[4, i] + (1 - s) * total)
        total = F[1, i] + s * (F[2, i] + (1 - s) * total)
        out[i] = u[i] + s * (F[0, i] + (1 - s) * total)
