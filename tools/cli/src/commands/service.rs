//! `osmos service`: the node daemon as a service of systemd, root's or the user's own.
//!
//! The unit keeps what a daemon that is replaced or killed leaves to the next: processes that have
//! moved live in supervisors, which no stop or restart of the service may end by force
//! (`KillMode=process`), and one guest that finds no memory is no end of the node
//! (`OOMPolicy=continue`).
//!
//! A package has the same unit (`osmos service print`), and leaves it to the administrator to
//! enable it: then `install` and `uninstall` write and remove nothing.

use crate::config_file;
use crate::output;
use crate::progress;
use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const UNIT: &str = "osmos.service";
/// Where packages put theirs: one directory on all systems but older ones of Debian's.
const PACKAGED: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];
/// By which systemd says that it runs here (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";

/// Prints the unit, for a package or to look at it.
///
/// # Errors
/// The program's path cannot be part of a unit.
pub fn print(program: Option<PathBuf>, is_users: bool) -> Result<()> {
    let program = match program {
        Some(program) => program,
        None => own_program()?,
    };
    Ok(output::print_line(unit(&program, is_users)?.trim_end())?)
}

/// Writes the unit of root's service or of this user's, and starts it: at each boot, and now.
///
/// # Errors
/// There is no systemd, the unit is another's, or the service does not start.
pub fn install(json: bool) -> Result<()> {
    let place = Place::of_this_user()?;
    place.check_is_booted()?;
    let text = unit(&own_program()?, place.is_users)?;
    let own = place.directory.join(UNIT);
    let unit_file = match place.packaged().filter(|unit| has_text(unit, &text)) {
        Some(packaged) => {
            remove_unit(&own)?;
            packaged
        }
        None => {
            write_unit(&own, &text)?;
            own
        }
    };
    place.systemctl(&["daemon-reload"])?;
    place.systemctl(&["enable", UNIT])?;
    // One that runs is not touched: `reload` has another daemon take its place.
    let words = ("starting the service", "systemd goes on starting it");
    progress::during(words, json, || place.systemctl(&["start", UNIT]))?.with_context(|| {
        format!("the service does not start; `{}` says why", place.log_command())
    })?;
    if json {
        let unit = unit_file.display().to_string();
        return Ok(output::print_json(&json!({ "done": true, "unit": unit }))?);
    }
    Ok(output::print_line(&format!(
        "{} is in place, and the service runs, now and after each boot\n\
         options: `osmos config example` ({}); log: `{}`",
        unit_file.display(),
        config_file::default_path().unwrap_or_default().display(),
        place.log_command(),
    ))?)
}

/// Ends the service, with all that `osmos down` does, and removes its unit, unless that is a
/// package's. Keys, membership and journal stay.
///
/// # Errors
/// There is no such service, or it does not end.
pub fn uninstall(json: bool) -> Result<()> {
    let place = Place::of_this_user()?;
    let own = place.directory.join(UNIT);
    let unit_file = match place.packaged() {
        Some(packaged) if !own.exists() => packaged,
        _ => own.clone(),
    };
    let there = fs::read_to_string(&unit_file).with_context(|| {
        format!("no service was installed: cannot read {}", unit_file.display())
    })?;
    ensure!(is_ours(&there), "{} is not from `osmos service`", unit_file.display());
    place.check_is_booted()?;
    let words = ("ending the service", "systemd goes on ending it");
    progress::during(words, json, || place.systemctl(&["disable", "--now", UNIT]))??;
    remove_unit(&own)?;
    place.systemctl(&["daemon-reload"])?;
    output::confirm(json, || json!({ "done": true, "unit": unit_file.display().to_string() }))
}

/// Where units of a user are.
struct Place {
    directory: PathBuf,
    is_users: bool,
}

impl Place {
    fn of_this_user() -> Result<Place> {
        if nix::unistd::geteuid().is_root() {
            let directory = PathBuf::from("/etc/systemd/system");
            return Ok(Place { directory, is_users: false });
        }
        let config =
            config_file::default_path().context("there is neither HOME nor XDG_CONFIG_HOME")?;
        let above = config.ancestors().nth(2).context("no directory for units")?;
        Ok(Place { directory: above.join("systemd/user"), is_users: true })
    }

    /// The unit that a package has put there.
    fn packaged(&self) -> Option<PathBuf> {
        let places = PACKAGED.iter().map(|directory| Path::new(directory).join(UNIT));
        places.filter(|_| !self.is_users).find(|unit| unit.exists())
    }

    fn check_is_booted(&self) -> Result<()> {
        ensure!(
            Path::new(BOOTED).is_dir(),
            "systemd does not run this machine ({BOOTED} is not there): `osmos up` starts a daemon \
             without it, `osmos service print` shows the unit"
        );
        Ok(())
    }

    fn log_command(&self) -> &'static str {
        if self.is_users { "journalctl --user -u osmos" } else { "journalctl -u osmos" }
    }

    fn systemctl(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new("systemctl");
        if self.is_users {
            command.arg("--user");
        }
        let output = command
            .args(words)
            .stdin(Stdio::null())
            .output()
            .context("cannot run systemctl: is it installed?")?;
        match output.status.success() {
            true => Ok(()),
            false => bail!(
                "`systemctl {}` failed: {}",
                words.join(" "),
                output::printable(String::from_utf8_lossy(&output.stderr).trim())
            ),
        }
    }
}

fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find the osmos program itself")
}

/// Never over what somebody else has written.
fn write_unit(path: &Path, text: &str) -> Result<()> {
    match fs::read_to_string(path) {
        Ok(there) if there == text => return Ok(()),
        Ok(there) => ensure!(
            is_ours(&there),
            "{} is not from `osmos service install`: move it away first",
            path.display()
        ),
        Err(_) => {
            let directory = path.parent().context("a unit without a directory")?;
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn has_text(unit: &Path, text: &str) -> bool {
    fs::read_to_string(unit).is_ok_and(|there| there == text)
}

/// That of `osmos service install`, if there is one. One of somebody else's is left alone.
fn remove_unit(path: &Path) -> Result<()> {
    match fs::read_to_string(path) {
        Ok(there) if is_ours(&there) => {
            fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
        }
        Ok(_) => bail!("{} is not from `osmos service install`: move it away", path.display()),
        Err(_) => Ok(()),
    }
}

const MARK: &str = "# Made by `osmos service`.";

fn is_ours(unit: &str) -> bool {
    unit.starts_with(MARK)
}

fn unit(program: &Path, is_users: bool) -> Result<String> {
    let program = quoted(program)?;
    let (after, target) = match is_users {
        true => ("", "default.target"),
        false => (
            "Wants=network-online.target\nAfter=network-online.target nss-user-lookup.target\n",
            "multi-user.target",
        ),
    };
    Ok(format!(
        "{MARK} Changes: `systemctl edit osmos`.\n\
         [Unit]\n\
         Description=Osmos: this machine as a node of a cluster\n\
         Documentation=man:osmos(1)\n\
         {after}\
         \n\
         [Service]\n\
         Type=notify\n\
         # This process becomes the next daemon, of a new version perhaps.\n\
         ExecReload={program} up --replace\n\
         ExecStart={program} up --foreground\n\
         # Guests go home, own processes come home.\n\
         ExecStop={program} down\n\
         TimeoutStopSec=15min\n\
         # Processes that have moved live in supervisors, and outlive a daemon.\n\
         KillMode=process\n\
         Restart=on-failure\n\
         RestartSec=1\n\
         # A guest that finds no memory is no end of the node.\n\
         OOMPolicy=continue\n\
         TasksMax=infinity\n\
         LimitNOFILE=524288\n\
         \n\
         [Install]\n\
         WantedBy={target}\n"
    ))
}

/// A path as a word of a unit's command line (systemd.service(5)).
fn quoted(path: &Path) -> Result<String> {
    let text = path.to_str().filter(|text| !text.chars().any(char::is_control));
    let text = text.with_context(|| format!("{} cannot be named in a unit", path.display()))?;
    ensure!(path.is_absolute(), "{text} is no absolute path: the unit needs one");
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    let escaped = escaped.replace('%', "%%").replace('$', "$$");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    Ok(if text.chars().all(is_plain) { escaped } else { format!("\"{escaped}\"") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_names_the_program_whatever_its_path_is() {
        let text = unit(Path::new("/usr/bin/osmos"), false).expect("a unit");
        assert!(text.contains("\nExecStart=/usr/bin/osmos up --foreground\n"), "{text}");
        assert!(text.contains("WantedBy=multi-user.target") && is_ours(&text));
        let text = unit(Path::new("/home/a b/50%/$x/osmos"), true).expect("a unit");
        assert!(text.contains("ExecStop=\"/home/a b/50%%/$$x/osmos\" down\n"), "{text}");
        assert!(text.contains("WantedBy=default.target") && !text.contains("network-online"));
        assert!(unit(Path::new("osmos"), false).is_err());
        assert!(unit(Path::new("/a\nb"), false).is_err());
    }

    #[test]
    fn a_unit_of_somebody_else_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("system/osmos.service");
        let text = unit(Path::new("/usr/bin/osmos"), false).expect("a unit");
        write_unit(&path, &text).expect("written");
        let other = unit(Path::new("/opt/osmos"), false).expect("a unit");
        write_unit(&path, &other).expect("it is ours");
        assert_eq!(fs::read_to_string(&path).expect("there"), other);
        fs::write(&path, "[Service]\n").expect("written");
        let error = write_unit(&path, &text).unwrap_err().to_string();
        assert!(error.contains("move it away"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("there"), "[Service]\n");
        assert!(remove_unit(&path).is_err() && path.exists());
        fs::write(&path, &text).expect("written");
        assert!(has_text(&path, &text) && !has_text(&path, &other));
        remove_unit(&path).expect("ours");
        remove_unit(&path).expect("nothing is left to be done");
        assert!(!path.exists());
    }
}
