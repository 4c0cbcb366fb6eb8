//! Protocol buffers, as far as they are needed: messages are fields with numbers, one after another.

/// A message that is being written. Fields may come in any order and more than once.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn varint(&mut self, field: u32, value: u64) {
        self.key(field, 0);
        self.raw_varint(value);
    }

    pub fn double(&mut self, field: u32, value: f64) {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
    }

    pub fn float(&mut self, field: u32, value: f32) {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
    }

    pub fn text(&mut self, field: u32, text: &str) {
        self.delimited(field, text.as_bytes());
    }

    pub fn message(&mut self, field: u32, message: &Message) {
        self.delimited(field, &message.0);
    }

    fn delimited(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, 2);
        self.raw_varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn key(&mut self, field: u32, kind: u64) {
        self.raw_varint(u64::from(field) << 3 | kind);
    }

    /// Seven bits a byte, the lowest first; all but the last byte have the highest bit set.
    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the encoding's own documentation.
    #[test]
    fn fields_are_written_as_the_documentation_has_them() {
        let mut number = Message::default();
        number.varint(1, 150);
        assert_eq!(number.bytes(), [0x08, 0x96, 0x01]);
        let mut text = Message::default();
        text.text(2, "testing");
        assert_eq!(text.bytes(), b"\x12\x07testing");
        let mut outer = Message::default();
        outer.message(3, &number);
        assert_eq!(outer.bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut float = Message::default();
        float.float(2, 1.0);
        assert_eq!(float.bytes(), [0x15, 0, 0, 0x80, 0x3f]);
    }
}
