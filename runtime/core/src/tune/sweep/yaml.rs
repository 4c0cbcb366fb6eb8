//! YAML as far as search files need it: words, lists and maps, each with its line.

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::SweepError;

/// How deep lists and maps may lie in each other: a search file needs four.
const MAX_DEPTH: usize = 16;

/// A piece of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Counted from one.
    pub line: usize,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Word(String),
    List(Vec<Node>),
    /// In the order of the file.
    Map(Vec<Entry>),
}

/// A key and what it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub line: usize,
    pub node: Node,
}

/// What is open while its end is not read yet.
enum Open {
    List(usize, Vec<Node>),
    /// With a key that waits for what it has.
    Map(usize, Vec<Entry>, Option<(String, usize)>),
}

/// Reads a file with one document.
pub fn read(text: &str) -> Result<Node, SweepError> {
    let mut open: Vec<Open> = Vec::new();
    let mut document: Option<Node> = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| SweepError::new(error.marker().line(), "", error.info()))?;
        let line = span.start.line();
        let ready = match event {
            Event::Scalar(text, style, _, _) => Some(word(&text, style, &span)?),
            Event::SequenceStart(..) => {
                open.push(Open::List(line, Vec::new()));
                None
            }
            Event::MappingStart(..) => {
                open.push(Open::Map(line, Vec::new(), None));
                None
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(line, nodes)) => Some(Node { line, content: Content::List(nodes) }),
                Some(Open::Map(line, entries, _)) => Some(Node { line, content: Content::Map(entries) }),
                None => None,
            },
            Event::Alias(_) => {
                return Err(SweepError::new(line, "", "aliases (`*name`) are not known here; write the value itself"));
            }
            Event::DocumentStart(_) if document.is_some() => {
                return Err(SweepError::new(line, "", "a second document begins; a search file has one"));
            }
            _ => None,
        };
        if open.len() > MAX_DEPTH {
            return Err(SweepError::new(line, "", "lists and maps lie too deep in each other"));
        }
        let Some(node) = ready else { continue };
        match open.last_mut() {
            None => document = Some(node),
            Some(Open::List(_, nodes)) => nodes.push(node),
            Some(Open::Map(_, entries, waiting)) => match waiting.take() {
                Some((key, line)) => entries.push(Entry { key, line, node }),
                None => *waiting = Some(key_of(node, entries)?),
            },
        }
    }
    document.ok_or_else(|| SweepError::new(1, "", "the file is empty"))
}

fn word(text: &str, style: ScalarStyle, span: &Span) -> Result<Node, SweepError> {
    // What YAML calls null is nothing, and nothing here may be nothing.
    let is_nothing = style == ScalarStyle::Plain && matches!(text, "" | "~" | "null" | "Null" | "NULL");
    if is_nothing {
        return Err(SweepError::new(span.start.line(), "", "a value is missing"));
    }
    Ok(Node { line: span.start.line(), content: Content::Word(text.to_owned()) })
}

fn key_of(node: Node, entries: &[Entry]) -> Result<(String, usize), SweepError> {
    let Content::Word(key) = node.content else {
        return Err(SweepError::new(node.line, "", "a key is a list or a map; it must be a word"));
    };
    if let Some(first) = entries.iter().find(|entry| entry.key == key) {
        let why = format!("it is there twice, first in line {}", first.line);
        return Err(SweepError::new(node.line, &key, &why));
    }
    Ok((key, node.line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_its_line() {
        let Content::Map(entries) = read("a: 1\n# why\nb:\n  - x\n  - {c: 'd e'}\n").unwrap().content else { panic!() };
        assert_eq!(
            entries.iter().map(|entry| (entry.key.as_str(), entry.line)).collect::<Vec<_>>(),
            [("a", 1), ("b", 3)]
        );
        let Content::List(nodes) = &entries[1].node.content else { panic!() };
        assert_eq!((nodes[0].line, nodes[1].line), (4, 5));
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_line() {
        for (text, line, part) in [
            ("", 1, "empty"),
            ("a: 1\nb: [1, 2\n", 3, ""),
            ("a: 1\na: 2\n", 2, "first in line 1"),
            ("a:\nb: 1\n", 1, "missing"),
            ("a: &x 1\nb: *x\n", 2, "aliases"),
            ("a: 1\n---\nb: 2\n", 2, "second document"),
            ("[1]: 2\n", 1, "must be a word"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.why.contains(part), "{text:?}: {error}");
            assert!((line..=line + 1).contains(&error.line), "{text:?}: {error}");
        }
        let deep = format!("{}1{}", "[".repeat(50), "]".repeat(50));
        assert!(read(&deep).unwrap_err().why.contains("deep"));
    }
}
