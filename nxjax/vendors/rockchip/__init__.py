"""Rockchip's NPUs through RKNN Toolkit 2, which quantizes by itself and brings a simulator of the chips."""
