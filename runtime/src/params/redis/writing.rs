//! Changes: large values are sent ahead in chunks, then one script makes all changes of a write or none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use ::redis::Value as Reply;
use bytes::Bytes;

use super::answer::{self, Answer};
use super::keys::Keys;
use super::requests::{MAX_KEPT_ANSWERS, RequestId, Requests};
use super::reservation::Reservation;
use super::{INLINE, RENEWALS, Redis, chunks, head, number, scripts, text};
use crate::params::{Change, Changed, Expect, Key, ParamError, Space, Value, Write, counted};
use crate::tenant::Account;

impl Redis {
    /// The arguments of the script, whose large values were sent ahead.
    pub(super) fn arguments(
        &self,
        space: &Space,
        request: &RequestId,
        account: &Account,
        write: &Write,
        sent: Vec<chunks::Sent>,
    ) -> Result<Vec<Bytes>, ParamError> {
        let mut sent = sent.into_iter();
        let milliseconds = |span: Option<Duration>| {
            number(span.map_or(0, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 50)))
        };
        let mut arguments = self.requests.arguments(&space.tenant, request);
        arguments.push(number(account.limit()));
        match &write.fence {
            Some(fence) => arguments.extend([text(fence.claim.as_str()), number(fence.epoch)]),
            None => arguments.extend([Bytes::new(), number(0)]),
        }
        arguments.push(number(write.checks.len() as u64));
        for (key, expected) in &write.checks {
            arguments.push(text(key.as_str()));
            arguments.push(match expected {
                Expect::Absent => Bytes::from_static(b"-"),
                Expect::Version(version) => number(*version),
            });
        }
        arguments.push(number(write.changes.len() as u64));
        for (key, change) in &write.changes {
            match change {
                Change::Set { value, expires } => {
                    let sent = if value.data.len() > INLINE { sent.next() } else { None };
                    let (frame, body) = head::body(value, sent.as_ref())?;
                    let (reference, chunks) = sent.map_or(("-".to_owned(), 0), |sent| (sent.reference, sent.count));
                    let count = value.count().map_or_else(|| "-".to_owned(), |count| count.to_string());
                    arguments.extend([Bytes::from_static(b"S"), text(key.as_str())]);
                    arguments.extend([
                        number(counted(key, value.stored_bytes())),
                        Bytes::from(reference),
                        number(chunks),
                    ]);
                    arguments.extend([Bytes::from(count), milliseconds(*expires), number(frame), body]);
                }
                Change::Add(by) => {
                    let (frame, body) = head::body(&Value::counter(0), None)?;
                    arguments.extend([Bytes::from_static(b"A"), text(key.as_str()), Bytes::from(by.to_string())]);
                    arguments.extend([number(counted(key, 8)), number(frame), body]);
                }
                Change::Delete => arguments.extend([Bytes::from_static(b"D"), text(key.as_str())]),
                Change::Expire(span) => {
                    arguments.extend([Bytes::from_static(b"X"), text(key.as_str()), milliseconds(*span)]);
                }
            }
        }
        Ok(arguments)
    }

    /// Reserves room for large values, given as the bytes of each and the bytes that count.
    pub(super) async fn reserve(
        self,
        space: Space,
        account: Arc<Account>,
        epoch: u64,
        values: Vec<(u64, u64)>,
    ) -> Result<Reservation, ParamError> {
        let request = Requests::next_id()?;
        let mut arguments = self.requests.arguments(&space.tenant, &request);
        arguments.extend([account.limit(), epoch, self.sending.as_millis() as u64, values.len() as u64].map(number));
        for &(bytes, counted) in &values {
            arguments.extend([number(chunks::count(bytes)), number(counted)]);
        }
        let answer = self.run(&scripts::RESERVE, &space, Some(Keys::answers(&space.tenant)), arguments).await?;
        self.requests.is_answered(&space.tenant, request);
        match answer {
            Answer::Limit => return Err(account.refused_elsewhere().into()),
            Answer::Answers => return Err(ParamError::KeptAnswers { most: MAX_KEPT_ANSWERS }),
            _ => {}
        }
        let mut parts = answer.done()?.into_iter();
        let is_crowded = answer::text(parts.next().unwrap_or(Reply::Nil))? == "1";
        let references: Vec<String> = parts.map(answer::text).collect::<Result<_, _>>()?;
        let places =
            references.iter().zip(&values).map(|(reference, &(bytes, _))| chunks::named(reference, bytes)).collect();
        let reservation = Reservation::new(self.clone(), space, places);
        if is_crowded {
            // More that was replaced is kept for its readers than the tenant may have: it goes now. What is left when the
            // time is over goes with the next collection.
            self.collect_of(&reservation.space().tenant).await?;
        }
        Ok(reservation)
    }

    /// Puts large values where no head names them yet.
    async fn send(&self, reservation: &Reservation, write: &Write) -> Result<Vec<chunks::Sent>, ParamError> {
        let tenant = &reservation.space().tenant;
        let is_stopped = AtomicBool::new(false);
        let sending = async {
            let mut sent = Vec::new();
            for (reference, (_, value)) in reservation.references().zip(large_values(write)) {
                let data = value.data.clone();
                sent.push(chunks::put(&self.link, tenant, reference.to_owned(), data, &is_stopped).await?);
            }
            Ok(sent)
        };
        let mut sending = std::pin::pin!(sending);
        tokio::select! {
            sent = &mut sending => sent,
            error = self.renew(reservation) => {
                // Those under way are waited for: a chunk that arrives after the others were deleted would stay for ever.
                is_stopped.store(true, Relaxed);
                sending.await.ok();
                Err(error)
            }
        }
    }

    /// Sends large values, and makes the changes. `None` if sending took longer than the chunks are kept for.
    pub(super) async fn send_and_change(
        self,
        reservation: Reservation,
        account: Arc<Account>,
        write: Write,
        request: RequestId,
    ) -> Result<Option<Vec<Changed>>, ParamError> {
        let sent = match self.send(&reservation, &write).await {
            Ok(sent) => sent,
            Err(error) => {
                reservation.abandon().await;
                return Err(error);
            }
        };
        let space = reservation.space();
        let answer = match self.arguments(space, &request, &account, &write, sent) {
            Ok(arguments) => self.change(space, request, arguments).await,
            Err(error) => Err(error),
        };
        // Only where it is certain that the change was not made: an answer may be lost and the change done.
        match &answer {
            Ok(Answer::Done { .. }) | Err(ParamError::Unavailable(_) | ParamError::Damaged(_)) => reservation.keep(),
            _ => reservation.abandon().await,
        }
        match answer? {
            Answer::Late => Ok(None),
            answer => changed(&account, write, answer).map(Some),
        }
    }

    /// Makes the changes of a request, once.
    pub(super) async fn change(
        &self,
        space: &Space,
        request: RequestId,
        arguments: Vec<Bytes>,
    ) -> Result<Answer, ParamError> {
        let answer = self.run(&scripts::WRITE, space, Some(Keys::answers(&space.tenant)), arguments).await?;
        // Whoever was late asks once more under this number.
        if !matches!(answer, Answer::Late) {
            self.requests.is_answered(&space.tenant, request);
        }
        Ok(answer)
    }

    /// Asks for more time to send, again and again, until that is refused.
    async fn renew(&self, reservation: &Reservation) -> ParamError {
        loop {
            tokio::time::sleep(self.sending / RENEWALS).await;
            let mut arguments = vec![number(self.sending.as_millis() as u64)];
            arguments.extend(reservation.places().iter().map(|place| text(place)));
            match self.run(&scripts::RENEW, reservation.space(), None, arguments).await {
                Ok(Answer::Late) => {
                    return ParamError::Unavailable("a value took too long to send".to_owned());
                }
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    }

    /// Deletes what was sent for a change that is not made. What cannot be deleted now is collected later.
    pub(super) async fn abandon(&self, space: &Space, places: &[String]) {
        if places.is_empty() {
            return;
        }
        let abandoned = async {
            let arguments = places.iter().map(|place| text(place)).collect();
            let doomed = Some(Keys::doomed(&space.tenant));
            self.run(&scripts::RELEASE, space, doomed, arguments).await?.done()?;
            // Also those that were collected already: some of their chunks may have come after that.
            self.delete_chunks(space, places).await
        };
        if let Err(error) = abandoned.await {
            tracing::warn!(%error, "chunks of a refused value are left to be collected");
        }
    }

    /// Deletes chunks that no head can name any more, and counts them no longer.
    pub(super) async fn delete_chunks(&self, space: &Space, places: &[String]) -> Result<(), ParamError> {
        if places.is_empty() {
            return Ok(());
        }
        chunks::delete(&self.link, &space.tenant, places).await?;
        let arguments = places.iter().map(|place| text(place)).collect();
        let doomed = Some(Keys::doomed(&space.tenant));
        self.run(&scripts::FORGET, space, doomed, arguments).await?.done().map(drop)
    }
}

/// Values that are cut into chunks.
pub(super) fn large_values(write: &Write) -> impl Iterator<Item = (&Key, &Value)> {
    write.changes.iter().filter_map(|(key, change)| match change {
        Change::Set { value, .. } if value.data.len() > INLINE => Some((key, value)),
        _ => None,
    })
}

/// Goes on with it to its end, also if whoever waits for it goes away.
pub(super) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ParamError>> + Send + 'static,
) -> Result<T, ParamError> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|error| Err(ParamError::Unavailable(format!("a write was interrupted: {error}"))))
}

/// What the script said to the changes.
pub(super) fn changed(account: &Account, write: Write, answer: Answer) -> Result<Vec<Changed>, ParamError> {
    match answer {
        Answer::Limit => Err(account.refused_elsewhere().into()),
        Answer::Fenced { newest } => match write.fence {
            Some(fence) => Err(ParamError::Fenced { claim: fence.claim, epoch: fence.epoch, newest }),
            None => Err(ParamError::Damaged("a fence that was not given".to_owned())),
        },
        Answer::Conflict { key, found } => {
            let expected = write.checks.iter().find(|(checked, _)| *checked == key);
            let expected = expected.map_or(Expect::Absent, |(_, expected)| *expected);
            Err(ParamError::Conflict { key, found, expected })
        }
        Answer::Form { key, found } => {
            Err(ParamError::WrongForm { key, found: found.to_string(), wanted: "a counter".to_owned() })
        }
        Answer::Overflow { key } => Err(ParamError::Overflow(key)),
        Answer::Answers => Err(ParamError::KeptAnswers { most: MAX_KEPT_ANSWERS }),
        answer => answer.done()?.into_iter().map(head::read_changed).collect(),
    }
}
