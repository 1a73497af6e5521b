//! What package managers run: the node ends before its program goes, and becomes the new version
//! when that is there.
//!
//! Nothing is enabled or started by an installation: a node opens a port to the network and lends
//! this machine to others, which is for its administrator to say (`osmos service install`).

const STOP: &str = include_str!("../../package/stop.sh");
const SUCCEED: &str = include_str!("../../package/succeed.sh");
const FORGET: &str = include_str!("../../package/forget.sh");

/// Of a .deb (deb-postinst(5) and the like), by their names there. All may be run again.
pub fn debian() -> [(&'static str, String); 3] {
    let script = |text: String| format!("#!/bin/sh\nset -e\n{text}");
    let postinst = format!("if [ \"$1\" = configure ]; then\n{}fi\n", indented(SUCCEED));
    let prerm = format!("if [ \"$1\" = remove ]; then\n{}fi\n", indented(STOP));
    let postrm = format!(
        "if [ \"$1\" = purge ]; then\n    # Keys, membership and journal.\n    \
         rm -rf /var/lib/osmos\nfi\nif [ \"$1\" = remove ]; then\n{}fi\n",
        indented(FORGET)
    );
    [("postinst", script(postinst)), ("prerm", script(prerm)), ("postrm", script(postrm))]
}

/// Of an .rpm: after an installation, before a removal, after it.
pub struct Rpm {
    pub post: String,
    pub preun: String,
    pub postun: String,
}

/// `$1` is how many versions there will be then.
pub fn rpm() -> Rpm {
    let last = |text: &str| format!("if [ \"$1\" = 0 ]; then\n{}fi\n:\n", indented(text));
    Rpm { post: format!("{SUCCEED}:\n"), preun: last(STOP), postun: last(FORGET) }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod test {
    use super::*;
    use std::process::Command;

    #[test]
    fn all_are_shell_and_do_nothing_where_there_is_nothing_to_do() {
        let rpm = rpm();
        let rpm = [(rpm.post, "2"), (rpm.preun, "1"), (rpm.postun, "1")];
        let debian = debian().map(|(_, script)| (script, "abort-upgrade"));
        for (script, argument) in rpm.into_iter().chain(debian) {
            let mut shell = Command::new("sh");
            // Where systemd runs, only whether it is shell.
            let is_booted = std::path::Path::new("/run/systemd/system").exists();
            shell.args(if is_booted { ["-n", "-c"] } else { ["-e", "-c"] });
            let output = shell.args([&script, "sh", argument]).output().unwrap();
            assert!(output.status.success(), "{script}\n{output:?}");
        }
    }
}
