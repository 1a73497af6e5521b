# Asks for an io_uring when it is told to: says what the kernel answers.
import ctypes, os, sys

libc = ctypes.CDLL(None, use_errno=True)
IO_URING_SETUP = 425


def ring():
    parameters = ctypes.create_string_buffer(120)
    ring = libc.syscall(IO_URING_SETUP, 4, parameters)
    if ring < 0:
        return os.strerror(ctypes.get_errno())
    os.close(ring)
    return "a ring"


def by_child():
    print(end="", flush=True)
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, ring().encode())
        os._exit(0)
    os.close(write)
    said = os.read(read, 100).decode()
    os.close(read)
    os.wait()
    return said


def allow_all():
    """Installs a filter of one instruction, which allows everything."""
    code = ctypes.create_string_buffer(bytes([6, 0, 0, 0, 0, 0, 255, 127]))
    program = (ctypes.c_long * 2)(1, ctypes.addressof(code))
    libc.prctl(38, 1, 0, 0, 0)
    return libc.prctl(22, 2, program)


print("ready", flush=True)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
