//! What `wit-bindgen` makes of the worlds: the raw imports, and the macros that export a function.
//!
//! The imports are generated once, for the world `trainer`, which has them all; the world `task` shares them. A component
//! imports those that its function calls, whatever its world could.
//!
//! Types that a function sees often are not generated but ours ([`crate::Request`], [`crate::Response`],
//! [`crate::Error`]), so that they can have methods and no value is copied from one shape to another on its way in or
//! out. They must keep the fields and cases of `wit/types.wit`; the generated code does not compile otherwise.

wit_bindgen::generate!({
    path: "../wit",
    world: "trainer",
    with: {
        "weft:train/types@0.1.0/error": crate::Error,
    },
    additional_derives: [PartialEq],
    additional_derives_ignore: ["csr", "step-report", "metric"],
    runtime_path: "::weft_sdk::__private::wit_bindgen::rt",
    default_bindings_module: "::weft_sdk::bindings",
    export_macro_name: "export_trainer",
    pub_export_macro: true,
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
        },
        runtime_path: "::weft_sdk::__private::wit_bindgen::rt",
        default_bindings_module: "::weft_sdk::bindings::task",
        export_macro_name: "export_task",
        pub_export_macro: true,
    });
}
