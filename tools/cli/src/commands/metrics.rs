//! `metrics`: the command line of what the `metrics` crate makes.

use crate::output;
use crate::progress;
use anyhow::{Result, ensure};
use clap::Args;
use metrics::{Answers, LISTEN_DEFAULT, Listening};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Args)]
pub struct MetricsOptions {
    /// Of all nodes, not only of this one
    #[arg(long, short)]
    pub all: bool,
    /// Put it in the place of FILE, at once, for node_exporter's collector of text files
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["listen", "json"])]
    pub output: Option<PathBuf>,
    /// Serve /metrics over HTTP until ended; without ADDRESS on port 9780 of this machine alone, as
    /// with a port alone
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, require_equals = false,
          default_missing_value = "9780", value_parser = listen, conflicts_with = "json")]
    pub listen: Option<SocketAddr>,
    /// Print JSON: of each node its metrics, or why it has not answered
    #[arg(long)]
    pub json: bool,
}

/// An address and port, or a port of loopback.
fn listen(word: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = word.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    word.parse().map_err(|_| {
        format!("`{word}` is neither ADDRESS:PORT nor a port; the usual one is {LISTEN_DEFAULT}")
    })
}

pub fn metrics(options: &MetricsOptions, socket: &Path) -> Result<()> {
    if let Some(address) = options.listen {
        return serve(address, socket.to_owned(), options.all);
    }
    let words = ("asking for metrics", "it was only asked");
    let answers = progress::during(words, options.json, || ask(socket, options.all))??;
    for failure in answers.iter().filter_map(|answer| answer.metrics.as_ref().err()) {
        eprintln!("osmos: {}", output::printable(&failure.text));
    }
    match &options.output {
        Some(path) => metrics::write(path, &metrics::text(&answers)),
        None if options.json => Ok(output::print_json(&answers)?),
        None => Ok(output::print_text(&metrics::text(&answers))?),
    }
}

fn ask(socket: &Path, is_all: bool) -> client::Result<Answers> {
    if is_all { metrics::ask_everywhere(socket) } else { metrics::ask(socket) }
}

/// Says where, when it can be reached: whoever starts it may wait for that.
fn serve(address: SocketAddr, socket: PathBuf, is_all: bool) -> Result<()> {
    ensure!(!address.ip().is_multicast(), "cannot listen on {address}: it is no machine's");
    let listening = Listening::on(address)?;
    output::print_line(&format!("http://{}/metrics", listening.address()?))?;
    listening.serve(move || ask(&socket, is_all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    fn parsed(line: &str) -> Result<MetricsOptions, String> {
        match Arguments::try_parse_from(line.split(' ')).map(|arguments| arguments.command) {
            Ok(Command::Metrics(options)) => Ok(options),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn without_an_address_only_this_machine_can_look() {
        let listen = |line: &str| parsed(line).expect(line).listen;
        assert_eq!(listen("osmos metrics"), None);
        assert_eq!(listen("osmos metrics --listen"), Some(LISTEN_DEFAULT));
        assert_eq!(listen("osmos metrics --listen --all"), Some(LISTEN_DEFAULT));
        assert_eq!(listen("osmos metrics --listen 9"), "127.0.0.1:9".parse().ok());
        assert_eq!(listen("osmos metrics --listen [::]:9"), "[::]:9".parse().ok());
        let refusal = parsed("osmos metrics --listen delta").expect_err("no address");
        assert!(refusal.contains("neither ADDRESS:PORT nor a port"), "{refusal}");
    }

    #[test]
    fn it_goes_to_one_place() {
        assert!(parsed("osmos metrics --output a --listen 9").is_err());
        assert!(parsed("osmos metrics --output a --json").is_err());
        assert!(parsed("osmos metrics --listen 9 --json").is_err());
    }
}
