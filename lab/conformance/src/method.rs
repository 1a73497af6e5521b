//! The ways in which memory gets to another node. Which one is taken follows from what the kernel
//! can do; to try another than this machine's, nodes do without the ones that are preferred.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Copied ahead, writes told by pages that are protected.
    Protection,
    /// Copied ahead, writes told by soft-dirty bits.
    SoftDirty,
    /// While the process stands still.
    StopAndCopy,
    /// As the kernel lets it be copied ahead, and the rest behind the process where it writes too
    /// fast for its freeze budget, which is a millisecond.
    Hybrid,
    /// Behind the process.
    PostCopy,
}

const WRITE_TRACKING: &str = "write-tracking";
const SOFT_DIRTY: &str = "soft-dirty";
const KERNEL_FAULTS: &str = "kernel-faults";

impl Method {
    pub const ALL: [Method; 5] = [
        Method::Protection,
        Method::SoftDirty,
        Method::StopAndCopy,
        Method::Hybrid,
        Method::PostCopy,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Method::Protection => "protection",
            Method::SoftDirty => "soft-dirty",
            Method::StopAndCopy => "stop-and-copy",
            Method::Hybrid => "hybrid",
            Method::PostCopy => "post-copy",
        }
    }

    /// The feature of the kernel that it takes, as `osmos doctor` names it.
    pub fn needs(self) -> Option<&'static str> {
        match self {
            Method::Protection => Some(WRITE_TRACKING),
            Method::SoftDirty => Some(SOFT_DIRTY),
            Method::StopAndCopy => None,
            Method::Hybrid | Method::PostCopy => Some(KERNEL_FAULTS),
        }
    }

    /// Those that nodes have to do without, or they would take another way.
    pub fn without(self) -> &'static [&'static str] {
        match self {
            Method::Protection => &[SOFT_DIRTY],
            Method::SoftDirty => &[WRITE_TRACKING],
            Method::StopAndCopy => &[WRITE_TRACKING, SOFT_DIRTY],
            Method::Hybrid | Method::PostCopy => &[],
        }
    }

    /// What `osmos run` is told for it.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Method::Protection | Method::SoftDirty | Method::StopAndCopy => &[],
            Method::Hybrid => &["--method=hybrid", "--freeze-budget=1"],
            Method::PostCopy => &["--method=post-copy"],
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(word: &str) -> Result<Method, String> {
        Method::ALL.into_iter().find(|method| method.name() == word).ok_or_else(|| {
            let names = Method::ALL.map(Method::name).join(", ");
            format!("`{word}` is no method; there are {names}")
        })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn each_method_is_found_by_its_name_and_leaves_itself_alone() {
        for method in Method::ALL {
            assert_eq!(method.to_string().parse(), Ok(method));
            assert!(!method.needs().is_some_and(|feature| method.without().contains(&feature)));
        }
        assert!("fast".parse::<Method>().unwrap_err().contains("protection, soft-dirty"));
    }
}
