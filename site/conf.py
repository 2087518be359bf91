"""Sphinx's configuration of the documentation site: ``tox -e site`` builds it, ``CONTRIBUTING.md`` has more.

The source folder is the root of the repository, so the pages, and the links between them, are the same here and on a
code host.  Only ``site/api`` has pages of its own: lists of the names that autodoc describes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "site")]
os.environ["ZKCONSUMER_NO_EXTENSIONS"] = "1"  # classes that are compiled where there is a compiler have no docstrings

from zkconsumer.version import __version__  # noqa: E402

project = "zkconsumer"
author = "the zkconsumer contributors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "site_steps"]

root_doc = "README"
include_patterns = [
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
    "migration_docs/README.md", "migration_docs/*/*.md", "examples/*/README.md", "site/api/*.rst",
]  # fmt: skip
exclude_patterns = [".*", "bench", "bridge", "build", "dist", "monitoring", "tests", "zkconsumer", "*.egg-info"]

myst_heading_anchors = 6
myst_enable_extensions = ["html_image"]

INHERITED_FROM_OTHERS = (
    "BaseException,Configuration,ConsumerConnector,Enum,Generic,Mapping,Protocol,ZkConsumerError,int,tuple"
)
"""A class shows the members that it inherits, but not those of these classes."""
autodoc_default_options = {"members": True, "show-inheritance": True, "inherited-members": INHERITED_FROM_OTHERS}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 160  # of names with their modules
toc_object_entries_show_parents = "hide"
nitpicky = True
highlight_language = "text"  # of blocks without a language: outputs
smartquotes = False  # "--execute" is an option, not a dash

html_theme = "furo"
html_title = f"zkconsumer {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
