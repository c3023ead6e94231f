"""nxjax beside its peers, interleaved in one run: only ratios are quoted, because machines are noisy."""
