//! `osmos config`: what the configuration file says, and one to begin with.

use crate::config_file::{self, ConfigFile};
use crate::output;
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Says whether a file is right, and what it sets; the usual one if none is named.
///
/// # Errors
/// It is not right, or the one that is named is not there.
pub fn check(named: Option<PathBuf>, json: bool) -> Result<()> {
    let (path, file) = match named {
        Some(path) => (path.clone(), Some(config_file::read(&path)?)),
        None => {
            let usual = config_file::default_path();
            let path = usual.context("there is neither HOME nor XDG_CONFIG_HOME: name a file")?;
            (path.clone(), config_file::read_if_there(&path)?)
        }
    };
    // With what the command line may say besides it may be right still.
    let complaint = file.as_ref().and_then(|file| file.options.check().err());
    if json {
        let file = file.unwrap_or_default();
        let options: Map<String, Value> =
            file.given.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        let alone = complaint.map(|complaint| complaint.to_string());
        let exists = !file.path.as_os_str().is_empty();
        let path = path.display().to_string();
        return Ok(output::print_json(
            &json!({ "path": path, "exists": exists, "options": options, "needs": alone }),
        )?);
    }
    let Some(ConfigFile { given, .. }) = file else {
        return Ok(output::print_line(&format!(
            "there is no {}: `osmos up` has its defaults; `osmos config example` prints one to \
             begin with",
            path.display()
        ))?);
    };
    let options = output::counted(given.len() as u32, "option", "options");
    let mut text = format!("{}: {options}", path.display());
    let width = given.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in &given {
        text.push_str(&format!("\n{name:width$}  {}", output::printable(value)));
    }
    if let Some(complaint) = complaint {
        text.push_str(&format!("\nwith nothing else on the command line: {complaint}"));
    }
    Ok(output::print_line(&text)?)
}

/// Prints a file with every option, commented out.
///
/// # Errors
/// Standard output cannot be written to.
pub fn example() -> Result<()> {
    Ok(output::print_line(config_file::example().trim_end())?)
}
