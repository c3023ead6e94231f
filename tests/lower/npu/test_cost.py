"""The cost model: against the published Edge TPU times, and term by term on graphs of one node."""

import numpy as np
import pytest

from nxjax.errors import LoweringError, ParameterError
from nxjax.lower.npu.chips import CHIPS, ChipLimits, chip
from nxjax.lower.npu.cost import breakdown, estimate
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.placement import TIMES, Placement


class Net:
    """A chain of layers by shape alone."""

    def __init__(self, *shape):
        self.x = self.input = Tensor("x", shape, np.dtype("int8"))
        self.nodes = []

    def add(self, op, shape, weights=None, /, **attrs):
        y = Tensor(f"t{len(self.nodes)}", shape, np.dtype("int8"))
        w = () if weights is None else (Tensor("w", weights, np.dtype("int8"), data=np.zeros(weights, np.int8)), None)
        self.nodes.append(Node(op, (self.x, *w), (y,), attrs))
        self.x = y
        return self

    def conv(self, out, size=3, stride=1):
        n, h, w, c = self.x.shape
        shape = (n, -(-h // stride), -(-w // stride), out)
        return self.add("conv_2d", shape, (out, size, size, c), groups=1)

    def depthwise(self, stride=1):
        n, h, w, c = self.x.shape
        return self.add("depthwise_conv_2d", (n, -(-h // stride), -(-w // stride), c), (1, 3, 3, c))

    def pool(self):
        n, h, w, c = self.x.shape
        return self.add("max_pool_2d", (n, h // 2, w // 2, c), window=(2, 2), strides=(2, 2))

    def flat(self, out):
        if len(self.x.shape) > 2:
            self.add("reshape", (1, self.x.size), shape=(1, self.x.size))
        return self.add("fully_connected", (1, out), (out, self.x.shape[-1]))

    def graph(self):
        return NpuGraph("net", [self.input], [self.x], self.nodes).check()


def vgg(counts):
    net = Net(1, 224, 224, 3)
    for width, count in zip((64, 128, 256, 512, 512), counts):
        for _ in range(count):
            net.conv(width)
        net.pool()
    return net.flat(4096).flat(4096).flat(1000).graph()


def mobilenet_v1():
    net = Net(1, 224, 224, 3).conv(32, stride=2)
    strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
    for width, stride in zip((64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024), strides):
        net.depthwise(stride).conv(width, size=1)
    return net.add("mean", (1, 1024), axes=(1, 2)).flat(1001).graph()


@pytest.mark.parametrize(
    ("graph", "published", "within", "weights", "macs"),
    [
        (vgg((2, 2, 3, 3, 3)), 296e-3, 0.05, 138.3e6, 15.47e9),
        (vgg((2, 2, 4, 4, 4)), 308e-3, 0.05, 143.6e6, 19.63e9),
        (mobilenet_v1(), 2.4e-3, 0.35, 4.2e6, 569e6),
    ],
    ids=["vgg16", "vgg19", "mobilenet_v1"],
)
def test_edge_tpu_against_the_published_times(graph, published, within, weights, macs):
    """coral.ai/docs/edgetpu/benchmarks, desktop with USB 3."""
    cost = estimate(graph, "edgetpu")
    assert cost["weights"].value == pytest.approx(weights, rel=0.01)
    assert cost["macs"].value == pytest.approx(macs, rel=0.01)
    assert cost["latency"].value == pytest.approx(published, rel=within)
    assert {f.basis for f in cost.figures.values()} == {"model"}


SMALL = ChipLimits("small", "a small chip", {"int8": 1e9}, bandwidth=1e6, on_chip=1 << 20, lanes=(16, 16), launch=0.0)


def test_a_product_is_bound_by_compute_or_by_memory():
    # 1 x 256 x 256 products: 65536 MACs at 1e9/s, 65536 bytes of weights at 1e6/s.
    [_, row] = breakdown(Net(1, 1, 1, 256).flat(256).graph(), SMALL)
    assert row.macs == 65536 and row.traffic == 65536
    assert row.compute == pytest.approx(65.536e-6) and row.memory == pytest.approx(65.536e-3)
    assert row.seconds == row.memory
    [row] = breakdown(Net(1, 64, 64, 16).conv(16, size=1).graph(), SMALL)
    assert row.seconds == row.compute == pytest.approx(64 * 64 * 256 / 1e9)


def test_lanes_that_are_not_filled_cost_time():
    def seconds(channels):
        return breakdown(Net(1, 32, 32, channels).conv(channels, size=1).graph(), SMALL)[0].compute

    assert seconds(17) == pytest.approx(4 * seconds(16))
    assert seconds(32) == pytest.approx(4 * seconds(16))
    depthwise = breakdown(Net(1, 32, 32, 16).depthwise().graph(), SMALL)[0]
    assert depthwise.compute == pytest.approx(32 * 32 * 16 * 9 / 1e9 / (9 / 16))


def test_activations_that_do_not_fit_are_traffic():
    tiny = ChipLimits("tiny", "t", {"int8": 1e9}, 1e6, on_chip=1000)
    g = Net(1, 16, 16, 8).conv(8, size=1).graph()
    assert breakdown(g, SMALL)[0].traffic == 64
    assert breakdown(g, tiny)[0].traffic == 64 + 2 * 16 * 16 * 8


def test_cached_parameters_are_not_sent():
    cached = ChipLimits("cached", "c", {"int8": 1e9}, 1e6, on_chip=1 << 20, cache=100)
    g = Net(1, 16, 16, 8).conv(8, size=1).conv(8, size=1).graph()
    assert [r.traffic for r in breakdown(g, cached)] == [0, 128 - 100]
    assert estimate(g, cached)["parameter cache"].value == 100
    assert estimate(g, SMALL)["traffic"].value == 128 and "parameter cache" not in estimate(g, SMALL)


def test_a_constant_that_two_nodes_read_is_sent_once():
    net = Net(1, 4, 4, 8).conv(8, size=1)
    w = net.nodes[0].inputs[1]
    net.conv(8, size=1)
    net.nodes[1].inputs = (net.nodes[1].inputs[0], w, None)
    assert [r.traffic for r in breakdown(net.graph(), SMALL)] == [64, 0]


def test_launch_link_and_node_times_are_added():
    g = Net(1, 16, 16, 8).conv(8, size=1).graph()
    base = estimate(g, SMALL)["latency"].value
    slow = ChipLimits(
        "slow", "s", {"int8": 1e9}, 1e6, on_chip=1 << 20, lanes=(16, 16), link=1e6, launch=0.5, per_node=0.25
    )
    assert estimate(g, slow)["latency"].value == pytest.approx(base + 0.5 + 0.25)
    slow = ChipLimits("slow", "s", {"int8": 1e9}, 1e6, on_chip=1 << 20, lanes=(16, 16), link=1e5, launch=0.0)
    assert estimate(g, slow)["latency"].value == pytest.approx(base + 2 * 2048 / 1e5 - 2 * 2048 / 1e6)


def test_nodes_on_the_host_are_left_out_and_the_time_is_called_so():
    g = Net(1, 16, 16, 8).conv(8, size=1).conv(8, size=1).graph()
    rows = [Placement("conv_2d", "", "npu"), Placement("conv_2d", "", "host", reason="no")]
    cost = estimate(g, SMALL, rows)
    assert "latency" not in cost and cost["npu latency"].value < estimate(g, SMALL)["latency"].value
    assert cost["macs"].value == 16 * 16 * 64
    none = estimate(g, SMALL, [Placement("conv_2d", "", "host")] * 2)
    # Nothing runs there, which takes no time that could be said.
    assert "npu latency" not in none and "latency" not in none
    with pytest.raises(KeyError, match="npu latency is not known here"):
        none["npu latency"]


def test_precisions():
    def graph(dtype):
        x, y = Tensor("x", (4, 16), np.dtype(dtype)), Tensor("y", (4, 16), np.dtype(dtype))
        w = Tensor("w", (16, 16), np.dtype(dtype), data=np.zeros((16, 16), dtype))
        return NpuGraph("g", [x], [y], [Node("fully_connected", (x, w, None), (y,))])

    with pytest.raises(LoweringError, match="does not compute in float32"):
        estimate(graph("float32"), "edgetpu")
    assert breakdown(graph("float32"), "ane-m1")[0].compute == breakdown(graph("float16"), "ane-m1")[0].compute
    assert breakdown(graph("int16"), "ethos-u55-128")[0].compute > breakdown(graph("int8"), "ethos-u55-128")[0].compute


def test_nothing_runs_faster_than_its_bytes_move_or_its_products_multiply():
    """Of the smallest and of larger graphs: no chip is above its peak, or moves a byte in less than its ports do."""
    tiny = Net(1, 1, 1, 1).conv(1, size=1).graph()
    x, y = Tensor("x", (1, 64), "int8"), Tensor("y", (1, 64), "int8")
    elementwise = NpuGraph("e", [x], [y], [Node("add", (x, x), (y,), {"activation": None})])
    for c in CHIPS.values():
        for g in (tiny, elementwise, Net(1, 32, 32, 8).conv(16).conv(16).graph()):
            if "int8" not in c.macs:
                continue
            cost = estimate(g, c)
            [seconds] = [f.value for name, f in cost.figures.items() if name in TIMES]
            moved = sum(t.nbytes for t in [*g.inputs, *g.outputs, *g.constants()])
            assert seconds >= cost["macs"].value / c.macs["int8"]
            assert seconds >= (moved - min(cost["weights"].value, c.cache)) / c.bandwidth
            # What a run costs whatever it does is in it, or the figure says that it is not.
            assert ("chip time" in cost) == (c.launch is None) and seconds >= (c.launch or 0.0)


def test_a_run_on_xdna_takes_at_least_what_a_run_without_work_takes():
    assert estimate(Net(1, 8, 8, 4).conv(8).graph(), "xdna2")["latency"].value > 84e-6


def test_every_chip_says_where_its_figures_are_from():
    for c in CHIPS.values():
        assert c.source and c.macs and c.bandwidth > 0 and 0 < c.share <= 1 and c.inside > 0
    assert chip("xdna2").macs["int8"] * 2 == pytest.approx(59e12, rel=0.01)
    with pytest.raises(ParameterError, match="no figures"):
        chip("abacus")
