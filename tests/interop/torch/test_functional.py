"""Graphs with in-place operators, as hostile files may hold them."""

import pytest

from nxjax.errors import InvalidFileError
from nxjax.interop.torch.functional import functional
from nxjax.interop.torch.graph import BUFFER, NodeRef, TorchGraph, TorchNode


def node(target, output, *args):
    return TorchNode(target, args, {}, output, None, "")


WRITE = node("aten.relu_", "w", NodeRef("x"))


@pytest.mark.parametrize(
    "nodes",
    [
        [node("aten.alias", "v", NodeRef("v")), node("aten.relu_", "w", NodeRef("v"))],  # a view of itself
        [node("aten.alias", "u", NodeRef("v")), node("aten.alias", "v", NodeRef("u")), WRITE],  # of each other
        [node("aten.alias", "v", NodeRef("x")), node("aten.alias", "x", NodeRef("v")), WRITE],  # a name given again
        [WRITE, node("aten.relu_", "x", NodeRef("w"))],
        [node("aten.split.Tensor", ("a", ("a",)), NodeRef("x"), 1), WRITE],
    ],
)
def test_values_that_go_in_a_circle_are_a_damaged_file(nodes):
    with pytest.raises(InvalidFileError, match=r"one name|none before it"):
        functional(TorchGraph(("x",), tuple(nodes), (NodeRef("x"),)), [(BUFFER, "x")])


def test_a_written_buffer_is_the_first_result():
    graph, written = functional(TorchGraph(("x",), (WRITE,), (NodeRef("w"),)), [(BUFFER, "x")])
    assert written == (("BUFFER_MUTATION", "x"),) and len(graph.outputs) == 2
