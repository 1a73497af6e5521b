//! What a benchmark is told about its report, and what it makes of that.

use crate::provenance::Provenance;
use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub struct Reporting {
    /// Write the report (Markdown, JSON) into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

impl Reporting {
    /// Writes the report `NAME` of one run, if one is wanted, under this title; returns what is to
    /// be printed.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(
        &self,
        (name, title): (&str, &str),
        made: &Provenance,
        results: &impl Serialize,
        text: String,
    ) -> Result<String> {
        let json = serde_json::to_string_pretty(results)? + "\n";
        if let Some(directory) = &self.report {
            let made = Provenance::of_runs([Some(made)]);
            let written = format!("Written by `osmos bench {name} --report DIR`. {made}");
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
            let page = format!("# {title}\n\n{written}\n\n{text}");
            fs::write(directory.join(format!("{name}.md")), page)?;
            fs::write(directory.join(format!("{name}.json")), &json)?;
        }
        Ok(if self.json { json } else { text })
    }
}
