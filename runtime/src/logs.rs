//! What functions say: log lines of invocations, kept per tenant within its quota.
//!
//! A tenant's lines share one book, bounded in bytes, whose oldest lines go first. Lines are numbered so that a reader can
//! go on where it stopped, also after a restart: numbers follow the clock and are never used twice. What has changed in a
//! book is written to the metadata store with the ledger, once a second, up to so many lines at a time; a write that failed
//! is done again by the next one.

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

/// Lines of one tenant that are stored at a time, so that nobody's chatter keeps the store from everybody else.
pub const LINES_AT_A_TIME: usize = 4_096;

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
    /// Lines up to this one are in the metadata store, unless they are gone from the book.
    stored_to: u64,
    /// While lines are being stored: the last of those. Nobody knows yet whether they will be.
    storing_to: Option<u64>,
    /// Lines that are gone from the book, and must go from the store.
    to_delete: Vec<u64>,
}

impl Book {
    /// Notes that a line is no longer in the book.
    fn dropped(&mut self, id: u64) {
        if id <= self.stored_to || self.storing_to.is_some_and(|storing_to| id <= storing_to) {
            self.to_delete.push(id);
        }
    }
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
            book.dropped(oldest.id);
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
        let (gone, kept) = std::mem::take(&mut book.lines).into_iter().partition(|line| whose.wrote(line));
        book.lines = kept;
        book.bytes = book.lines.iter().map(LogLine::bytes).sum();
        let gone: VecDeque<LogLine> = gone;
        for line in gone {
            book.dropped(line.id);
        }
    }

    /// What has changed since it was last stored, up to `most` new lines. [`LogBook::stored`] must follow.
    fn unstored(&self, most: usize) -> (Vec<LogLine>, Vec<u64>) {
        let mut book = self.book();
        let start = book.lines.partition_point(|line| line.id <= book.stored_to);
        let fresh: Vec<LogLine> = book.lines.range(start..).take(most).cloned().collect();
        book.storing_to = fresh.last().map(|line| line.id);
        (fresh, std::mem::take(&mut book.to_delete))
    }

    /// What was [`LogBook::unstored`] is stored now, or could not be.
    fn stored(&self, deleted: Vec<u64>, written: bool) {
        let mut book = self.book();
        let storing_to = book.storing_to.take();
        if written {
            book.stored_to = storing_to.unwrap_or(book.stored_to);
        } else {
            book.to_delete.extend(deleted);
            // Nothing was stored beyond, so nothing has to go from there.
            let stored_to = book.stored_to;
            book.to_delete.retain(|id| *id <= stored_to);
        }
    }

    /// Everything of it that may be in the store.
    fn may_be_stored(&self) -> Vec<u64> {
        let book = self.book();
        let to = book.storing_to.unwrap_or(book.stored_to).max(book.stored_to);
        let lines = book.lines.iter().map(|line| line.id).filter(|id| *id <= to);
        lines.chain(book.to_delete.iter().copied()).collect()
    }
}

/// Changes of logs that are on their way to the store.
#[must_use = "the logs must be told whether it was written"]
pub struct Storing {
    books: Vec<(Arc<LogBook>, Vec<u64>)>,
}

impl Storing {
    /// Says whether the changes are in the store now. If not, the next write has them again.
    pub fn done(self, written: bool) {
        for (book, deleted) in self.books {
            book.stored(deleted, written);
        }
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
            book.stored_to = line.id;
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
        let stored = book.map(|book| book.may_be_stored()).unwrap_or_default();
        stored.into_iter().fold(Batch::default(), |batch, id| batch.delete::<LogRecord>(log_key(tenant, id)))
    }

    /// What has changed since the last time, up to `most` new lines of each tenant. Whoever writes it says afterwards
    /// whether it was written, before anybody else asks. Books of tenants that are gone are dropped: a call of theirs that
    /// still runs may have opened one.
    pub fn unstored(&self, most: usize, exists: impl Fn(TenantId) -> bool) -> Result<(Batch, Storing), MetaError> {
        let mut batch = Batch::default();
        self.books.writing().retain(|tenant, _| exists(*tenant));
        let books: Vec<_> = self.books.reading().iter().map(|(tenant, book)| (*tenant, book.clone())).collect();
        let mut storing = Storing { books: Vec::with_capacity(books.len()) };
        for (tenant, book) in books {
            let (lines, deleted) = book.unstored(most);
            let put = lines
                .into_iter()
                .map(|line| LogRecord { tenant, line })
                .try_fold(batch, |batch, line| batch.put(&line));
            let deletions =
                |batch: Batch| deleted.iter().fold(batch, |batch, id| batch.delete::<LogRecord>(log_key(tenant, *id)));
            let put = put.map(deletions);
            storing.books.push((book, deleted));
            match put {
                Ok(all) => batch = all,
                Err(error) => {
                    storing.done(false);
                    return Err(error);
                }
            }
        }
        Ok((batch, storing))
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

/// Words that may be a guest's, for the operator's log: control characters are escaped, so that nobody can forge lines.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    line
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
    fn a_guests_words_stay_on_one_line_of_the_operators_log() {
        let forged = "boom\n2026-01-01T00:00:00Z  INFO weft: all is well\r\u{1b}[2K\u{2028}über `x`";
        assert_eq!(
            one_line(forged),
            "boom\\n2026-01-01T00:00:00Z  INFO weft: all is well\\r\\u{1b}[2K\\u{2028}über `x`"
        );
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

    fn store(logs: &Logs, metadata: &Metadata, most: usize) {
        let (batch, storing) = logs.unstored(most, |_| true).unwrap();
        metadata.commit_blocking(batch).unwrap();
        storing.done(true);
    }

    fn stored(metadata: &Metadata) -> Vec<String> {
        let lines = Logs::load(metadata).unwrap().book(TenantId(0)).tail(&whose(), 100);
        lines.into_iter().map(|line| line.message).collect()
    }

    /// Logs, a store for them, and a sink that keeps the last two lines of one byte.
    fn of_two_lines() -> (tempfile::TempDir, Arc<Metadata>, Logs, LogSink) {
        let folder = tempfile::tempdir().unwrap();
        let metadata = Metadata::open(&folder.path().join("meta.redb")).unwrap();
        let logs = Logs::default();
        let sink = sink(&logs.book(TenantId(0)), Quota { log_bytes: 2 * (LINE_OVERHEAD + 1), ..Quota::default() });
        (folder, metadata, logs, sink)
    }

    #[test]
    fn lines_survive_a_restart_and_forgotten_ones_do_not() {
        let (_folder, metadata, logs, mut sink) = of_two_lines();
        for message in ["a", "b", "c"] {
            sink.write(Level::Info, message);
            store(&logs, &metadata, LINES_AT_A_TIME);
        }
        assert_eq!(stored(&metadata), ["b", "c"]);
        metadata.commit_blocking(logs.forget_tenant(TenantId(0))).unwrap();
        assert!(metadata.snapshot().unwrap().is_empty());
    }

    #[test]
    fn a_write_holds_what_has_changed_and_no_more() {
        let (_folder, metadata, logs, mut sink) = of_two_lines();
        sink.write(Level::Info, "a");
        store(&logs, &metadata, LINES_AT_A_TIME);
        let (batch, storing) = logs.unstored(LINES_AT_A_TIME, |_| true).unwrap();
        assert!(batch.is_empty());
        storing.done(true);
        sink.write(Level::Info, "b");
        sink.write(Level::Info, "c");
        store(&logs, &metadata, 1);
        assert_eq!(stored(&metadata), ["b"]);
        store(&logs, &metadata, 1);
        assert_eq!(stored(&metadata), ["b", "c"]);
    }

    /// Two writes, of which any may fail, with lines before, between and after; whatever happens, one more write makes the
    /// store what the book is.
    #[test]
    fn writes_that_fail_lose_nothing_and_leave_nothing() {
        for order in 0..32_u32 {
            let (_folder, metadata, logs, mut sink) = of_two_lines();
            let mut letters = ('a'..='z').map(String::from);
            let mut say = |wanted: bool| {
                if wanted {
                    sink.write(Level::Info, &letters.next().unwrap());
                }
            };
            say(true);
            for write in 0..2 {
                say(order & 1 << write != 0);
                let (batch, storing) = logs.unstored(LINES_AT_A_TIME, |_| true).unwrap();
                // While it is being written.
                say(order & 4 << write != 0);
                let fails = order & 16 != 0 && write == 0;
                if !fails {
                    metadata.commit_blocking(batch).unwrap();
                }
                storing.done(!fails);
            }
            store(&logs, &metadata, LINES_AT_A_TIME);
            let lines = logs.book(TenantId(0)).tail(&whose(), 100);
            let kept: Vec<String> = lines.into_iter().map(|line| line.message).collect();
            assert_eq!(stored(&metadata), kept, "order {order}");
        }
    }

    #[test]
    fn lines_of_a_tenant_that_is_gone_are_not_stored() {
        let (_folder, metadata, logs, mut sink) = of_two_lines();
        sink.write(Level::Info, "a");
        store(&logs, &metadata, LINES_AT_A_TIME);
        metadata.commit_blocking(logs.forget_tenant(TenantId(0))).unwrap();
        // A call that was under way goes on writing, to the old book and to one that it opens.
        sink.write(Level::Info, "b");
        self::sink(&logs.book(TenantId(0)), Quota::default()).write(Level::Info, "c");
        let (batch, storing) = logs.unstored(LINES_AT_A_TIME, |_| false).unwrap();
        assert!(batch.is_empty());
        storing.done(true);
    }
}
