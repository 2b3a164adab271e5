import re
import sys
from pathlib import Path

from sphinx.domains.python import PyAttribute, PyMethod, PyProperty

import dspn

# Pictures of the gallery and equations are made by modules beside this one.
sys.path.insert(0, str(Path(__file__).parent))

project = "dspn"
author = "The dspn authors"
copyright = "The dspn authors"
version = release = dspn.__version__

extensions = [
    "mathml",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "decisions/template.md"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"dspn {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]

# The examples are run when the pages are built; one that fails ends the build.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("gallery_figures",),
    "reset_modules": (),
    "capture_repr": (),
    "abort_on_example_error": True,
    "backreferences_dir": None,
    "download_all_examples": False,
    "min_reported_time": 60,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
}


def _name_reading(app, what, name, obj, options, signature, returned):
    """Names the arguments that `**given` and `**reading` stand for, as `help` does."""
    found = re.search(r"\*\*(given|reading): [^,\[]*\[[^\]]*\]", signature or "")
    if found is None:
        return None
    named = "lengths=None, inputs=None" if found[1] == "given" else "lengths=None"
    star = "" if "*, " in signature else "*, "
    return signature.replace(found[0], f"{star}{named}, **reading: Unpack[Reading]"), returned


def _no_entry(self, signature):
    return ""


def setup(app):
    # A thousand methods and attributes beside a page are too many to read, and every page is made
    # with all of them: classes and functions have an entry.
    for kind in (PyAttribute, PyMethod, PyProperty):
        kind._toc_entry_name = _no_entry
    # Sphinx reads the defaults of arguments from the source, which has fewer of them.
    for kind in (dspn.DSPN, dspn.HMM, dspn.HMMSPN, dspn.DSPNClassifier, dspn.Model):
        for owner in kind.__mro__:
            for method in vars(owner).values():
                getattr(method, "__dict__", {}).pop("__signature__", None)
    app.connect("autodoc-process-signature", _name_reading)
