//! The scripts. Each is one step on the slot of a tenant, and looks at so many names at most: while one runs, nobody else
//! is served.

use std::sync::LazyLock;

use ::redis as client;

/// A script, and the digest by which a server that has seen it knows it.
pub struct Script {
    pub source: &'static str,
    digest: LazyLock<String>,
}

impl Script {
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

macro_rules! scripts {
    ($($name:ident = $file:literal,)+) => {
        $(pub static $name: Script = Script {
            source: concat!(include_str!("prelude.lua"), include_str!($file)),
            digest: LazyLock::new(|| client::Script::new($name.source).get_hash().to_owned()),
        };)+
    };
}

scripts! {
    READ = "read.lua",
    WRITE = "write.lua",
    LIST = "list.lua",
    RESERVE = "reserve.lua",
    RENEW = "renew.lua",
    RELEASE = "release.lua",
    FORGET = "forget.lua",
    CLAIM = "claim.lua",
    SPACES = "spaces.lua",
    CLEAR = "clear.lua",
    COLLECT = "collect.lua",
    END = "end.lua",
}
