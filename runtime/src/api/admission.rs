//! What every request must be before a route sees it.
//!
//! Two things are decided here. HTTP that can be read in two ways is refused: a host that is missing or said twice, a
//! transfer coding or an expectation that this server does not know. And a node that runs with `--dev`, which asks for no
//! key, is kept for whoever sits at the machine: without that, any web page that its user has open could speak to the node
//! through the browser, either across origins or under a name of its own that it resolves to this machine.

use std::net::IpAddr;

use axum::http::header::{EXPECT, HOST, HeaderMap, HeaderName, ORIGIN, TRANSFER_ENCODING};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Request, Version};

use super::problem::{ApiError, Kind};

/// Which kind of page a request comes from. Browsers send it and do not let a page change it.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses a request that is ambiguous; with `developer`, also one that does not come from the machine's own user.
pub fn admit<B>(request: &Request<B>, developer: bool) -> Result<(), ApiError> {
    let headers = request.headers();
    let host = host(headers, request.version())?;
    for value in headers.get_all(TRANSFER_ENCODING) {
        if !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
            let detail = "the only transfer coding that this node takes is `chunked`";
            return Err(ApiError::new(Kind::UnknownCoding, detail));
        }
    }
    for value in headers.get_all(EXPECT) {
        if !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"100-continue") {
            let detail = "the only expectation that this node can meet is `100-continue`";
            return Err(ApiError::new(Kind::ExpectationFailed, detail));
        }
    }
    if !developer {
        return Ok(());
    }
    // A target that names a host counts for more than the header, so neither may be foreign.
    let named = request.uri().authority().map(Authority::as_str);
    let host = host.and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_this_machine) || !named.is_none_or(is_this_machine) {
        return Err(foreign("it only answers as `localhost`, `127.0.0.1` or `[::1]`, which `Host` must be"));
    }
    from_own_page(headers, named.or(host).unwrap_or_default())
}

/// The host that the request is for. HTTP/1.1 wants exactly one; before that there may be none.
fn host(headers: &HeaderMap, version: Version) -> Result<Option<&HeaderValue>, ApiError> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() || (host.is_none() && version >= Version::HTTP_11) {
        return Err(ApiError::new(Kind::InvalidRequest, "a request must have exactly one `Host` header"));
    }
    Ok(host)
}

/// Whether a host, with or without a port, is a name of this machine that nobody else can resolve to it.
fn is_this_machine(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    if authority.as_str().contains('@') {
        return false;
    }
    let name = authority.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Browsers say which page a request comes from. No other program does, and those of this machine's user are welcome.
fn from_own_page(headers: &HeaderMap, host: &str) -> Result<(), ApiError> {
    let is_own = |origin: &HeaderValue| {
        let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        authority.is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host))
    };
    if !headers.get_all(ORIGIN).iter().all(is_own) {
        return Err(foreign("`Origin` names a page that is not its own"));
    }
    let is_near = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
    if !headers.get_all(SEC_FETCH_SITE).iter().all(is_near) {
        return Err(foreign("`Sec-Fetch-Site` says that a page of another origin asks"));
    }
    Ok(())
}

fn foreign(why: &str) -> ApiError {
    let detail = format!("this node runs with `--dev`, without keys, for the user of this machine alone: {why}");
    ApiError::new(Kind::Foreign, detail)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn admitted(headers: &[(&str, &str)], developer: bool) -> Result<(), Kind> {
        let mut request = Request::builder().uri("/v1/jobs");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        admit(&request.body(Body::empty()).unwrap(), developer).map_err(|error| error.kind)
    }

    #[test]
    fn names_of_this_machine_are_few() {
        for host in ["localhost", "LOCALHOST:7420", "127.0.0.1:7420", "127.8.9.1", "[::1]:7420", "[::1]"] {
            assert_eq!(admitted(&[("host", host)], true), Ok(()), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:7420",
            "127.0.0.1.nip.io",
            "localhost.evil.example",
            "localhost.",
            "user@localhost",
            "0.0.0.0",
            "192.168.1.2:7420",
            "[::]",
            "[::ffff:10.0.0.1]",
            "2130706433",
        ] {
            assert_eq!(admitted(&[("host", host)], true), Err(Kind::Foreign), "{host}");
            assert_eq!(admitted(&[("host", host)], false), Ok(()), "{host}");
        }
    }

    #[test]
    fn only_pages_of_the_node_itself_may_ask_a_developers_node() {
        let from = |name, value| admitted(&[("host", "localhost:7420"), (name, value)], true);
        assert_eq!(from("origin", "http://localhost:7420"), Ok(()));
        assert_eq!(from("sec-fetch-site", "same-origin"), Ok(()));
        assert_eq!(from("sec-fetch-site", "none"), Ok(()));
        for origin in ["null", "", "http://evil.example", "http://localhost:3000", "http://127.0.0.1:7420"] {
            assert_eq!(from("origin", origin), Err(Kind::Foreign), "{origin}");
        }
        for site in ["cross-site", "same-site", "something-new"] {
            assert_eq!(from("sec-fetch-site", site), Err(Kind::Foreign), "{site}");
        }
    }

    #[test]
    fn a_target_that_names_another_host_is_foreign() {
        let request = Request::builder().uri("http://evil.example/v1/jobs").header("host", "localhost");
        let refused = admit(&request.body(Body::empty()).unwrap(), true).unwrap_err();
        assert_eq!(refused.kind, Kind::Foreign);
    }

    #[test]
    fn there_is_one_host() {
        assert_eq!(admitted(&[], false), Err(Kind::InvalidRequest));
        assert_eq!(admitted(&[("host", "a"), ("host", "a")], false), Err(Kind::InvalidRequest));
        let old = Request::builder().version(Version::HTTP_10).body(Body::empty()).unwrap();
        assert!(admit(&old, false).is_ok() && admit(&old, true).is_err());
    }

    #[test]
    fn codings_and_expectations_that_nobody_here_knows_are_refused() {
        let with = |name, value| admitted(&[("host", "a"), (name, value)], false);
        assert_eq!(with("transfer-encoding", "Chunked"), Ok(()));
        assert_eq!(with("transfer-encoding", "gzip, chunked"), Err(Kind::UnknownCoding));
        assert_eq!(with("expect", "100-Continue"), Ok(()));
        assert_eq!(with("expect", "200-ok"), Err(Kind::ExpectationFailed));
    }
}
