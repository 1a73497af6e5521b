# The .rpm on a machine that systemd runs: installed, in use, upgraded while a process runs, removed.
files() {
    find / -xdev \( -path /var/lib/rpm -o -path /var/log -o -path /var/cache \) -prune -o -print |
        sort
}
fail() {
    echo "$*"
    exit 1
}
# Nothing of what this machine has is known to its rpm.
rpm="rpm --force-debian --nodeps"
rpm --initdb
# As on every machine with such packages: of their package `filesystem`.
mkdir -p /usr/share/licenses
files > /run/before

$rpm -i /osmos.rpm
$rpm -V osmos
osmos --version
man -w osmos
[ -e /usr/share/licenses/osmos/LICENSE-MIT ]
! systemctl --quiet is-enabled osmos || fail "the installation has enabled the service"
! systemctl --quiet is-active osmos || fail "the installation has started the service"
systemd-analyze verify osmos.service

osmos service install
systemctl is-active osmos
osmos run --home -- sleep 1000 &
until osmos ps --json | grep -q sleep; do :; done
daemon=$(systemctl show --property MainPID --value osmos)
echo 'guests-max = 3' >> /etc/osmos/osmos.toml

$rpm -U --replacepkgs /osmos.rpm
systemctl is-active osmos
[ "$(systemctl show --property MainPID --value osmos)" = "$daemon" ] || fail "another process"
[ "$(readlink "/proc/$daemon/exe")" = /usr/bin/osmos ] || fail "the program before still runs"
osmos ps --json | grep -q sleep || fail "the process is lost"

$rpm -e osmos
[ ! -e "/proc/$daemon" ] || fail "the daemon has not ended"
kill -0 $! || fail "the process has ended with the daemon"
grep -q 'guests-max = 3' /etc/osmos/osmos.toml.rpmsave || fail "the configuration is gone"
[ -d /var/lib/osmos ] || fail "keys and membership are gone"
rm -r /etc/osmos /var/lib/osmos
files > /run/after
diff /run/before /run/after || fail "these are left"
