//! Waiting in WASI, for guests that are to be stopped there.

mod wasi {
    wit_bindgen::generate!({
        inline: "
            package weft:hostile;

            world sleeper {
                import wasi:io/poll@0.2.0;
                import wasi:clocks/monotonic-clock@0.2.0;
            }

            package wasi:io@0.2.0 {
                interface poll {
                    resource pollable {
                        block: func();
                    }
                }
            }

            package wasi:clocks@0.2.0 {
                interface monotonic-clock {
                    use wasi:io/poll@0.2.0.{pollable};
                    subscribe-duration: func(when: u64) -> pollable;
                }
            }
        ",
        generate_all,
    });
}

/// As long as one can ask for: 584 years.
pub fn for_ever() {
    wasi::wasi::clocks::monotonic_clock::subscribe_duration(u64::MAX).block();
}
