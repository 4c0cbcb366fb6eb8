//! What `wit-bindgen` makes of the world `task`: the raw imports, and the macro that exports a function.
//!
//! The types of the contract are not generated but ours ([`crate::Request`], [`crate::Response`], [`crate::Error`]),
//! so that they can have methods and no value is copied from one shape to another on its way in or out. They must keep
//! the fields and cases of `wit/types.wit`; the generated code does not compile otherwise.

wit_bindgen::generate!({
    path: "../wit",
    world: "task",
    with: {
        "weft:train/types@0.1.0/error": crate::Error,
        "weft:train/types@0.1.0/request": crate::Request,
        "weft:train/types@0.1.0/response": crate::Response,
    },
    runtime_path: "::weft_sdk::__private::wit_bindgen::rt",
    default_bindings_module: "::weft_sdk::bindings",
    export_macro_name: "export_task",
    pub_export_macro: true,
});
