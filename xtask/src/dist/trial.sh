# Installs, runs, upgrades and purges the package in a Debian root: trial.sh ROOT OLD NEW. It runs in namespaces of its
# own, so that nothing of it remains.
set -e
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t sysfs sys "$root/sys"
mount -t bpf bpf "$root/sys/fs/bpf"
cp "$2" "$root/tmp/old.deb"
cp "$3" "$root/tmp/new.deb"
ip link add eth0 type veth peer name eth1
ip link set eth0 up
ip link set eth1 up
chroot "$root" /bin/sh -ec '
    dpkg --install /tmp/old.deb > /dev/null
    limiter attach eth0 --sources 4096 > /dev/null
    limiter limit set source --rate 10/s > /dev/null
    limiter deny add 192.0.2.7 > /dev/null
    dpkg --install /tmp/new.deb > /dev/null
    limiter attach eth0 --replace > /dev/null
    limiter deny list | grep -q 192.0.2.7
    limiter limit list | grep -q "10 pps"
    id limiter > /dev/null
    dpkg --verify limiter
    dpkg --purge limiter > /dev/null
    for left in /sys/fs/bpf/limiter /etc/limiter /etc/default/limiter /var/lib/limiter /usr/share/doc/limiter /usr/sbin/limiter; do
        if [ -e "$left" ]; then echo "$left is left of the package" >&2; exit 1; fi
    done
'
if ip link show eth0 | grep -q xdp; then
    echo "a program is left on the interface" >&2
    exit 1
fi
rm "$root/tmp/old.deb" "$root/tmp/new.deb"
