"""Sphinx reads the Markdown pages of docs/; tools/build_docs calls it."""

import importlib
import inspect
import os
import pathlib
import re
import xml.etree.ElementTree

import docutils.nodes
import latex2mathml.converter
import sphinx.addnodes
import sphinx.ext.autodoc
import sphinx.util.logging

project = "lopt"
author = "the authors of lopt"
extensions = [
    "myst_parser",
    "breathe",
    "sphinx_inline_tabs",
    "sphinx_copybutton",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["site"]
autodoc_typehints = "none"
autodoc_mock_imports = ["ray"]  # which lopt.ray imports
napoleon_use_ivar = True
autodoc_member_order = "bysource"
root_doc = "index"
default_role = "code"
html_theme = "furo"
html_title = "lopt"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["lopt.css"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_fence_as_directive = ["math"]  # which forges show, too
html_math_renderer = "mathml"
copybutton_prompt_text = "$ "

breathe_projects = {"lopt": os.environ["LOPT_DOXYGEN_XML"]}
breathe_default_project = "lopt"
breathe_domain_by_extension = {"h": "cpp"}
breathe_show_include = False

# Names in signatures that are documented elsewhere, or are the library's own affair.
nitpick_ignore_regex = [
    ("cpp:identifier", r"(std|Eigen|torch|nlohmann|fmt)(::.*)?|u?int\d*_t|size_t"),
    ("py:class", r"numpy\..*|collections\.abc\..*|os\.PathLike|torch\..*|Optimizer"),
    ("cpp:identifier", "Buffer|Memory|HostMemory|Problems|Wakeup|ScriptModule|Augmentation|ImageExtent|Experiment"),
    ("cpp:identifier", "LossClosure|Outer|RateSchedule|ByteImage"),
]


def tidy_xml(directory):
    """Takes from Doxygen's XML links to files and what is private.

    Private virtual functions with a comment stay: those are for derived classes.
    """
    for path in pathlib.Path(directory).glob("*.xml"):
        text = path.read_text(encoding="utf-8")
        text = re.sub(r'<ref refid="\w*_8h"[^>]*>(.*?)</ref>', r"\1", text)
        tree = xml.etree.ElementTree.ElementTree(xml.etree.ElementTree.fromstring(text))
        for parent in list(tree.iter()):
            for child in parent.findall("*[@prot='private']"):
                if child.tag not in ("memberdef", "innerclass"):
                    continue
                comment = child.findall("briefdescription/*")
                comment += child.findall("detaileddescription/*")
                if child.get("virt", "non-virtual") == "non-virtual" or not comment:
                    parent.remove(child)
        tree.write(path, encoding="utf-8", xml_declaration=True)


tidy_xml(os.environ["LOPT_DOXYGEN_XML"])


class NanobindMethod(sphinx.ext.autodoc.MethodDocumenter):
    """Methods of the extension, whose docstrings begin with their signatures."""

    objtype = "nanobind"
    directivetype = "method"
    priority = 20

    @classmethod
    def can_document_member(cls, member, membername, isattr, parent):
        return type(member).__name__ == "nb_method"


def check_names(app):
    """Warns of public names of the package, or of its classes, without reference or docstring. The
    classes of types have config.md for a reference."""
    text = (pathlib.Path(app.srcdir) / "reference/python.md").read_text(encoding="utf-8")
    package = importlib.import_module("lopt")
    logger = sphinx.util.logging.getLogger(__name__)
    for name in package.__all__:
        item = getattr(package, name)
        if isinstance(item, type) and item.__base__ is package.Component:
            continue
        if not re.search(rf":: {name}$", text, re.MULTILINE):
            logger.warning("lopt.%s is not in the reference", name)
        members = vars(item) if isinstance(item, type) else {}
        public = {member: value for member, value in members.items() if member[0] != "_"}
        for member, value in ({"": item} | public).items():
            described = callable(value) or isinstance(value, (property, classmethod))
            if described and re.fullmatch(r"(\(self\).*)?", inspect.getdoc(value) or ""):
                logger.warning("lopt.%s %s has no docstring", name, member)


def hide_private(app, what, name, item, options, signature, annotation):
    """Of a signature the parameters that are not the caller's affair stay out."""
    return re.sub(r", _\w+=[^,)]*", "", signature or "") or None, annotation


def unlink_repository(app, tree):
    """Of a link that leads from a page into the repository around docs/ the site has the text, but
    for a link to a file of code, which the site has a copy of. check_links reads such links."""
    for node in list(tree.findall(sphinx.addnodes.pending_xref)):
        page = pathlib.Path(app.env.doc2path(node.get("refdoc", "index")))
        target = (page.parent / node["reftarget"].partition("#")[0]).resolve()
        if node["reftype"] == "myst" and pathlib.Path(app.srcdir) not in target.parents:
            node.replace_self(node.children)


_TABS = {"cpp": "C++", "python": "Python", "bash": "Program"}
_BLOCK = re.compile(r"^<!-- examples/[^\n]* -->\n```(\w+)\n.*?^```$\n*", re.DOTALL | re.MULTILINE)


def tab_languages(app, docname, source):
    """Blocks that docs/site/refresh writes, one behind the other, become tabs where they are in
    several languages. A forge shows them as they stand."""

    def tabs(run):
        blocks = [(block[1], block[0].rstrip()) for block in _BLOCK.finditer(run[0])]
        if len({language for language, _ in blocks}) == 1:
            return run[0]
        texts = []
        for language in dict.fromkeys(language for language, _ in blocks):
            code = "\n\n".join(text for of, text in blocks if of == language)
            texts.append(f"````{{tab}} {_TABS[language]}\n{code}\n````\n\n")
        return "".join(texts)

    source[0] = re.sub(f"(?:{_BLOCK.pattern})+", tabs, source[0], flags=_BLOCK.flags)


def mathml(node, display):
    """The MathML of a formula in TeX, which browsers show without a script."""
    return latex2mathml.converter.convert(node.astext(), display=display)


def visit_math(writer, node):
    writer.body.append(mathml(node, "inline"))
    raise docutils.nodes.SkipNode


def visit_math_block(writer, node):
    writer.body.append(f'<div class="math">{mathml(node, "block")}</div>\n')
    raise docutils.nodes.SkipNode


def setup(app):
    app.connect("source-read", tab_languages)
    app.connect("doctree-read", unlink_repository)
    app.connect("autodoc-process-signature", hide_private)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.add_autodocumenter(NanobindMethod)
    app.connect("builder-inited", check_names)
