//! What `wit-bindgen` makes of the contract: the raw imports, and the macro that exports a task.
//!
//! The imports are those of a world of our own that has every interface and nothing else, so that a component imports
//! those that its function calls, whatever its world could: types that a world names are imported in any case, and those
//! of `trainer` would bring tensors into every task. For the same reason its exports are generated where they are
//! needed, in the crate that has a `#[weft_sdk::trainer]`.
//!
//! Types that a function sees often are not generated but ours ([`crate::Request`], [`crate::Response`],
//! [`crate::Error`]), so that they can have methods and no value is copied from one shape to another on its way in or
//! out. They must keep the fields and cases of `wit/types.wit`; the generated code does not compile otherwise.

wit_bindgen::generate!({
    path: "../wit",
    inline: "
        package weft:sdk;

        world imports {
            import weft:train/job@0.1.0;
            import weft:train/tensor@0.1.0;
            import weft:train/kernels@0.1.0;
            import weft:train/model@0.1.0;
            import weft:train/data@0.1.0;
            import weft:train/training@0.1.0;
            import weft:train/params@0.1.0;
        }
    ",
    world: "weft:sdk/imports",
    with: {
        "weft:train/types@0.1.0/error": crate::Error,
    },
    generate_all,
    additional_derives: [PartialEq],
    additional_derives_ignore: ["csr", "step-report", "metric", "versioned", "peer-value"],
});

pub mod task {
    //! The world `task`.

    wit_bindgen::generate!({
        path: "../wit",
        world: "task",
        with: {
            "weft:train/types@0.1.0/error": crate::Error,
            "weft:train/types@0.1.0/request": crate::Request,
            "weft:train/types@0.1.0/response": crate::Response,
            "weft:train/job@0.1.0": crate::bindings::weft::train::job,
            "weft:train/tensor@0.1.0": crate::bindings::weft::train::tensor,
            "weft:train/kernels@0.1.0": crate::bindings::weft::train::kernels,
            "weft:train/params@0.1.0": crate::bindings::weft::train::params,
        },
        runtime_path: "::weft_sdk::__private::wit_bindgen::rt",
        default_bindings_module: "::weft_sdk::bindings::task",
        export_macro_name: "export_task",
        pub_export_macro: true,
    });
}
