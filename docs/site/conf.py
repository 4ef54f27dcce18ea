"""Sphinx reads the Markdown pages of docs/; tools/build_docs calls it."""

import os
import pathlib
import re
import xml.etree.ElementTree

project = "lopt"
author = "the authors of lopt"
extensions = ["myst_parser", "breathe", "sphinx_inline_tabs"]
exclude_patterns = ["site"]
root_doc = "index"
html_theme = "furo"
html_title = "lopt"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["lopt.css"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

breathe_projects = {"lopt": os.environ["LOPT_DOXYGEN_XML"]}
breathe_default_project = "lopt"
breathe_domain_by_extension = {"h": "cpp"}
breathe_show_include = False

# Names in signatures that are documented elsewhere, or are the library's own affair.
nitpick_ignore_regex = [
    ("cpp:identifier", r"(std|Eigen|torch|nlohmann|fmt)(::.*)?|u?int\d*_t|size_t"),
    ("cpp:identifier", "Buffer|Memory|HostMemory|Problems|Transport|LossClosure|Outer"),
]


def tidy_xml(directory):
    """Takes from Doxygen's XML links to files and what is private, but for virtual functions with a comment: those are for derived classes."""
    for path in pathlib.Path(directory).glob("*.xml"):
        text = re.sub(r'<ref refid="\w*_8h"[^>]*>(.*?)</ref>', r"\1", path.read_text(encoding="utf-8"))
        tree = xml.etree.ElementTree.ElementTree(xml.etree.ElementTree.fromstring(text))
        for parent in list(tree.iter()):
            for child in parent.findall("memberdef[@prot='private']") + parent.findall("innerclass[@prot='private']"):
                comments = child.find("briefdescription"), child.find("detaileddescription")
                if child.get("virt", "non-virtual") == "non-virtual" or not any(comment is not None and len(comment) for comment in comments):
                    parent.remove(child)
        tree.write(path, encoding="utf-8", xml_declaration=True)


tidy_xml(os.environ["LOPT_DOXYGEN_XML"])
