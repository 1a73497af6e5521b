# The daemon that runs becomes the version that was just installed: no process moves for it.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    if systemctl --quiet is-active osmos.service; then
        systemctl reload osmos.service ||
            echo "osmos: the node still runs the version before: systemctl status osmos" >&2
    fi
fi
