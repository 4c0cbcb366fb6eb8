//! Blobs in an S3-compatible bucket: how it is reached, and what is said when it cannot be.
//!
//! Credentials come from the usual `AWS_…` variables, or from the machine's role. Nothing here prints one: an error of
//! the store is told by its code and message alone, never by the request that caused it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};

use super::BlobError;

/// How old a blob that nobody refers to must be before a sweep removes it from a bucket: far more than any publish takes
/// from its first byte to its record.
pub const GRACE: Duration = Duration::from_secs(24 * 3600);
/// Of an error message that came from outside.
const MAX_TEXT: usize = 300;

/// A bucket, or a part of one.
#[derive(Clone, PartialEq, Eq)]
pub struct S3 {
    pub bucket: String,
    /// What keys begin with, without slashes at its ends; may be empty.
    pub prefix: String,
    /// `None` is Amazon's.
    pub endpoint: Option<String>,
    /// `None` is `AWS_REGION`, or else `us-east-1`.
    pub region: Option<String>,
    /// `None` is the environment's.
    pub credentials: Option<Credentials>,
    pub patience: Patience,
    pub grace: Duration,
}

/// An access key. It has no [`fmt::Debug`], so that it is in no message.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub key_id: String,
    pub secret: String,
}

/// How long is waited for a store that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For one request.
    pub request: Duration,
    /// How often a request is repeated, each time after a longer pause.
    pub retries: usize,
    /// After so long it is not repeated any more.
    pub altogether: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { request: Duration::from_secs(60), retries: 6, altogether: Duration::from_secs(120) }
    }
}

impl S3 {
    pub fn new(bucket: &str, prefix: &str, endpoint: Option<String>, region: Option<String>) -> Self {
        let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
        Self { bucket, prefix, endpoint, region, credentials: None, patience: Patience::default(), grace: GRACE }
    }

    pub(super) fn key_prefix(&self) -> String {
        if self.prefix.is_empty() { String::new() } else { format!("{}/", self.prefix) }
    }

    pub(super) fn connect(&self) -> Result<(Arc<dyn ObjectStore>, Secrets), BlobError> {
        // Whoever came first has installed the same one.
        rustls::crypto::ring::default_provider().install_default().ok();
        let client = |key| AmazonS3ConfigKey::Client(key);
        let Patience { request, retries, altogether } = self.patience;
        let mut builder = match &self.credentials {
            Some(Credentials { key_id, secret }) => {
                AmazonS3Builder::new().with_access_key_id(key_id).with_secret_access_key(secret)
            }
            None => AmazonS3Builder::from_env(),
        };
        builder = builder
            .with_bucket_name(&self.bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            // Not every store has the request that deletes many at once.
            .with_disable_bulk_delete(true)
            .with_config(client(ClientConfigKey::Timeout), format!("{}ms", request.as_millis()))
            .with_retry(RetryConfig {
                max_retries: retries,
                retry_timeout: altogether,
                backoff: BackoffConfig { max_backoff: Duration::from_secs(10), ..BackoffConfig::default() },
            });
        if let Some(endpoint) = &self.endpoint {
            let plain = endpoint.starts_with("http://");
            builder = builder
                .with_config(AmazonS3ConfigKey::S3Endpoint, endpoint)
                .with_config(client(ClientConfigKey::AllowHttp), plain.to_string());
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        let named = [AmazonS3ConfigKey::AccessKeyId, AmazonS3ConfigKey::SecretAccessKey, AmazonS3ConfigKey::Token];
        let secrets = Secrets(named.iter().filter_map(|name| builder.get_config_value(name)).collect());
        let built = builder
            .build()
            .map_err(|error| BlobError::Unusable { place: self.to_string(), why: secrets.conceal(explain(&error)) })?;
        Ok((Arc::new(built), secrets))
    }
}

impl fmt::Display for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} at {:?}", self.endpoint)
    }
}

/// What must be in no message.
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub(super) fn conceal(&self, text: String) -> String {
        let secrets = self.0.iter().filter(|secret| !secret.is_empty());
        secrets.fold(text, |text, secret| text.replace(secret.as_str(), "…"))
    }
}

/// What a store said, without what was sent to it: its answer to a wrong signature repeats much of the request.
pub(super) fn explain(error: &object_store::Error) -> String {
    let whole = error.to_string();
    if let Some(code) = element(&whole, "Code") {
        let hint = match code {
            "SignatureDoesNotMatch" => "; is `AWS_SECRET_ACCESS_KEY` right, and this machine's clock?",
            "InvalidAccessKeyId" => "; is `AWS_ACCESS_KEY_ID` right?",
            "NoSuchBucket" => "; the bucket must be there already",
            _ => "",
        };
        return match element(&whole, "Message") {
            Some(message) => shorten(&format!("{code} ({message}){hint}")),
            None => shorten(&format!("{code}{hint}")),
        };
    }
    if let Some((_, status)) = whole.split_once("non-2xx status code: ") {
        return shorten(&format!("it answered {}", status.split(": ").next().unwrap_or(status)));
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = shorten(&innermost.to_string());
    if whole.contains("169.254.") {
        return format!("no `AWS_ACCESS_KEY_ID` is set, and the machine has no role of its own: {text}");
    }
    text
}

/// The text of the first XML element of this name.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(inside, _)| inside)
}

fn shorten(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn an_answer_is_told_by_its_code_and_message_alone() {
        let answer = "Server returned non-2xx status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code>\
                      <Message>They differ.</Message><StringToSign>AKIDEXAMPLE</StringToSign></Error>";
        let told = explain(&generic(answer));
        assert!(told.contains("SignatureDoesNotMatch (They differ.)") && !told.contains("AKIDEXAMPLE"), "{told}");
    }

    #[test]
    fn an_answer_without_a_code_is_told_by_its_status() {
        let told = explain(&generic("Server returned non-2xx status code: 502 Bad Gateway: <html>no</html>"));
        assert_eq!(told, "it answered 502 Bad Gateway");
    }

    #[test]
    fn secrets_are_blotted_out_wherever_they_are() {
        let secrets = Secrets(vec![String::new(), "hush".to_owned()]);
        assert_eq!(secrets.conceal("a hush b".to_owned()), "a … b");
    }
}
