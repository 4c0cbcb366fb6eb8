//! Errors as RFC 9457 problems. Each kind is declared once, with its status and title; this is where the errors of the
//! inner layers, which know no HTTP, become answers.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use weft_gpu::pool::PoolError;

use super::types::Problem;
use crate::catalog::CatalogError;
use crate::devices::NoDevice;
use crate::digest::BadDigest;
use crate::job::JobError;
use crate::logs::invocation_id;
use crate::meta::MetaError;
use crate::names::BadName;
use crate::node::{DeleteError, InvokeFailure};
use crate::params::ParamError;
use crate::places::NoPlace;
use crate::registry::RegistryError;
use crate::sandbox::{CompileError, InvokeError, LimitHit};
use crate::study::StudyError;
use crate::tenant::{OverLimit, StorageFull, TenantError};
use crate::text;

/// The most bytes of a problem's detail, which may have a guest's error in it and what was tried.
const MOST_DETAIL: usize = 2 * text::MOST_ERROR;

/// The prefix of a problem's type.
pub const TYPE_PREFIX: &str = "urn:weft:problem:";

macro_rules! kinds {
    ($($kind:ident = $slug:literal, $status:ident, $title:literal;)+) => {
        /// What kinds of problem there are.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $(#[doc = $title] $kind,)+
        }

        impl Kind {
            /// Every kind: slug, status, title.
            pub const ALL: &[(&str, u16, &str)] = &[$(($slug, StatusCode::$status.as_u16(), $title)),+];

            pub fn slug(self) -> &'static str {
                match self { $(Self::$kind => $slug,)+ }
            }

            pub fn status(self) -> StatusCode {
                match self { $(Self::$kind => StatusCode::$status,)+ }
            }

            pub fn title(self) -> &'static str {
                match self { $(Self::$kind => $title,)+ }
            }
        }
    };
}

kinds! {
    InvalidRequest = "invalid-request", BAD_REQUEST, "The request is not understood";
    Unauthenticated = "unauthenticated", UNAUTHORIZED, "No valid key was given";
    Forbidden = "forbidden", FORBIDDEN, "This key may not do that";
    Foreign = "foreign-request", FORBIDDEN, "This request does not come from this machine's user";
    QuotaExceeded = "quota-exceeded", FORBIDDEN, "A quota of the tenant is used up";
    NotFound = "not-found", NOT_FOUND, "There is no such thing";
    MethodNotAllowed = "method-not-allowed", METHOD_NOT_ALLOWED, "This route does not take that method";
    Timeout = "request-timeout", REQUEST_TIMEOUT, "The request took too long to arrive";
    Conflict = "conflict", CONFLICT, "That does not fit what is there";
    TooLarge = "too-large", PAYLOAD_TOO_LARGE, "The request is too large";
    MediaType = "unsupported-media-type", UNSUPPORTED_MEDIA_TYPE, "A body of this content type is not taken";
    ExpectationFailed = "expectation-failed", EXPECTATION_FAILED, "What the request expects is not done here";
    InvalidComponent = "invalid-component", UNPROCESSABLE_ENTITY, "The component cannot be run";
    InvalidData = "invalid-data", UNPROCESSABLE_ENTITY, "The files cannot be used";
    InvalidJob = "invalid-job", UNPROCESSABLE_ENTITY, "The job cannot be run";
    CompileLimit = "compile-limit", UNPROCESSABLE_ENTITY, "Compiling the component takes too much";
    FunctionError = "function-error", UNPROCESSABLE_ENTITY, "The function answered with an error";
    RateLimited = "rate-limited", TOO_MANY_REQUESTS, "Too many requests";
    Busy = "busy", TOO_MANY_REQUESTS, "Too many invocations are waiting";
    Internal = "internal", INTERNAL_SERVER_ERROR, "The node failed";
    UnknownCoding = "unknown-coding", NOT_IMPLEMENTED, "The request is coded in a way that is not known here";
    Trapped = "function-trapped", BAD_GATEWAY, "The function trapped";
    LimitExceeded = "limit-exceeded", BAD_GATEWAY, "The function exceeded a limit";
    Draining = "draining", SERVICE_UNAVAILABLE, "The node is stopping";
    DeadlineExceeded = "deadline-exceeded", GATEWAY_TIMEOUT, "That took too long";
}

/// An error on its way out.
#[derive(Debug)]
pub struct ApiError {
    pub kind: Kind,
    detail: String,
    limit: Option<&'static str>,
    word: Option<&'static str>,
    function_error: Option<&'static str>,
    invocation: Option<u64>,
    retry_after: Option<u64>,
}

impl ApiError {
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let detail = text::cut(detail.into(), MOST_DETAIL);
        Self { kind, detail, limit: None, word: None, function_error: None, invocation: None, retry_after: None }
    }

    pub fn not_found(what: &str) -> Self {
        Self::new(Kind::NotFound, what)
    }

    /// Whoever called is no longer a tenant of this node.
    pub fn tenant_deleted() -> Self {
        Self::new(Kind::Unauthenticated, "the tenant of this key was deleted")
    }

    pub fn limit(mut self, name: &'static str) -> Self {
        self.limit = Some(name);
        self
    }

    /// Which word of the request is wrong.
    fn word(mut self, word: &'static str) -> Self {
        self.word = Some(word);
        self
    }

    /// When to come back, in seconds.
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds.max(1));
        self
    }

    /// What went wrong inside is for the operator's log; the caller is only told that it did.
    pub(super) fn internal(error: &dyn std::fmt::Display) -> Self {
        tracing::error!(%error, "a request failed");
        Self::new(Kind::Internal, "the node could not do this; its log says why")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let problem = Problem {
            kind: format!("{TYPE_PREFIX}{}", self.kind.slug()),
            title: self.kind.title().to_owned(),
            status: self.kind.status().as_u16(),
            detail: self.detail,
            limit: self.limit.map(str::to_owned),
            word: self.word.map(str::to_owned),
            function_error: self.function_error.map(str::to_owned),
            invocation: self.invocation.map(invocation_id),
        };
        let mut response = (self.kind.status(), Json(problem)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.kind == Kind::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response.extensions_mut().insert(self.kind);
        response
    }
}

impl From<BadName> for ApiError {
    fn from(error: BadName) -> Self {
        Self::new(Kind::InvalidRequest, error.to_string())
    }
}

impl From<MetaError> for ApiError {
    fn from(error: MetaError) -> Self {
        Self::internal(&error)
    }
}

impl From<anyhow::Error> for ApiError {
    fn from(error: anyhow::Error) -> Self {
        Self::internal(&format!("{error:#}"))
    }
}

impl From<TenantError> for ApiError {
    fn from(error: TenantError) -> Self {
        match error {
            TenantError::NotFound(_) => Self::new(Kind::NotFound, error.to_string()),
            TenantError::Exists(_) | TenantError::StoreTaken(_) | TenantError::StoreEnding(_) => {
                Self::new(Kind::Conflict, error.to_string())
            }
            TenantError::Randomness(_) | TenantError::Meta(_) => Self::internal(&error),
        }
    }
}

impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> Self {
        let text = error.to_string();
        match error {
            RegistryError::NotFound(_) | RegistryError::NoSuchVersion { .. } => Self::new(Kind::NotFound, text),
            RegistryError::Ambiguous { .. } => Self::new(Kind::InvalidRequest, text),
            RegistryError::TenantDeleted => Self::tenant_deleted(),
            RegistryError::NoEarlierVersion(_) | RegistryError::VersionActive { .. } => Self::new(Kind::Conflict, text),
            RegistryError::Quota { name: "upload_bytes", .. } => Self::new(Kind::TooLarge, text).limit("upload_bytes"),
            RegistryError::Quota { name, .. } => Self::new(Kind::QuotaExceeded, text).limit(name),
            RegistryError::Storage(_) => Self::new(Kind::QuotaExceeded, text).limit(StorageFull::NAME),
            RegistryError::NoMemory(over) => Self { detail: text, ..over.into() },
            RegistryError::Refused(_) => Self::new(Kind::InvalidComponent, text),
            RegistryError::Compile(error) => Self::from(error),
            RegistryError::Blob(_) | RegistryError::Meta(_) | RegistryError::Io { .. } => Self::internal(&text),
        }
    }
}

impl From<DeleteError> for ApiError {
    fn from(error: DeleteError) -> Self {
        match error {
            DeleteError::Tenant(error) => error.into(),
            DeleteError::Registry(error) => error.into(),
            DeleteError::Catalog(error) => error.into(),
            DeleteError::Job(error) => error.into(),
            DeleteError::Interrupted(_) => Self::internal(&error),
        }
    }
}

impl From<CatalogError> for ApiError {
    fn from(error: CatalogError) -> Self {
        let text = error.to_string();
        match error {
            CatalogError::NotFound { .. } => Self::new(Kind::NotFound, text),
            CatalogError::Exists { .. } | CatalogError::Changed { .. } | CatalogError::Incomplete { .. } => {
                Self::new(Kind::Conflict, text)
            }
            CatalogError::TenantDeleted => Self::tenant_deleted(),
            CatalogError::Quota { name, .. } => Self::new(Kind::QuotaExceeded, text).limit(name),
            CatalogError::Storage(_) => Self::new(Kind::QuotaExceeded, text).limit(StorageFull::NAME),
            CatalogError::Invalid(_) => Self::new(Kind::InvalidRequest, text),
            CatalogError::Refused(_) | CatalogError::Mismatch { .. } => Self::new(Kind::InvalidData, text),
            CatalogError::Place(NoPlace::Full(_)) => Self::new(Kind::Busy, text).limit("builds").retry_after(5),
            CatalogError::Place(error @ NoPlace::TimedOut(_)) => error.into(),
            CatalogError::Memory(over) => over.into(),
            CatalogError::BuildTimeout(_) => Self::new(Kind::DeadlineExceeded, text).limit("build_timeout"),
            CatalogError::Stopping => Self::new(Kind::Draining, text).retry_after(1),
            CatalogError::Blob(_) | CatalogError::Meta(_) | CatalogError::Io { .. } => Self::internal(&text),
        }
    }
}

impl From<JobError> for ApiError {
    fn from(error: JobError) -> Self {
        let text = error.to_string();
        match error {
            JobError::NotFound(_) => Self::new(Kind::NotFound, text),
            JobError::TenantDeleted => Self::tenant_deleted(),
            JobError::Exists(_) | JobError::OtherRequest(_) | JobError::Wrong { .. } => Self::new(Kind::Conflict, text),
            JobError::Bad(bad) => Self::new(Kind::InvalidJob, text).word(bad.word),
            JobError::Refused(_) | JobError::OutOfMemory(_) => Self::new(Kind::InvalidJob, text),
            JobError::Quota { name, .. } => Self::new(Kind::QuotaExceeded, text).limit(name),
            JobError::Storage(_) => Self::new(Kind::QuotaExceeded, text).limit(StorageFull::NAME),
            JobError::Stopping => Self::new(Kind::Draining, text).retry_after(1),
            JobError::Registry(error) => error.into(),
            JobError::Catalog(error) => error.into(),
            JobError::Place(error) => error.into(),
            JobError::NoDevice(error) => error.into(),
            JobError::Params(error) => error.into(),
            JobError::Device(PoolError::NoSuchDevice { .. }) => Self::new(Kind::InvalidJob, text).word("device"),
            JobError::Memory(over) => over.into(),
            JobError::Channel(error) if error.passes() => Self::new(Kind::Busy, text).retry_after(1),
            JobError::Channel(_) => Self::internal(&text),
            JobError::LargeAnswer(_) => Self::new(Kind::LimitExceeded, text).limit("max_payload"),
            JobError::Passing(_) => Self::new(Kind::Busy, text).retry_after(1),
            JobError::Device(_) => Self::new(Kind::Busy, text).limit("device_memory").retry_after(1),
            JobError::Meta(_) | JobError::Blob(_) | JobError::Randomness(_) | JobError::Io { .. } => {
                Self::internal(&text)
            }
        }
    }
}

impl From<StudyError> for ApiError {
    fn from(error: StudyError) -> Self {
        let text = error.to_string();
        match error {
            StudyError::NotFound(_) | StudyError::NoTrial { .. } => Self::new(Kind::NotFound, text),
            StudyError::Exists(_)
            | StudyError::OtherRequest(_)
            | StudyError::Wrong { .. }
            | StudyError::NotTold(_)
            | StudyError::Gone => Self::new(Kind::Conflict, text),
            StudyError::Bad(bad) => Self::new(Kind::InvalidJob, text).word(bad.word),
            StudyError::Quota { name, .. } => Self::new(Kind::QuotaExceeded, text).limit(name),
            StudyError::TenantDeleted => Self::tenant_deleted(),
            StudyError::Job(error) => error.into(),
            StudyError::Meta(_) | StudyError::Randomness(_) => Self::internal(&text),
        }
    }
}

impl From<PoolError> for ApiError {
    fn from(error: PoolError) -> Self {
        Self::new(Kind::Busy, error.to_string()).limit("devices").retry_after(1)
    }
}

impl From<ParamError> for ApiError {
    fn from(error: ParamError) -> Self {
        let text = error.told();
        match error {
            ParamError::Ended => Self::tenant_deleted(),
            ParamError::Lost(_) => {
                tracing::error!(%error, "a request failed");
                Self::new(Kind::Conflict, text)
            }
            ParamError::Full(_) => {
                tracing::error!(%error, "a request failed");
                Self::new(Kind::Busy, text).retry_after(1)
            }
            ParamError::Conflict { .. } | ParamError::Fenced { .. } => Self::new(Kind::Conflict, text),
            ParamError::WrongForm { .. }
            | ParamError::Overflow(_)
            | ParamError::BadRange { .. }
            | ParamError::Repeated(_)
            | ParamError::TooMany { .. } => Self::new(Kind::InvalidRequest, text),
            ParamError::OverLimit(over) => Self::new(Kind::QuotaExceeded, text).limit(over.name),
            ParamError::KeptAnswers { .. } => Self::new(Kind::Busy, text).limit("max_kept_answers").retry_after(1),
            ParamError::TimedOut { .. } => Self::new(Kind::Busy, text).retry_after(1),
            ParamError::Unavailable(_) | ParamError::Damaged(_) => Self::internal(&error),
        }
    }
}

impl From<BadDigest> for ApiError {
    fn from(error: BadDigest) -> Self {
        Self::new(Kind::InvalidRequest, error.to_string())
    }
}

impl From<CompileError> for ApiError {
    fn from(error: CompileError) -> Self {
        let text = error.to_string();
        match error {
            CompileError::Refused(_) => Self::new(Kind::InvalidComponent, text),
            CompileError::TooLong(_) => Self::new(Kind::CompileLimit, text).limit("compile_timeout"),
            CompileError::TooMuchMemory(_) => Self::new(Kind::CompileLimit, text).limit("compile_memory"),
            CompileError::TooLarge(_) => Self::new(Kind::CompileLimit, text).limit("max_artifact"),
            CompileError::Busy(_) => Self::new(Kind::Busy, text).limit("compile_waiting").retry_after(5),
            CompileError::QueueTimeout { name, .. } => Self::new(Kind::Busy, text).limit(name).retry_after(5),
            CompileError::Failed(_) => Self::internal(&text),
        }
    }
}

impl From<OverLimit> for ApiError {
    fn from(error: OverLimit) -> Self {
        if error.never_fits() {
            let text = format!("{error}: ask for less at once, or the operator for more");
            return Self::new(Kind::QuotaExceeded, text).limit(error.name);
        }
        let text = format!("{error}: fewer or smaller requests at once, or ask the operator for more");
        Self::new(Kind::Busy, text).limit(error.name).retry_after(1)
    }
}

impl From<NoPlace> for ApiError {
    fn from(error: NoPlace) -> Self {
        let limit = match error {
            NoPlace::Full(_) => "max_waiting",
            NoPlace::TimedOut(_) => "queue_timeout",
        };
        Self::new(Kind::Busy, error.to_string()).limit(limit).retry_after(1)
    }
}

impl From<NoDevice> for ApiError {
    fn from(error: NoDevice) -> Self {
        let limit = match error {
            NoDevice::Busy(_) => "max_waiting",
            NoDevice::TimedOut(_) => "queue_timeout",
            NoDevice::Pool(_) => "device_memory",
        };
        Self::new(Kind::Busy, error.to_string()).limit(limit).retry_after(1)
    }
}

impl From<InvokeFailure> for ApiError {
    fn from(failure: InvokeFailure) -> Self {
        let text = failure.to_string();
        match failure {
            InvokeFailure::Registry(error) => error.into(),
            InvokeFailure::Place(error) => error.into(),
            InvokeFailure::Device(error) => error.into(),
            InvokeFailure::Draining => Self::new(Kind::Draining, text).retry_after(1),
            InvokeFailure::Randomness(_) => Self::internal(&text),
            InvokeFailure::Failed { error, receipt } => {
                let mut answer = match error {
                    InvokeError::Host(_) => Self::internal(&text),
                    InvokeError::Trap { .. } => Self::new(Kind::Trapped, text),
                    InvokeError::Limit(hit @ (LimitHit::Cpu(_) | LimitHit::Wall(_))) => {
                        Self::new(Kind::DeadlineExceeded, text).limit(hit.name())
                    }
                    InvokeError::Limit(hit) => Self::new(Kind::LimitExceeded, text).limit(hit.name()),
                    InvokeError::Function { kind, message } => {
                        let mut answer = Self::new(Kind::FunctionError, message);
                        answer.function_error = Some(kind);
                        answer
                    }
                };
                answer.invocation = Some(receipt.invocation);
                answer
            }
        }
    }
}
