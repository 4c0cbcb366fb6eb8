//! Following a job until it is over, through broken connections and restarts of its node. Ctrl-C lets it run on.

use std::io::BufReader;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde::de::DeserializeOwned;

use super::screen::{Screen, seconds};
use crate::api::types::JobDetail;
use crate::cli::client::{Body, Client, ClientError};
use crate::cli::failure::{Interrupted, Reported};
use crate::cli::logs::{BACKOFF, connect_again};
use crate::cli::output::{Output, Style, harmless};
use crate::cli::sse::Events;
use crate::job::{JobEvent, State};
use crate::names::Name;

/// What the one who follows has heard.
pub enum Heard<E> {
    Event(Box<E>),
    /// There is no node just now.
    Lost(String),
    /// The node says no.
    Refused(ClientError),
    /// All is told.
    Over,
    /// Ctrl-C.
    Interrupted,
}

/// Something that happens, of what can be followed until it is over.
pub trait Told: DeserializeOwned + Send + 'static {
    /// Whether it is the last.
    fn is_last(&self) -> bool;
}

impl Told for JobEvent {
    fn is_last(&self) -> bool {
        matches!(self, Self::State { state, .. } if state.is_over())
    }
}

/// Shows progress on stderr, then what it came to on stdout. A job that failed or was stopped is a failure.
pub fn to_its_end(name: &Name, client: &Client, out: &Output) -> anyhow::Result<()> {
    let detail = until_over(name, client, out)?;
    out.show(&detail, || summary(&detail, out))?;
    fails_with(detail.job.state)
}

/// Shows progress on stderr until a job is over, however it ends.
pub fn until_over(name: &Name, client: &Client, out: &Output) -> anyhow::Result<JobDetail> {
    let epochs = client.job(name)?.spec.epochs;
    let mut screen = Screen::new(name, epochs, out);
    let followed = listen(name, client, Client::follow_job, |heard| match heard {
        Heard::Event(event) => screen.show(&event),
        Heard::Lost(reason) => screen.line(&format!("{reason}; trying again")),
        _ => {}
    });
    screen.close();
    followed.inspect_err(|error| say_how_to_go_on(name, error, out))?;
    Ok(client.job(name)?)
}

/// Waits until a job is over, and says nothing meanwhile.
pub fn in_silence(name: &Name, client: &Client) -> anyhow::Result<()> {
    listen(name, client, Client::follow_job, |_: Heard<JobEvent>| ())
}

/// One JSON value for every event.
pub fn as_json(name: &Name, client: &Client, out: &Output) -> anyhow::Result<()> {
    let (mut shown, mut state) = (Ok(()), None);
    let followed = listen(name, client, Client::follow_job, |heard| match heard {
        Heard::Event(event) => {
            if let JobEvent::State { state: now, .. } = *event {
                state = Some(now);
            }
            if shown.is_ok() {
                shown = out.show(&event, String::new);
            }
        }
        Heard::Lost(reason) => out.note(format_args!("{reason}; trying again")),
        _ => {}
    });
    followed.inspect_err(|error| say_how_to_go_on(name, error, out))?;
    shown?;
    state.map_or(Ok(()), fails_with)
}

fn fails_with(state: State) -> anyhow::Result<()> {
    match state {
        State::Failed | State::Stopped => Err(Reported.into()),
        State::Queued | State::Running | State::Waiting | State::Done => Ok(()),
    }
}

fn say_how_to_go_on(name: &Name, error: &anyhow::Error, out: &Output) {
    if error.is::<Interrupted>() {
        out.diagnose(format_args!(
            "job `{name}` goes on without you: `weft job watch {name}` follows it, `weft job stop {name}` stops it"
        ));
    }
}

/// A stream of what happens to something with a name, from after an event on.
pub type Open = fn(&Client, &Name, Option<&str>) -> Result<Events<BufReader<Body>>, ClientError>;

/// Tells of everything that is heard, until it is over.
pub fn listen<E: Told>(name: &Name, client: &Client, open: Open, mut tell: impl FnMut(Heard<E>)) -> anyhow::Result<()> {
    let events = open(client, name, None)?;
    let (heard, hear): (Sender<Heard<E>>, Receiver<Heard<E>>) = channel();
    // Neither thread is waited for: one may sit in a read for as long as the node is silent, the other for ever.
    std::thread::spawn({
        let (name, client, heard) = (name.clone(), client.clone(), heard.clone());
        move || follow(&name, &client, open, events, &heard)
    });
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        // Where signals cannot be waited for, Ctrl-C ends the process as it would have.
        if let Ok(runtime) = runtime
            && runtime.block_on(tokio::signal::ctrl_c()).is_ok()
        {
            heard.send(Heard::Interrupted).ok();
        }
    });
    while let Ok(heard) = hear.recv() {
        match heard {
            Heard::Over => return Ok(()),
            Heard::Interrupted => return Err(Interrupted.into()),
            Heard::Refused(error) => return Err(error.into()),
            told => tell(told),
        }
    }
    Ok(())
}

fn follow<E: Told>(
    name: &Name,
    client: &Client,
    open: Open,
    mut events: Events<BufReader<Body>>,
    heard: &Sender<Heard<E>>,
) {
    let mut last: Option<String> = None;
    loop {
        let mut over = false;
        for event in events.by_ref() {
            // A silent or broken connection ends like one that was closed: with another one.
            let Ok(event) = event else { break };
            // What a later node may tell is not for us.
            if let Ok(told) = serde_json::from_str::<E>(&event.data) {
                over = told.is_last();
                if heard.send(Heard::Event(Box::new(told))).is_err() {
                    return;
                }
            }
            last = event.id.or(last);
        }
        // The node ends the stream after the last event; one that was resumed has more of them.
        if over {
            heard.send(Heard::Over).ok();
            return;
        }
        let lost = |error: &ClientError| {
            heard.send(Heard::Lost(error.to_string())).ok();
        };
        match connect_again(BACKOFF, lost, || open(client, name, last.as_deref())) {
            Ok(again) => events = again,
            Err(error) => {
                heard.send(Heard::Refused(error)).ok();
                return;
            }
        }
    }
}

/// What a job came to.
pub fn summary(detail: &JobDetail, out: &Output) -> String {
    let mut rows = rows(detail, out);
    rows.push(("cost", format!("{:.6}", detail.spending.cost)));
    rows.extend(detail.models.last().map(|model| ("model", format!("weft model pull {model}"))));
    if detail.job.state == State::Failed {
        rows.push(("log", format!("weft job logs {}", detail.job.name)));
    }
    out.fields(&rows)
}

/// What any job came to, whether a node ran it or not.
pub fn rows(detail: &JobDetail, out: &Output) -> Vec<(&'static str, String)> {
    let job = &detail.job;
    let style = match job.state {
        State::Done => Style::Green,
        State::Failed => Style::Red,
        State::Queued | State::Running | State::Waiting | State::Stopped => Style::Yellow,
    };
    let mut rows = vec![("job", job.name.clone()), ("state", out.paint(style, job.state.word()))];
    if !job.reason.is_empty() {
        rows.push(("reason", harmless(&job.reason)));
    }
    rows.push(("epochs", format!("{} of {}", job.epoch, job.epochs)));
    let number = |value: f64| format!("{value:.4}");
    rows.extend(job.train_loss.map(|loss| ("loss", number(loss))));
    rows.extend(job.validation_loss.map(|loss| ("validation loss", number(loss))));
    rows.extend(job.accuracy.map(|accuracy| ("accuracy", number(accuracy))));
    rows.push(("time", seconds(job.seconds)));
    rows.push(("workers", format!("{}, {} lost", job.workers, detail.losses)));
    rows.push(("cold starts", detail.spending.cold_starts.to_string()));
    rows
}
