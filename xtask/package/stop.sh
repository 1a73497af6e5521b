# The daemon ends as by `osmos down`: guests go home, own processes come home.
if [ -d /run/systemd/system ] && [ ! -e /etc/systemd/system/osmos.service ]; then
    # A unit there is somebody else's, and runs another program.
    systemctl disable --now osmos.service
fi
# One that root has started by hand.
pid=$(/usr/bin/osmos status --json 2>/dev/null | sed -n 's/.*"daemon_pid": *\([0-9]*\).*/\1/p')
if [ -n "$pid" ] && [ "$(readlink "/proc/$pid/exe")" = /usr/bin/osmos ]; then
    /usr/bin/osmos down
fi
