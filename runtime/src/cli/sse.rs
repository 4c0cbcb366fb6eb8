//! Server-sent events, read from a stream.

use std::io::{self, BufRead};

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    /// `message` if the server named none.
    pub kind: String,
    pub data: String,
}

/// The events of a stream. One that is cut off in the middle is never given out.
pub struct Events<R> {
    reader: R,
}

impl<R: BufRead> Events<R> {
    pub fn new(reader: R) -> Self {
        Self { reader }
    }

    fn next_event(&mut self) -> io::Result<Option<Event>> {
        let (mut id, mut kind, mut data) = (None, None, Vec::<String>::new());
        let mut line = String::new();
        loop {
            line.clear();
            if self.reader.read_line(&mut line)? == 0 || !line.ends_with('\n') {
                return Ok(None);
            }
            let text = line.trim_end_matches(['\r', '\n']);
            if text.is_empty() {
                if data.is_empty() {
                    // Nothing but a comment, which keeps the connection alive.
                    kind = None;
                    continue;
                }
                let kind = kind.unwrap_or_else(|| "message".to_owned());
                return Ok(Some(Event { id, kind, data: data.join("\n") }));
            }
            let (field, value) = text.split_once(':').unwrap_or((text, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => id = Some(value.to_owned()),
                "event" => kind = Some(value.to_owned()),
                "data" => data.push(value.to_owned()),
                _ => {}
            }
        }
    }
}

impl<R: BufRead> Iterator for Events<R> {
    type Item = io::Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_event().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> Vec<Event> {
        Events::new(text.as_bytes()).map(Result::unwrap).collect()
    }

    fn event(id: Option<&str>, kind: &str, data: &str) -> Event {
        Event { id: id.map(str::to_owned), kind: kind.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn fields_make_events() {
        let text = "id: 7\nevent: line\ndata: {\"a\":1}\n\ndata:one\ndata: two\n\n";
        assert_eq!(events(text), [event(Some("7"), "line", "{\"a\":1}"), event(None, "message", "one\ntwo")]);
    }

    #[test]
    fn comments_and_other_line_ends_are_taken() {
        assert_eq!(events(": hello\r\n\r\nretry: 5\r\ndata: x: y\r\n\r\n"), [event(None, "message", "x: y")]);
    }

    #[test]
    fn an_unfinished_event_is_dropped() {
        assert_eq!(events("data: whole\n\nid: 8\ndata: ha"), [event(None, "message", "whole")]);
        assert_eq!(events("data: no blank line\n"), []);
    }
}
