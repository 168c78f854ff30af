"""The documentation: `python -m sphinx -W --keep-going -b html docs build/docs` runs every page and checks what it built.

Nothing is loaded from the network, to build or to read: mathematics is MathML, and the theme brings its own scripts.
"""

import hashlib
import inspect
import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "_extensions"), str(ROOT)]
# The cells run in processes of their own, with the refhmc whose source the pages show.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
os.environ["MATPLOTLIBRC"] = str(HERE / "_static" / "matplotlibrc")
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # or the kernel writes to stderr about frozen modules

import refhmc  # noqa: E402

# Public modules that lie elsewhere, for autosummary.
sys.modules |= {"refhmc.datasets": refhmc.datasets, "refhmc.check.golden_vectors": refhmc.check.golden_vectors}

project = "refhmc"
author = "the authors of refhmc"
copyright = author
version = release = refhmc.__version__

extensions = [
    *("sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.linkcode", "numpydoc", "myst_nb"),
    *("mathml", "papers", "source_pages", "executed", "downloads", "built_pages"),
]
exclude_patterns = ["_*", "**/__pycache__"]
templates_path = ["_templates"]
root_doc = "index"
nitpicky = True
# Private modules, and types in signatures that have no page.
nitpick_ignore_regex = [(r"py:.*", r"(?!refhmc\.[A-Z]|refhmc\.(metrics|integrators|models|errors|plot|check)\.\w+$).*")]

autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autosummary_generate = True
# Names that differ in their case alone cannot be files of one folder everywhere.
autosummary_filename_map = {
    "refhmc.plot.Tree": "refhmc.plot.Tree-class",
    "refhmc.check.golden_vectors.Target": "refhmc.check.golden_vectors.Target-class",
}
numpydoc_show_class_members = False
maximum_signature_line_length = 88

myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence", "attrs_inline"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
myst_url_schemes = {"http": None, "https": None, "mailto": None, "doi": "https://doi.org/{{path}}"}

# The outputs of a page are kept as long as its cells and the source of refhmc stay the same.
sources = hashlib.sha256()
for file in sorted((ROOT / "refhmc").rglob("*.py")):
    sources.update(file.read_bytes())
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "cells" / sources.hexdigest()[:16])
nb_execution_timeout = 600  # seconds of a cell, when several kernels share the cores
nb_execution_show_tb = True  # a cell that raises is a warning
nb_merge_streams = True
nb_render_markdown_format = "myst"  # links of a generated table are resolved

# Pages whose Python is run elsewhere, and where.
executed_elsewhere = {
    "five_ways": "tests/validation/test_five_ways.py",
    "executors": "tests/sampling/test_real_executors.py",
    "how_to/stan_programs": "tests/derived/test_from_bridgestan.py",
}

numfig = True
numfig_format = {"figure": "Figure %s"}

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"refhmc {release}"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_copy_source = False
html_show_sphinx = False


def linkcode_resolve(domain: str, info: dict) -> str | None:
    """Return the address of an object's line on the page with its source file, from a page of the reference."""
    from source_pages import page_of

    found = sys.modules.get(info["module"])
    for part in info["fullname"].split("."):
        found = getattr(found, part, None)
    found = getattr(found, "fget", None) or getattr(found, "func", None) or found
    found = inspect.unwrap(getattr(found, "py_func", found))
    try:
        file, line = inspect.getsourcefile(found), inspect.getsourcelines(found)[1]
    except (TypeError, OSError):
        return None
    if file is None or not Path(file).is_relative_to(ROOT):
        return None
    name = Path(file).relative_to(ROOT).as_posix()
    env = building[-1].env
    env.source_files.setdefault(env.docname, set()).add(name)
    return f"../../{page_of(name)}.html#line-{line}"


building: list = []  # the application, which Sphinx does not hand to ``linkcode_resolve``


def skip_old_names(app: object, what: str, name: str, value: object, skip: bool, options: object) -> bool | None:
    """Leave deprecated names out of the reference."""
    return True if hasattr(value, "replaced_by") else None


def show_own_section(app: object, page: str, template: str, context: dict, doctree: object) -> None:
    """Show only the entries of its own section in the sidebar of a page, since the reference alone has some 300 pages."""
    toctree = context["toctree"]
    context["toctree"] = lambda **options: toctree(**options | {"collapse": True})


def copy_interactive_page(app: object, exception: Exception | None) -> None:
    """Copy ``moving/``, which runs from a file, too."""
    if exception is None and app.builder.format == "html":
        others = shutil.ignore_patterns("test", "screenshots*", "client.js", "golden.js", "__pycache__")
        shutil.copytree(HERE / "moving", Path(app.outdir) / "moving", ignore=others, dirs_exist_ok=True)


def setup(app: object) -> None:
    from pygments.lexers.special import TextLexer

    building.append(app)
    app.connect("autodoc-skip-member", skip_old_names)
    app.connect("html-page-context", show_own_section, priority=400)  # before the theme makes the sidebar
    app.connect("build-finished", copy_interactive_page, priority=400)  # before its links are checked
    app.add_lexer("mermaid", TextLexer)  # shown as its text: what draws it comes from the network
