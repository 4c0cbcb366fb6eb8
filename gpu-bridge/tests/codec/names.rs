//! Codecs as text.

use weft_gpu::Codec;

use crate::CODECS;

#[test]
fn a_codec_is_what_it_is_written_as() {
    for text in CODECS {
        assert_eq!(text.parse::<Codec>().unwrap().to_string(), text);
    }
    assert_eq!("qsgd:4,512".parse(), Ok(Codec::Qsgd { bits: 4, bucket: 512 }));
    assert_eq!("qsgd:4,512".parse::<Codec>().unwrap().to_string(), "qsgd:4");
}

#[test]
fn what_is_wrong_is_said_and_what_would_be_right() {
    for (text, says) in [
        ("", "`` is no codec; there are `plain`, `f16`, `qsgd:4`"),
        ("Plain", "`Plain` is no codec"),
        ("plain:1", "`plain` takes nothing after its name, not `1`"),
        ("qsgd", "`qsgd` needs a number, as in `qsgd:4`"),
        ("qsgd:four", "`qsgd`: bits `four` must be a number"),
        ("qsgd:1", "qsgd: 1 bits: it takes from 2 to 8"),
        ("qsgd:4,", "`qsgd`: bucket `` must be a number"),
        ("qsgd:4,100", "qsgd: buckets of 100: it takes a multiple of 32, at most 1048576"),
        ("top-k", "`top-k` needs a number, as in `top-k:0.01`"),
        ("top-k:0", "`top-k`: fraction `0` must be above 0 and at most 1"),
        ("top-k:1.5", "fraction `1.5` must be above 0 and at most 1"),
        ("top-k:NaN", "fraction `NaN` must be above 0 and at most 1"),
        ("significance:-1", "`significance`: threshold `-1` must be finite and above 0"),
        ("significance:inf", "threshold `inf` must be finite and above 0"),
    ] {
        let error = text.parse::<Codec>().unwrap_err().to_string();
        assert!(error.contains(says), "{text:?}: {error:?} does not say {says:?}");
    }
}
