//! Files that other libraries wrote, and files that they must read, one binary: nothing here starts a node.

mod data {
    mod models;
}
