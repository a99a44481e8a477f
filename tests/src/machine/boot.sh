# Boots systemd in namespaces of its own, on a copy of this machine's files that is in memory. What it
# could do to the real machine through the kernel is taken away first: clocks, modules, /proc/sys, /sys.
set -e
mount -t tmpfs none /run
mkdir /run/copy /run/work /run/root
mount -t overlay -o lowerdir=/,upperdir=/run/copy,workdir=/run/work none /run/root
root=/run/root
mount -t proc none $root/proc
mount --bind $root/proc/sys $root/proc/sys
mount -o remount,bind,ro $root/proc/sys
mount -t sysfs -o ro none $root/sys
mount -t cgroup2 none $root/sys/fs/cgroup
mount -t bpf -o mode=0700 none $root/sys/fs/bpf
for folder in run tmp dev; do mount -t tmpfs none $root/$folder; done
for device in null zero full random urandom tty; do
    touch $root/dev/$device
    mount --bind /dev/$device $root/dev/$device
done
mkdir $root/dev/pts $root/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 none $root/dev/pts
mount -t tmpfs none $root/dev/shm
ln -s pts/ptmx $root/dev/ptmx
ln -s /proc/self/fd $root/dev/fd
touch $root/dev/console
mkdir $root/tmp/shared
mount --bind "$SHARED" $root/tmp/shared
# Nothing that this machine starts, or mounts, is to be started there.
: > $root/etc/fstab
mkdir -p $root/run/systemd/system
printf '[Unit]\n' > $root/run/systemd/system/bare.target
cd $root
mkdir -p run/before
pivot_root . run/before
umount -l /run/before
cd /
exec setpriv --bounding-set=-sys_module,-sys_time,-sys_rawio \
    env -i container=limiter-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=bare.target --log-target=journal --show-status=no
