# What all scripts of this directory begin with. They run in an empty directory as an ordinary user,
# and judge by themselves: whatever is not as it should be ends them with another status than 0.
set -eu
export HOME="$PWD" LC_ALL=C.UTF-8

# need COMMAND PACKAGE
need() {
	command -v "$1" >/dev/null && return
	echo "SKIP $1 is not installed (package $2)"
	exit 0
}

# Until a command succeeds, but not for ever.
await() {
	for _ in $(seq 600); do
		"$@" && return
		sleep 0.1
	done
	echo "in vain: $*"
	exit 1
}
