"""Memory available to a process, in file trees as on Linux, and on this machine."""

from __future__ import annotations

import pytest

from refhmc.core.available import available

MiB = 2**20


def put(root, **files):
    """Write files by path."""
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(text), encoding="utf-8")


def machine(root, megabytes, cgroup, mounts):
    put(
        root,
        **{
            "proc/meminfo": f"MemTotal: {1024 * 9000} kB\nMemFree: 12 kB\nMemAvailable:   {1024 * megabytes} kB\n",
            "proc/self/cgroup": cgroup,
            "proc/self/mountinfo": "25 30 0:23 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n" + mounts,
        },
    )


VERSION_2 = "35 25 0:30 {top} /sys/fs/cgroup rw,nosuid,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def group(root, path, limit, used, inactive=0):
    put(
        root / "sys/fs/cgroup" / path,
        **{
            "memory.max": f"{limit}\n",
            "memory.current": f"{used}\n",
            "memory.stat": f"anon 5\ninactive_file {inactive}\nactive_file 77\n",
        },
    )


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (("max", 100), ("max", 50), 4000),
        ((3000 * MiB, 100 * MiB), ("max", 50 * MiB), 2900),
        ((3000 * MiB, 100 * MiB), (1000 * MiB, 50 * MiB), 950),
        ((1000 * MiB, 400 * MiB, 150 * MiB), (1000 * MiB, 50 * MiB), 750),  # files that can be given back
        ((100 * MiB, 150 * MiB), ("max", 0), 0),  # more than it may
        ((9000 * MiB, 0), (8000 * MiB, 0), 4000),  # the machine has less
    ],
)
def test_the_least_of_nested_groups_and_the_machine(tmp_path, outer, inner, expected):
    machine(tmp_path, 4000, "0::/system.slice/job 7.scope\n", VERSION_2.format(top="/"))
    group(tmp_path, "system.slice", *outer)
    group(tmp_path, "system.slice/job 7.scope", *inner)
    assert available(tmp_path) == expected * MiB


def test_a_container_sees_its_own_group_as_the_root(tmp_path):
    """With its own namespace, or without one, where the mount has the group as its root."""
    for name, cgroup, top in (("own", "0::/\n", "/"), ("host's", "0::/docker/ab\n", "/docker/ab")):
        root = tmp_path / name
        machine(root, 4000, cgroup, VERSION_2.format(top=top))
        group(root, ".", 500 * MiB, 100 * MiB)
        assert available(root) == 400 * MiB
    root = tmp_path / "elsewhere"  # a group that is not below what is mounted
    machine(root, 4000, "0::/../../other\n", VERSION_2.format(top="/"))
    group(root, ".", 300 * MiB, 100 * MiB)
    assert available(root) == 200 * MiB


def test_version_1(tmp_path):
    mounts = (
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
    )
    machine(tmp_path, 4000, "3:cpu,cpuacct:/a\n4:memory:/batch/job\n0::/init.scope\n", mounts)
    for path, limit, used, inactive in (
        ("memory", 2**63 - 4096, 0, 0),
        ("memory/batch", 2000 * MiB, 900 * MiB, 200 * MiB),
        ("memory/batch/job", 2**63 - 4096, 700 * MiB, 0),
    ):
        put(
            tmp_path / "sys/fs/cgroup" / path,
            **{
                "memory.limit_in_bytes": limit,
                "memory.usage_in_bytes": used,
                "memory.stat": f"inactive_file 1\ntotal_inactive_file {inactive}\n",
            },
        )
    assert available(tmp_path) == 1300 * MiB
    put(tmp_path / "sys/fs/cgroup/memory/batch/job", **{"memory.limit_in_bytes": 750 * MiB})
    assert available(tmp_path) == 50 * MiB


def test_unreadable_files_are_not_limits(tmp_path):
    machine(tmp_path, 4000, "rubbish\n0::/\n", "35\n\n" + VERSION_2.format(top="/") + "7 - cgroup2\n")
    put(tmp_path / "sys/fs/cgroup", **{"memory.max": "", "memory.current": "x"})
    assert available(tmp_path) == 4000 * MiB


def test_this_machine_has_a_limit(tmp_path):
    assert 2**20 < available() < 2**50
    assert 2**20 < available(tmp_path) < 2**50  # without /proc, as on other systems
