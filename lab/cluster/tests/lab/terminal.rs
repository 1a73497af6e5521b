//! Job control: a command in a node behaves in the caller's shell like one that is not.

use crate::machine::{self, PROGRAM, lab, lab_ok};
use std::process::Command;

/// Types lines into an interactive shell on a pseudo-terminal and waits for what must appear.
const TYPIST: &str = r#"
import os, pty, select, signal, sys, time
# A shell hands on what it was started with ignored, as tests are that run in the background.
signal.signal(signal.SIGINT, signal.SIG_DFL)
program, name = sys.argv[1:]
pid, tty = pty.fork()
if pid == 0:
    os.environ['PS1'] = ''
    os.execvp('bash', ['bash', '--norc', '--noprofile', '--noediting', '-i'])
seen = ''
def until(text):
    global seen
    deadline = time.monotonic() + 20
    while text not in seen:
        ready, _, _ = select.select([tty], [], [], deadline - time.monotonic())
        if not ready: sys.exit(f'never saw {text!r}, only {seen!r}')
        seen += os.read(tty, 65536).decode(errors='replace')
    seen = seen[seen.index(text) + len(text):]
def type_in(text): os.write(tty, text.encode())
run = f'{program} exec --name {name} 1 -- '
type_in('stty -echo; echo quiet\n'); until('quiet\r\n')
# It has the terminal: it can read, and its group is the foreground one.
type_in(run + "sh -c 'echo ask; read x; echo got-$x'\n")
until('ask'); type_in('word\n'); until('got-word')
# ^C reaches it and nothing else.
type_in(run + 'sh -c "echo up; exec sleep 100"\n')
until('up'); type_in('\x03'); type_in('echo st=$?\n'); until('st=130')
# ^Z stops it for the shell, fg continues it, with the terminal.
type_in(run + "sh -c 'echo up; read x; echo got-$x'\n")
until('up'); type_in('\x1a'); until('Stopped')
type_in('echo shell-again\n'); until('shell-again')
type_in('fg\n'); until('exec'); type_in('late\n'); until('got-late')
# In the background it may not read, and is stopped for trying, as any other.
type_in(run + "sh -c 'read x; echo got-$x' &\n")
type_in('while ! jobs | grep Stopped; do sleep 0.02; done\n'); until('Stopped')
type_in('fg\n'); until('exec'); type_in('last\n'); until('got-last')
# A shell inside has job control of its own.
type_in(run + 'bash --norc --noprofile --noediting -i\n')
type_in('echo in-$(hostname)\n'); until(f'in-{name}-node1')
type_in("sh -c 'echo deep; read x; echo got-$x'\n"); until('deep')
type_in('\x1a'); until('Stopped')
type_in('fg\n'); until('deep'); type_in('deepest\n'); until('got-deepest')
type_in('exit 9\n'); type_in('echo st=$?\n'); until('st=9')
type_in('exit\n')
os.waitpid(pid, 0)
print('typed all')
"#;

#[test]
fn a_command_in_a_node_obeys_the_terminal() {
    if !needs::can_run(&["bash", "python3"]) {
        return;
    }
    machine::alone("terminal::a_command_in_a_node_obeys_the_terminal", || {
        let name = machine::name();
        lab_ok(&["up", "--bare", "--nodes", "1", "--name", &name]);
        let typist = Command::new("python3").args(["-c", TYPIST, PROGRAM, &name]).output().unwrap();
        lab(&["down", "--name", &name]);
        let errors = String::from_utf8_lossy(&typist.stderr);
        assert_eq!(String::from_utf8_lossy(&typist.stdout), "typed all\n", "{errors}");
    });
}
