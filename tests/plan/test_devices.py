"""`--devices`: what it takes, and what the plan says about them."""

from __future__ import annotations

import pytest

from stagemesh.config.host import Host
from stagemesh.plan.devices import Devices, devices_from
from stagemesh.plan.values import DevicesPlan
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.unset import UNSET, Unset

CPU = Host(kind="cpu", count=None, memory_bytes=12)
CUDA = Host(kind="cuda", count=4, memory_bytes=None)


def taken(given: str | int | Unset, host: Host) -> Devices:
    """Read what must be right."""
    devices = devices_from(given, host)
    assert isinstance(devices, Devices)
    return devices


def refused(given: str | int, host: Host = CPU) -> Diagnostic:
    """Read what must be wrong."""
    found = devices_from(given, host)
    assert isinstance(found, Diagnostic)
    assert str(found.origin) == "--devices"
    return found


def test_slots_of_a_cpu_divide_its_memory() -> None:
    """Three slots have a third each; no slots count as one."""
    devices = taken(UNSET, CPU)
    assert devices.count is None
    assert devices.resolved(3) == DevicesPlan(kind="cpu", count=3, memory_bytes=4, imaginary=False)
    assert devices.resolved(0).memory_bytes == 12


@pytest.mark.parametrize("given", ["2", 2])
def test_a_number_takes_so_many_devices_of_the_host(given: str | int) -> None:
    """As text or as a number."""
    assert taken(given, CPU).count == 2
    assert taken(given, CUDA).count == 2


def test_a_host_with_gpus_offers_all_of_them() -> None:
    """Their memory is not known without a driver."""
    devices = taken(UNSET, CUDA)
    assert (devices.kind, devices.count) == ("cuda", 4)
    assert devices.resolved(4).memory_bytes is None


def test_imaginary_devices_have_the_memory_of_their_name() -> None:
    """Eight H200 are planned for wherever one sits."""
    devices = taken("8xH200", CPU)
    assert devices.resolved(8) == DevicesPlan(
        kind="H200", count=8, memory_bytes=141 * 10**9, imaginary=True
    )


@pytest.mark.parametrize(
    "given", ["", "0", "-1", "2.5", "two", "8x", "x", "8 x H200", True, "8xH2,"]
)
def test_anything_else_is_refused_with_both_forms(given: str | int) -> None:
    """The help shows what to write."""
    found = refused(given)
    assert found.code == "PL001"
    assert "8xH200" in (found.help or "")


def test_an_unknown_name_gets_the_nearest_one() -> None:
    """Names are exact."""
    found = refused("8xh200")
    assert found.message == "unknown device `h200`"
    assert "`H200`" in (found.help or "")


def test_more_devices_than_the_host_has_are_refused() -> None:
    """Only imaginary ones may be more."""
    found = refused("5", CUDA)
    assert found.message == "`--devices 5` asks for more than the `4` devices of this host"


def test_devices_of_a_host_keep_the_names_of_the_driver() -> None:
    """Fewer devices are the first ones of those that are visible."""
    host = Host(kind="cuda", count=3, memory_bytes=None, ids=("5", "7", "1"), system="linux")
    assert taken(UNSET, host).resolved(3).ids == ("5", "7", "1")
    assert taken(2, host).resolved(2).ids == ("5", "7")
    assert taken("2xH100", host).resolved(2).ids == ()


@pytest.mark.parametrize(
    ("given", "platform"),
    [
        ("1", "cpu"),
        ("1xH100", "cuda"),
        ("1xMI300X", "rocm"),
        ("1xAscend910B", "npu"),
        ("1xMax1550", "xpu"),
        ("1xMTTS4000", "musa"),
    ],
)
def test_every_device_has_a_platform(given: str, platform: str) -> None:
    """That of the sections of a deploy file."""
    assert taken(given, CPU).platform == platform
