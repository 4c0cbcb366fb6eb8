//! The scripts. Each is one step on the slot of a tenant, and looks at so many names at most: while one runs, nobody else
//! is served.

use std::sync::LazyLock;

use ::redis as client;

/// A script, and the digest by which a server that has seen it knows it.
pub struct Script {
    pub source: &'static str,
    /// Whether it only takes away, or finds what there is to take away. That is done for any tenant, also for those of other
    /// nodes and for those that are gone, so it neither begins a store nor counts as using one.
    pub is_housekeeping: bool,
    digest: LazyLock<String>,
}

impl Script {
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

macro_rules! scripts {
    ($is_housekeeping:literal: $($name:ident = $file:literal,)+) => {
        $(pub static $name: Script = Script {
            source: concat!(include_str!("prelude.lua"), include_str!($file)),
            is_housekeeping: $is_housekeeping,
            digest: LazyLock::new(|| client::Script::new($name.source).get_hash().to_owned()),
        };)+
    };
}

scripts! {
    false:
    READ = "read.lua",
    WRITE = "write.lua",
    LIST = "list.lua",
    RESERVE = "reserve.lua",
    RENEW = "renew.lua",
    CLAIM = "claim.lua",
    BEGIN = "begin.lua",
    END = "end.lua",
}

scripts! {
    true:
    SPACES = "spaces.lua",
    CLEAR = "clear.lua",
    RELEASE = "release.lua",
    FORGET = "forget.lua",
    COLLECT = "collect.lua",
}
