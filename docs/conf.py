"""The book: `python -m sphinx -W --keep-going -b html docs build/docs` runs every page and checks what it built.

Nothing is loaded from the network, to build or to read: mathematics is MathML, the theme brings its own scripts.
"""

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "_extensions"), str(ROOT)]
# The cells run in processes of their own, on the refhmc whose lines the pages show.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
os.environ["MATPLOTLIBRC"] = str(HERE / "_static" / "matplotlibrc")
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # or the kernel writes to stderr of frozen modules

import refhmc  # noqa: E402

project = "refhmc"
author = "the authors of refhmc"
copyright = author
version = release = refhmc.__version__

extensions = ["myst_nb", "mathml", "source_lines", "executed", "built_pages", "public_names"]
exclude_patterns = ["_*", "**/__pycache__"]
root_doc = "index"
nitpicky = True

myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence", "attrs_inline"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

nb_execution_mode = "force"  # of the pages that are read: those that changed, or whose lines of refhmc did
nb_execution_timeout = 300
nb_execution_show_tb = True  # a cell that raises is a warning
nb_merge_streams = True

# Pages whose Python is run elsewhere, and where.
executed_elsewhere = {
    "five_ways": "tests/validation/test_five_ways.py",
    "executors": "tests/sampling/test_real_executors.py",
}

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"refhmc {release}"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_copy_source = False
html_show_sphinx = False


def take_the_moving_page(app: object, exception: Exception | None) -> None:
    """``moving/`` is a page as it is, which runs from a file, too."""
    if exception is None and app.builder.format == "html":
        others = shutil.ignore_patterns("test", "screenshots*", "client.js", "golden.js", "__pycache__")
        shutil.copytree(HERE / "moving", Path(app.outdir) / "moving", ignore=others, dirs_exist_ok=True)


def setup(app: object) -> None:
    from pygments.lexers.special import TextLexer

    app.connect("build-finished", take_the_moving_page, priority=400)  # before its links are looked at
    app.add_lexer("mermaid", TextLexer)  # shown as its text: what draws it comes from the network
