"""The pages that come with nxjax, and the command that prints them."""

import pytest

from nxjax.__main__ import main
from nxjax.display import pages
from nxjax.errors import ParameterError


@pytest.mark.parametrize("topic", ["ShapeError", "shapeerror", "nxjax.errors.ShapeError", "jax.errors.shapeerror"])
def test_the_section_of_an_error(topic, capsys):
    assert main(["explain", topic]) == 0
    said = capsys.readouterr().out
    assert said.startswith("ShapeError\n\n") and "Fix: reshape" in said
    assert "```" not in said and "**" not in said


def test_another_name_of_an_error_means_the_same():
    assert pages.explained("JaxRuntimeError") == pages.explained("ExecutionError")


@pytest.mark.parametrize("topic", ["quantization", "docs/quantization.md", "coming-from-jax", "Errors"])
def test_a_page(topic, capsys):
    assert main(["explain", topic]) == 0
    assert capsys.readouterr().out.startswith("# ")


def test_a_page_by_its_words(capsys):
    assert main(["explain", "Coming", "from", "JAX"]) == 0
    assert capsys.readouterr().out.startswith("# ")


def test_the_nearest_names_of_a_misspelt_one(capsys):
    assert main(["explain", "ShpeError"]) == 1
    assert "did you mean ShapeError" in capsys.readouterr().err
    assert main(["explain", "zzzzzzzz"]) == 1
    assert "nxjax explain, without a name, lists them" in capsys.readouterr().err


def test_all_topics_are_listed(capsys):
    assert main(["explain"]) == 0
    said = capsys.readouterr().out
    assert "ShapeError" in said and "quantization" in said


def test_a_copy_without_pages_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(pages, "folder", lambda: tmp_path)
    pages.page.cache_clear()
    assert main(["explain", "ShapeError"]) == 1
    assert "not here" in capsys.readouterr().err
    pages.page.cache_clear()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("numpy.sofmax", "did you mean nx.nn.softmax?"),
        ("numpy.relu", "nx.nn.relu"),
        ("softmax", "nx.nn.softmax"),
        ("lax.sofmax", "did you mean nx.nn.softmax?"),
        ("nn.lineer", ""),  # Python says it: the module has the name
        ("lax.sortt", ""),
        ("numpy.xyzzy", ""),
        ("model.weigth", ""),  # of objects, too
        ("x.relux", ""),
    ],
)
def test_a_name_that_stands_elsewhere_or_is_misspelt(name, says):
    assert pages.absent(name).removeprefix("\n  fix:").strip() == says


@pytest.mark.parametrize(
    ("topic", "says"),
    [("vmap", r"help\(nx\.vmap\) in Python, nxjax explain"), ("int8", "nxjax explain quantization")],
)
def test_a_word_that_is_no_page_is_answered_with_the_pages_that_speak_of_it(topic, says):
    with pytest.raises(ParameterError, match=says):
        pages.explained(topic)
