//! Where blobs are kept, as a setting says it.

use super::S3;

/// Where blobs are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobPlace {
    /// In the data directory.
    Folder,
    /// Nowhere: gone with the process.
    Memory,
    S3(S3),
}

/// A setting that names no place for blobs.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{setting}` {problem}")]
pub struct BadPlace {
    pub setting: &'static str,
    pub problem: String,
}

fn bad(setting: &'static str, problem: &str) -> BadPlace {
    BadPlace { setting, problem: problem.to_owned() }
}

impl BlobPlace {
    /// From the settings `blob_store`, `s3_endpoint` and `s3_region`.
    pub fn parse(store: &str, endpoint: &str, region: &str) -> Result<Self, BadPlace> {
        let Some(bucket) = store.strip_prefix("s3://") else {
            if !endpoint.is_empty() {
                return Err(bad("s3_endpoint", "is only for a `blob_store` in S3: `s3://BUCKET/PREFIX`"));
            }
            return match store {
                "" => Ok(Self::Folder),
                "memory:" => Ok(Self::Memory),
                _ => Err(bad("blob_store", "must be empty (the data directory), `memory:` or `s3://BUCKET/PREFIX`")),
            };
        };
        let (bucket, prefix) = bucket.split_once('/').unwrap_or((bucket, ""));
        if bucket.is_empty() || !bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
            return Err(bad("blob_store", "names no bucket: write `s3://BUCKET/PREFIX`"));
        }
        let prefix = prefix.trim_matches('/');
        let parts = prefix.split('/').filter(|_| !prefix.is_empty());
        for part in parts {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._=".contains(&byte);
            if part.is_empty() || part == "." || part == ".." || !part.bytes().all(plain) {
                return Err(bad(
                    "blob_store",
                    "has a prefix of other signs than letters, digits, `-._=` and single `/`",
                ));
            }
        }
        let host = endpoint.strip_prefix("https://").or(endpoint.strip_prefix("http://"));
        if !endpoint.is_empty() && host.is_none_or(|host| host.is_empty() || host.contains(['@', '?', '#', ' '])) {
            return Err(bad("s3_endpoint", "must be `https://HOST[:PORT]`, or `http://…` on a network that you trust"));
        }
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Ok(Self::S3(S3::new(bucket, prefix, given(endpoint), given(region))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_and_its_prefix_are_told_apart() {
        let place = BlobPlace::parse("s3://bucket/team/weft/", "http://127.0.0.1:9000", "").unwrap();
        let expected = S3::new("bucket", "team/weft", Some("http://127.0.0.1:9000".to_owned()), None);
        assert_eq!(place, BlobPlace::S3(expected));
    }

    #[test]
    fn nothing_is_the_data_directory() {
        assert_eq!(BlobPlace::parse("", "", ""), Ok(BlobPlace::Folder));
    }

    #[test]
    fn what_is_no_place_is_refused_by_the_name_of_its_setting() {
        for (store, endpoint, setting) in [
            ("blobs", "", "blob_store"),
            ("memory", "", "blob_store"),
            ("s3://", "", "blob_store"),
            ("s3:///prefix", "", "blob_store"),
            ("s3://bucket/../other", "", "blob_store"),
            ("s3://bucket/a//b", "", "blob_store"),
            ("s3://bucket", "127.0.0.1:9000", "s3_endpoint"),
            ("s3://bucket", "https://", "s3_endpoint"),
            ("s3://bucket", "https://user:password@host", "s3_endpoint"),
            ("", "https://host", "s3_endpoint"),
        ] {
            let error = BlobPlace::parse(store, endpoint, "").unwrap_err();
            assert_eq!(error.setting, setting, "{store} {endpoint}: {error}");
        }
    }
}
