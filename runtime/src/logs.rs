//! What functions say: log lines of invocations, kept per tenant within its quota.
//!
//! A tenant's lines share one book, bounded in bytes, whose oldest lines go first. Lines are numbered so that a reader can
//! go on where it stopped, also after a restart: numbers follow the clock and are never used twice. The book is written
//! to the metadata store with the ledger, once a second.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use utoipa::ToSchema;

use crate::clock::unix_ms;
use crate::locks::{Lock, SharedLock};
use crate::meta::{Batch, MetaError, Metadata, Record};
use crate::names::Name;
use crate::tenant::{Tenant, TenantId};

/// What a line costs beside its text.
const LINE_OVERHEAD: u64 = 64;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// One line of a function's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// Grows with every line of the tenant.
    pub id: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    #[schema(value_type = String)]
    pub function: Name,
    /// The training job that it ran for, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub job: Option<Name>,
    /// The invocation that wrote it.
    pub invocation: String,
    pub level: Level,
    pub message: String,
}

impl LogLine {
    fn bytes(&self) -> u64 {
        self.message.len() as u64 + LINE_OVERHEAD
    }
}

/// Whose lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// All that a function says, in jobs too.
    Function(Name),
    Job(Name),
}

impl Whose {
    fn wrote(&self, line: &LogLine) -> bool {
        match self {
            Self::Function(name) => line.function == *name,
            Self::Job(name) => line.job.as_ref() == Some(name),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct LogRecord {
    tenant: TenantId,
    line: LogLine,
}

fn log_key(tenant: TenantId, id: u64) -> String {
    format!("{}/{id:016x}", tenant.key())
}

impl Record for LogRecord {
    const TABLE: &'static str = "logs";

    fn key(&self) -> String {
        log_key(self.tenant, self.line.id)
    }
}

#[derive(Default)]
struct Book {
    lines: VecDeque<LogLine>,
    bytes: u64,
    last_id: u64,
    /// The ids that are in the metadata store, oldest first.
    stored: VecDeque<u64>,
}

/// The log of one tenant.
pub struct LogBook {
    book: Mutex<Book>,
    /// The latest line's id; wakes those who follow.
    latest: watch::Sender<u64>,
}

impl Default for LogBook {
    fn default() -> Self {
        Self { book: Mutex::default(), latest: watch::channel(0).0 }
    }
}

impl LogBook {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.locked()
    }

    /// Adds a line and drops the oldest ones that no longer fit in `keep` bytes.
    fn append(&self, keep: u64, sink: &LogSink, level: Level, message: String) {
        let mut book = self.book();
        let at_ms = unix_ms();
        let id = (book.last_id + 1).max(at_ms << 10);
        let (function, job) = (sink.function.clone(), sink.job.clone());
        let line = LogLine { id, at_ms, function, job, invocation: invocation_id(sink.invocation), level, message };
        book.last_id = id;
        book.bytes += line.bytes();
        book.lines.push_back(line);
        while book.bytes > keep {
            let Some(oldest) = book.lines.pop_front() else { break };
            book.bytes -= oldest.bytes();
        }
        drop(book);
        self.latest.send_replace(id);
    }

    /// Up to `limit` lines after line `after`, oldest first.
    pub fn after(&self, whose: &Whose, after: u64, limit: usize) -> Vec<LogLine> {
        let book = self.book();
        let start = book.lines.partition_point(|line| line.id <= after);
        book.lines.range(start..).filter(|line| whose.wrote(line)).take(limit).cloned().collect()
    }

    /// The last `limit` lines, oldest first.
    pub fn tail(&self, whose: &Whose, limit: usize) -> Vec<LogLine> {
        let book = self.book();
        let newest = book.lines.iter().rev().filter(|line| whose.wrote(line)).take(limit).cloned();
        let mut lines: Vec<_> = newest.collect();
        lines.reverse();
        lines
    }

    /// Tells whoever follows that there is something new.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    fn forget(&self, whose: &Whose) {
        let mut book = self.book();
        book.lines.retain(|line| !whose.wrote(line));
        book.bytes = book.lines.iter().map(LogLine::bytes).sum();
    }

    fn batch(&self, tenant: TenantId, mut batch: Batch) -> Result<Batch, MetaError> {
        let mut book = self.book();
        let newest_stored = book.stored.back().copied().unwrap_or(0);
        let kept: std::collections::HashSet<u64> = book.lines.iter().map(|line| line.id).collect();
        for id in book.stored.iter().filter(|id| !kept.contains(id)) {
            batch = batch.delete::<LogRecord>(log_key(tenant, *id));
        }
        book.stored.retain(|id| kept.contains(id));
        let start = book.lines.partition_point(|line| line.id <= newest_stored);
        let fresh: Vec<LogLine> = book.lines.range(start..).cloned().collect();
        for line in fresh {
            book.stored.push_back(line.id);
            batch = batch.put(&LogRecord { tenant, line })?;
        }
        Ok(batch)
    }
}

/// The logs of all tenants.
#[derive(Default)]
pub struct Logs {
    books: RwLock<HashMap<TenantId, Arc<LogBook>>>,
}

impl Logs {
    pub fn load(metadata: &Metadata) -> Result<Self, MetaError> {
        let logs = Self::default();
        for LogRecord { tenant, line } in metadata.all()? {
            let book = logs.book(tenant);
            let mut book = book.book();
            book.bytes += line.bytes();
            book.last_id = line.id;
            book.stored.push_back(line.id);
            book.lines.push_back(line);
        }
        Ok(logs)
    }

    pub fn book(&self, tenant: TenantId) -> Arc<LogBook> {
        let known = self.books.reading().get(&tenant).cloned();
        known.unwrap_or_else(|| self.books.writing().entry(tenant).or_default().clone())
    }

    pub fn forget_function(&self, tenant: TenantId, function: &Name) {
        self.book(tenant).forget(&Whose::Function(function.clone()));
    }

    pub fn forget_job(&self, tenant: TenantId, job: &Name) {
        self.book(tenant).forget(&Whose::Job(job.clone()));
    }

    /// Forgets a tenant; the records of its stored lines go with the returned batch.
    pub fn forget_tenant(&self, tenant: TenantId) -> Batch {
        let book = self.books.writing().remove(&tenant);
        let stored = book.map(|book| std::mem::take(&mut book.book().stored)).unwrap_or_default();
        stored.into_iter().fold(Batch::default(), |batch, id| batch.delete::<LogRecord>(log_key(tenant, id)))
    }

    /// What has changed since the last time, for the next periodic write.
    pub fn batch(&self, batch: Batch) -> Result<Batch, MetaError> {
        let books = self.books.reading();
        books.iter().try_fold(batch, |batch, (tenant, book)| book.batch(*tenant, batch))
    }
}

/// The log as one invocation writes it, within its budget.
pub struct LogSink {
    book: Arc<LogBook>,
    tenant: Arc<Tenant>,
    function: Name,
    job: Option<Name>,
    invocation: u64,
    budget: u64,
    written: u64,
    dropped: u64,
    /// The latest line at level error: what a function said before it trapped.
    last_words: Option<String>,
}

impl LogSink {
    pub fn new(book: Arc<LogBook>, tenant: Arc<Tenant>, function: Name, invocation: u64) -> Self {
        let budget = tenant.quota().invocation_log_bytes;
        Self { book, tenant, function, job: None, invocation, budget, written: 0, dropped: 0, last_words: None }
    }

    /// The same, for a function that runs for a job.
    pub fn of_job(mut self, job: Name) -> Self {
        self.job = Some(job);
        self
    }

    pub fn write(&mut self, level: Level, message: &str) {
        let room = self.budget.saturating_sub(self.written + LINE_OVERHEAD);
        if self.dropped > 0 || room == 0 {
            self.dropped += message.len() as u64;
            return;
        }
        let kept = message.floor_char_boundary(usize::try_from(room).unwrap_or(usize::MAX));
        self.dropped += (message.len() - kept) as u64;
        self.written += kept as u64 + LINE_OVERHEAD;
        let message = message[..kept].to_owned();
        if level == Level::Error {
            self.last_words = Some(message.clone());
        }
        self.append(level, message);
    }

    fn append(&self, level: Level, message: String) {
        self.book.append(self.tenant.quota().log_bytes, self, level, message);
    }

    pub fn take_last_words(&mut self) -> Option<String> {
        self.last_words.take()
    }
}

impl Drop for LogSink {
    fn drop(&mut self) {
        self.tenant.ledger.charge_log(self.written);
        if self.dropped > 0 {
            let text =
                format!("{} more bytes of log were dropped: `invocation_log_bytes` is {}", self.dropped, self.budget);
            self.append(Level::Warn, text);
        }
    }
}

/// An invocation's number as people see it.
pub fn invocation_id(number: u64) -> String {
    format!("{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::{Account, Quota};

    fn sink(book: &Arc<LogBook>, quota: Quota) -> LogSink {
        let tenant = Tenant::unregistered("a".parse().unwrap(), quota, Account::new("max_memory", 0, None));
        LogSink::new(book.clone(), tenant, "f".parse().unwrap(), 7)
    }

    fn whose() -> Whose {
        Whose::Function("f".parse().unwrap())
    }

    #[test]
    fn lines_of_a_job_are_its_functions_too() {
        let book = Arc::new(LogBook::default());
        sink(&book, Quota::default()).write(Level::Info, "alone");
        sink(&book, Quota::default()).of_job("j".parse().unwrap()).write(Level::Info, "in a job");
        let messages =
            |whose: &Whose| -> Vec<String> { book.tail(whose, 10).into_iter().map(|line| line.message).collect() };
        assert_eq!(messages(&whose()), ["alone", "in a job"]);
        assert_eq!(messages(&Whose::Job("j".parse().unwrap())), ["in a job"]);
        assert!(messages(&Whose::Job("f".parse().unwrap())).is_empty());
    }

    #[test]
    fn lines_from_before_there_were_jobs_are_read() {
        let text = r#"{"id":1,"at_ms":2,"function":"f","invocation":"7","level":"info","message":"m"}"#;
        let line: LogLine = serde_json::from_str(text).unwrap();
        assert_eq!((line.job.as_ref(), serde_json::to_string(&line).unwrap().as_str()), (None, text));
    }

    #[test]
    fn the_oldest_lines_go_when_the_book_is_full() {
        let book = Arc::new(LogBook::default());
        let mut sink = sink(&book, Quota { log_bytes: 3 * (LINE_OVERHEAD + 1), ..Quota::default() });
        for message in ["a", "b", "c", "d"] {
            sink.write(Level::Info, message);
        }
        let lines = book.tail(&whose(), 10);
        assert_eq!(lines.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["b", "c", "d"]);
        assert_eq!(book.after(&whose(), lines[1].id, 10), lines[2..]);
    }

    #[test]
    fn what_exceeds_the_budget_is_dropped_and_counted() {
        let book = Arc::new(LogBook::default());
        let mut sink = sink(&book, Quota { invocation_log_bytes: LINE_OVERHEAD + 4, ..Quota::default() });
        sink.write(Level::Info, "héllo");
        sink.write(Level::Info, "again");
        drop(sink);
        let lines = book.tail(&whose(), 10);
        assert_eq!(lines[0].message, "hél");
        assert!(lines[1].message.starts_with("7 more bytes"), "{}", lines[1].message);
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn lines_survive_a_restart_and_forgotten_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let metadata = Metadata::open(&folder.path().join("meta.redb")).unwrap();
        let logs = Logs::default();
        let mut sink = sink(&logs.book(TenantId(0)), Quota { log_bytes: 2 * (LINE_OVERHEAD + 1), ..Quota::default() });
        for message in ["a", "b", "c"] {
            sink.write(Level::Info, message);
            metadata.commit_blocking(logs.batch(Batch::default()).unwrap()).unwrap();
        }
        let kept = Logs::load(&metadata).unwrap().book(TenantId(0)).tail(&whose(), 10);
        assert_eq!(kept.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["b", "c"]);
        metadata.commit_blocking(logs.forget_tenant(TenantId(0))).unwrap();
        assert!(metadata.snapshot().unwrap().is_empty());
    }
}
