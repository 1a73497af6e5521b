//! What this node is called: as its owner said, or else as its machine.

use nix::unistd::gethostname;
use std::ffi::OsStr;
use wire::node_name::NodeName;

/// None if the machine is called what no node can be: it has its number all the same.
pub fn own_name(said: Option<NodeName>) -> Option<NodeName> {
    said.or_else(|| match gethostname() {
        Ok(host) => name_of_host(&host),
        Err(error) => {
            tracing::warn!("this node has no name: cannot read the host name: {error}");
            None
        }
    })
}

fn name_of_host(host: &OsStr) -> Option<NodeName> {
    match host.to_string_lossy().parse::<NodeName>() {
        Ok(name) => Some(name),
        Err(error) => {
            tracing::warn!(
                "this node has no name: the host name is none: {error}; `osmos up --name` says one"
            );
            None
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn what_the_owner_says_comes_before_the_host_name() {
        let said: NodeName = "delta".parse().unwrap();
        assert_eq!(own_name(Some(said.clone())), Some(said));
    }

    #[test]
    fn a_host_name_that_no_node_can_have_is_none() {
        assert_eq!(name_of_host(OsStr::new("a.example.org")).unwrap().as_str(), "a.example.org");
        for host in [&b"localhost"[..], b"(none)", b"\xff", b"", b"12"] {
            assert_eq!(name_of_host(OsStr::from_bytes(host)), None, "{host:?}");
        }
    }
}
