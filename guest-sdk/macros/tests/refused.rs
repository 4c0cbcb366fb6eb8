//! What the macros refuse, and in which words.
//!
//! After a change of the wording: `TRYBUILD=overwrite cargo test -p weft-sdk-macros --test refused`.

#[test]
fn what_cannot_be_a_function_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
