# A parent that tells all that it learns of its child. Usage: parent.py fg|bg COMMAND...
import os, signal, sys

place, command = sys.argv[1], sys.argv[2:]
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    if place == "fg":
        os.tcsetpgrp(0, os.getpid())
    # Whoever started the tests may ignore some, as nohup(1) does.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    os.execvp(command[0], command)
print(f"<child {child}>", flush=True)
while True:
    _, status = os.waitpid(child, os.WUNTRACED | os.WCONTINUED)
    if os.WIFSTOPPED(status):
        print(f"<stopped {os.WSTOPSIG(status)}>", flush=True)
    elif os.WIFCONTINUED(status):
        print("<continued>", flush=True)
    elif os.WIFSIGNALED(status):
        print(f"<killed {os.WTERMSIG(status)}>", flush=True)
        break
    else:
        print(f"<exited {os.WEXITSTATUS(status)}>", flush=True)
        break
