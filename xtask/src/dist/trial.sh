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

# A host at the other end of the wire, which lives as long as these namespaces.
unshare --net sleep infinity &
peer=$root/proc/$!/ns/net
until [ "$(readlink "$peer")" != "$(readlink "$root/proc/self/ns/net")" ]; do sleep 0.1; done
ip link add eth0 type veth peer name eth1 netns $!
ip addr add 198.18.0.2/24 dev eth0
ip link set eth0 up
nsenter --net="$peer" ip addr add 198.18.0.1/24 dev eth1
nsenter --net="$peer" ip link set eth1 up

in_root() {
    chroot "$root" /bin/sh -ec "$1"
}

# Sends 200 packets, of which a limit of 10/s with its burst has to drop most, and some have to pass.
check_drops() {
    in_root 'limiter top -n 1 -j > /tmp/before'
    nsenter --net="$peer" bash -c 'for packet in {1..200}; do echo > /dev/udp/198.18.0.2/9; done' 2> /dev/null || true
    in_root '
        count() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$2" | head -n 1; }
        limiter top -n 1 -j > /tmp/after
        for what in passed dropped; do
            before=$(count $what /tmp/before) after=$(count $what /tmp/after)
            if [ "${after:-0}" -le "${before:-0}" ]; then
                echo "of 200 packets over the limit, none is counted as $what" >&2
                exit 1
            fi
        done
        rm /tmp/before /tmp/after
    '
}

in_root '
    dpkg --install /tmp/old.deb > /dev/null
    limiter attach eth0 --sources 4096 > /dev/null
    limiter limit set source --rate 10/s > /dev/null
    limiter deny add 192.0.2.7 > /dev/null
'
check_drops
in_root '
    dpkg --install /tmp/new.deb > /dev/null
    limiter attach eth0 --replace > /dev/null
    limiter deny list | grep -q 192.0.2.7
    limiter limit list | grep -q "10 pps"
'
check_drops
in_root '
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
