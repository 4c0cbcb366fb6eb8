//! What `#[weft_sdk::function]` refuses, and in which words.
//!
//! After a change of the wording: `TRYBUILD=overwrite cargo test -p weft-sdk --test refused`.

#[test]
fn functions_that_cannot_be_tasks_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
