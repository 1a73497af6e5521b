# The .deb on a machine that systemd runs: installed, in use, upgraded while a process runs, removed,
# purged.
files() {
    # What dpkg and the manual keep of their own is theirs.
    find / -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \) -prune -o -print |
        sort
}
fail() {
    echo "$*"
    exit 1
}
files > /run/before

dpkg -i /osmos.deb
osmos --version
man -w osmos
man -w osmos-cluster-up
bash -n /usr/share/bash-completion/completions/osmos
osmos config check
! systemctl --quiet is-enabled osmos || fail "the installation has enabled the service"
! systemctl --quiet is-active osmos || fail "the installation has started the service"
systemd-analyze verify osmos.service

osmos service install
[ ! -e /etc/systemd/system/osmos.service ] || fail "there are two units now"
systemctl is-enabled osmos
systemctl is-active osmos
osmos run --home -- sleep 1000 &
until osmos ps --json | grep -q sleep; do :; done
daemon=$(systemctl show --property MainPID --value osmos)
[ "$(readlink "/proc/$daemon/exe")" = /usr/bin/osmos ]
echo 'guests-max = 3' >> /etc/osmos/osmos.toml

dpkg -i /osmos.deb
systemctl is-active osmos
[ "$(systemctl show --property MainPID --value osmos)" = "$daemon" ] || fail "another process"
[ "$(readlink "/proc/$daemon/exe")" = /usr/bin/osmos ] || fail "the program before still runs"
osmos ps --json | grep -q sleep || fail "the process is lost"

dpkg -r osmos
! systemctl --quiet is-active osmos || fail "the service still runs"
[ ! -e "/proc/$daemon" ] || fail "the daemon has not ended"
kill -0 $! || fail "the process has ended with the daemon"
grep -q 'guests-max = 3' /etc/osmos/osmos.toml || fail "the configuration is gone"
[ -d /var/lib/osmos ] || fail "keys and membership are gone"
[ ! -e /usr/bin/osmos ]

dpkg -P osmos
files > /run/after
diff /run/before /run/after || fail "these are left"
