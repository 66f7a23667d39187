"""The figures of the documents are the ones that their script draws."""

import runpy
import xml.etree.ElementTree

import pytest

from tests.support.paths import ROOT

SCRIPT = runpy.run_path(str(ROOT / "tools/docs/figures.py"))


@pytest.mark.parametrize("name", SCRIPT["FIGURES"])
def test_a_figure_is_drawn_by_the_script_and_its_shapes_are_inside(name):
    text = SCRIPT["FIGURES"][name]().svg()
    assert (ROOT / "docs/figures" / name).read_text() == text
    root = xml.etree.ElementTree.fromstring(text)
    width, height = float(root.get("width")), float(root.get("height"))
    shapes = list(root.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(shapes) > 2
    for shape in shapes[1:]:
        assert float(shape.get("x")) + float(shape.get("width")) <= width
        assert float(shape.get("y")) + float(shape.get("height")) <= height
