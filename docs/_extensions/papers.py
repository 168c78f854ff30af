"""Link the papers in the References sections of docstrings to their DOIs.

Docstrings name papers as "Betancourt (2013)"; the table has their DOIs. ``doi:10...`` and ``arXiv:...`` become links, too.
"""

from __future__ import annotations

import re
from typing import Any

DOI = {
    "Betancourt (2013)": "10.1007/978-3-642-40020-9_35",
    "Betancourt (2016)": "10.48550/arXiv.1604.00695",
    "Betancourt (2017)": "10.48550/arXiv.1701.02434",
    "Blanes, Casas and Sanz-Serna (2014)": "10.48550/arXiv.1405.3153",
    "Brofos and Lederman (2021)": "10.48550/arXiv.2102.07139",
    "R. R. Lederman (2021)": "10.48550/arXiv.2102.07139",
    "Carlin, A. E. Gelfand and A. F. M. Smith (1992)": "10.2307/2347570",
    "Chen, Fox and Guestrin (2014)": "10.48550/arXiv.1402.4102",
    "Cobb and Jalaian (2021)": "10.48550/arXiv.2010.06772",
    "B. Jalaian (2021)": "10.48550/arXiv.2010.06772",
    "Cobb, Baydin, Markham and Roberts (2019)": "10.48550/arXiv.1910.06243",
    "Cook, Gelman and Rubin (2006)": "10.1198/106186006X136976",
    "Fearnhead (2006)": "10.1007/s11222-006-8450-8",
    "Geyer (1992)": "10.1214/ss/1177011137",
    "Girolami and Calderhead (2011)": "10.1111/j.1467-9868.2010.00765.x",
    "Girolami and B. Calderhead (2011)": "10.1111/j.1467-9868.2010.00765.x",
    "Hairer, Lubich and Wanner (2006)": "10.1007/3-540-30666-8",
    "Hoffman and Gelman (2014)": "10.48550/arXiv.1111.4246",
    "Horowitz (1991)": "10.1016/0370-2693(91)90812-5",
    "Kailas, Vihola and Wallin (2026)": "10.48550/arXiv.2604.09832",
    "Leimkuhler and Reich (2004)": "10.1017/CBO9780511614118",
    "McLachlan (1995)": "10.1137/0916010",
    "Modrak et al. (2023)": "10.1214/23-BA1404",
    "Neal (2003)": "10.1214/aos/1056562461",
    "Neal (2011)": "10.48550/arXiv.1206.1901",
    "Nishimura, Dunson and Lu (2020)": "10.1093/biomet/asz083",
    "D. B. Dunson and J. Lu (2020)": "10.1093/biomet/asz083",
    "D. B. Dunson and J. Lu (2017)": "10.48550/arXiv.1705.08510",
    "Omelyan, Mryglod and Folk (2003)": "10.1016/S0010-4655(02)00754-3",
    "Rubin (1981)": "10.3102/10769986006004377",
    "Shahbaba, Lan, Johnson and Neal (2014)": "10.1007/s11222-012-9373-1",
    "Suzuki (1990)": "10.1016/0375-9601(90)90962-N",
    "Talts et al. (2018)": "10.48550/arXiv.1804.06788",
    "Tao (2016)": "10.1103/PhysRevE.94.043303",
    "Vovk and Wang (2021)": "10.1214/20-AOS2020",
    "Yoshida (1990)": "10.1016/0375-9601(90)90092-3",
    "Zhang et al. (2020)": "10.48550/arXiv.1902.03932",
    "Zhang, Carpenter, Gelman and Vehtari (2022)": "10.48550/arXiv.2108.03782",
}
NAMED = re.compile("|".join(re.escape(name) for name in sorted(DOI, key=len, reverse=True)))
WRITTEN = re.compile(r"\b(doi:(10\.[^\s,;]+[^\s,;.])|arXiv:(\d{4}\.\d{4,5}))")


def linked(line: str) -> str:
    """Return a line with links for the papers, DOIs and arXiv numbers in it."""
    line = WRITTEN.sub(lambda m: f"`{m[1]} <https://doi.org/{m[2] or '10.48550/arXiv.' + m[3]}>`__", line)
    return NAMED.sub(lambda m: f"`{m[0]} <https://doi.org/{DOI[m[0]]}>`__", line)


def link_references(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Link the papers in a References section; numpydoc has made it a rubric or left its heading."""
    inside = False
    for i, line in enumerate(lines):
        if line.strip() in ("References", ".. rubric:: References"):
            inside = True
        elif line.startswith(".. rubric::") or re.fullmatch(r":?(Examples|Notes|See Also):?", line.strip()):
            inside = False
        elif inside:
            lines[i] = linked(line)


def setup(app: Any) -> dict:
    app.connect("autodoc-process-docstring", link_references, priority=600)  # after numpydoc
    return {"parallel_read_safe": True, "parallel_write_safe": True}
