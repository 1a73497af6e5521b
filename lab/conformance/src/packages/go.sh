# The tests that Go's packages bring with them: goroutines, signals, processes, compression.
need go golang-go
if ! [ -e "$(go env GOROOT)/src/sort/sort_test.go" ]; then
	echo "SKIP Go's sources are not installed (package golang-src)"
	exit 0
fi
export GOCACHE="$PWD/cache" GOFLAGS=-count=1 GO111MODULE=off
cd "$(go env GOROOT)/src"
exec go test -short container/... sort strings sync/... os/signal os/exec bufio compress/... \
	encoding/json
