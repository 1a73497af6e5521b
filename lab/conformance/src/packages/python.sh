# CPython's own tests of what processes of a pool share.
if ! python3 -c 'import test.test_multiprocessing_fork' 2>/dev/null; then
	echo "SKIP CPython's tests are not installed (package libpython3-testsuite or its like)"
	exit 0
fi
exec python3 -m test -q test_multiprocessing_fork -m '*Pool*' -m '*Queue*' -m '*Manager*' \
	-m '*Shared*'
