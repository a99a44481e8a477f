#!/bin/busybox sh
# The first process of the guest: mounts what the tests need, runs /run-tests and says on the
# console how that ended.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t bpf bpf /sys/fs/bpf
ip link set lo up
echo "guest kernel: $(uname -r)"
sh /run-tests
echo "guest exit status: $?"
poweroff -f
