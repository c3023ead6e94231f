"""AMD's driver: layouts as a C compiler lays them out, its answers, and its refusals."""

import ctypes
import errno
import shutil
import struct
import subprocess

import pytest

from nxjax.backends.sensors import amdxdna
from tests.backends.sensors.trees import ANSWERS, Driver, roots, ryzen, sensor

# The facts of the driver's user interface in C: field by field, in order.
C = {
    "GetInfo": "uint32_t param, buffer_size; uint64_t buffer;",
    "Sensor": "char label[64]; uint32_t input, max, average, highest; char status[64]; char units[16];"
    " int8_t unitm; uint8_t type; uint8_t pad[6];",
    "Clock": "char name[16]; uint32_t freq_mhz, pad;",
    "Clocks": "struct Clock mp_npu_clock, h_clock;",
    "Mode": "uint8_t power_mode; uint8_t pad[7];",
    "Resources": "uint64_t npu_clk_max, npu_tops_max, npu_task_max, npu_tops_curr, npu_task_curr;",
    "DriverContext": "uint32_t context_id, start_col, num_col, pad; int64_t pid;"
    " uint64_t command_submissions, command_completions, migrations, preemptions, errors;",
    "Version": "uint32_t major, minor, patch, build;",
    "Tiles": "uint16_t row_count, row_start, dma_channel_count, lock_count, event_reg_count; uint16_t pad[3];",
    "Metadata": "uint32_t col_size; uint16_t cols, rows; uint32_t version_major, version_minor;"
    " struct Tiles core, mem, shim;",
}


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_structures_are_laid_out_as_in_c(tmp_path):
    lines = ["#include <stddef.h>", "#include <stdint.h>", "#include <stdio.h>", "#include <sys/ioctl.h>"]
    lines += [f"struct {name} {{ {body} }};" for name, body in C.items()]
    lines.append("int main(void) {")
    for name in C:
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        lines += [
            f'printf("{name}.{f} %zu\\n", offsetof(struct {name}, {f}));' for f, *_ in getattr(amdxdna, name)._fields_
        ]
    lines.append("printf(\"GET_INFO %lu\\n\", (unsigned long)_IOWR('d', 0x40 + 7, struct GetInfo));")
    lines.append("printf(\"SET_STATE %lu\\n\", (unsigned long)_IOWR('d', 0x40 + 8, struct GetInfo)); return 0; }")
    (tmp_path / "facts.c").write_text("\n".join(lines))
    subprocess.run(["cc", "-o", tmp_path / "facts", tmp_path / "facts.c"], check=True)
    facts = dict(line.split() for line in subprocess.check_output([tmp_path / "facts"], text=True).splitlines())
    for name in C:
        ours = getattr(amdxdna, name)
        assert ctypes.sizeof(ours) == int(facts.pop(name)), name
        for field, *_ in ours._fields_:
            assert getattr(ours, field).offset == int(facts.pop(f"{name}.{field}")), (name, field)
    assert facts == {"GET_INFO": str(amdxdna.GET_INFO), "SET_STATE": str(amdxdna.SET_STATE)}


def test_devices_are_those_of_the_driver(tmp_path):
    assert amdxdna.devices(roots(tmp_path)) == []
    ryzen(tmp_path)
    (device,) = amdxdna.devices(roots(tmp_path))
    assert (device.bdf, device.name, device.firmware) == ("0000:c5:00.1", "NPU Phoenix", "1.5.5.391")
    assert device.node == tmp_path / "dev/accel/accel0"


def test_answers_become_figures(tmp_path):
    ryzen(tmp_path)
    here = roots(tmp_path, ioctl=Driver(ANSWERS))
    reading, answered = amdxdna.reading(here, amdxdna.devices(here)[0])
    assert answered and (reading.celsius, reading.watts, reading.megahertz) == (57.0, 6.25, 1600.0)
    assert reading.busy == pytest.approx(0.4)
    assert ("MP-NPU Clock", 847.0, "MHz") in reading.parts and not reading.why
    node = amdxdna.devices(here)[0].node
    assert amdxdna.context_limit(here, node) == 6
    assert [(c.pid, c.num_col) for c in amdxdna.contexts(here, node)] == [(4321, 4)]


def test_what_the_firmware_does_not_fill_is_no_figure(tmp_path):
    ryzen(tmp_path)
    silent = sensor("Total Power", 0xFFFF, "W", -3, 0) + sensor("Column 0 Utilization", 0xFFFF, "%", 0, 1)
    here = roots(tmp_path, ioctl=Driver({4: silent}))
    reading, answered = amdxdna.reading(here, amdxdna.devices(here)[0])
    assert answered and not reading.available and reading.source == ""
    assert "no such answer" in reading.why and "temperature" in reading.why


@pytest.mark.parametrize(
    ("code", "said"),
    [(errno.EACCES, "group that owns it"), (errno.EOPNOTSUPP, "no such answer"), (errno.EIO, "refused")],
)
def test_refusals_are_said_in_words(tmp_path, code, said):
    ryzen(tmp_path)
    here = roots(tmp_path, ioctl=Driver({3: code, 4: code}))
    reading, answered = amdxdna.reading(here, amdxdna.devices(here)[0])
    assert not answered and not reading.available and said in reading.why
    assert amdxdna.context_limit(here, amdxdna.devices(here)[0].node) is None


def test_the_power_mode_is_told_and_asked(tmp_path):
    ryzen(tmp_path)
    driver = Driver({})
    here = roots(tmp_path, ioctl=driver)
    node = amdxdna.devices(here)[0].node
    for number, mode in enumerate(amdxdna.MODES):
        amdxdna.set_power_mode(here, node, mode)
        assert driver.told[-1] == number and amdxdna.power_mode(here, node) == mode
    driver.answers[9] = struct.pack("<B7x", 9)
    driver.mode = 9
    assert amdxdna.power_mode(here, node) == "mode 9"
