import dspn

project = "dspn"
author = "The dspn authors"
copyright = "The dspn authors"
version = release = dspn.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
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
html_title = f"dspn {release}"
