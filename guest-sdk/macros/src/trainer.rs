//! `#[trainer]`: an `impl Trainer for …` as the exports of a component.

use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Error, ImplItem, Item, ItemImpl, parse_quote};

use crate::{summary, words};

/// The contract, as one file: `package` is said once.
fn contract() -> String {
    let files = [
        include_str!("../../../wit/types.wit"),
        include_str!("../../../wit/job.wit"),
        include_str!("../../../wit/tensor.wit"),
        include_str!("../../../wit/kernels.wit"),
        include_str!("../../../wit/model.wit"),
        include_str!("../../../wit/data.wit"),
        include_str!("../../../wit/trainer.wit"),
    ];
    let bodies = files.map(|file| file.split_once(';').map_or(file, |(_, body)| body));
    format!("package weft:train@0.1.0;{}", bodies.concat())
}

pub fn export(arguments: Tokens, item: Tokens) -> syn::Result<Tokens> {
    let options = words(arguments, &["convex", "makes_data", "eager", "silent_panics"])?;
    let has = |option: &str| options.iter().any(|word| word == option);
    let mut implementation = parse_implementation(item)?;
    let trainer = (*implementation.self_ty).clone();

    if !declares(&implementation, "SUMMARY") {
        let summary = summary(&implementation.attrs);
        implementation.items.push(parse_quote!(const SUMMARY: &'static str = #summary;));
    }
    if !declares(&implementation, "TRAITS") {
        let updates =
            implementation.items.iter().any(|item| matches!(item, ImplItem::Fn(item) if item.sig.ident == "update"));
        let (makes_data, convex, traceable) = (has("makes_data"), has("convex"), !has("eager"));
        implementation.items.push(parse_quote! {
            const TRAITS: ::weft_sdk::trainer::Traits = ::weft_sdk::trainer::Traits {
                updates: #updates,
                makes_data: #makes_data,
                convex: #convex,
                traceable: #traceable,
            };
        });
    }

    let contract = contract();
    let log_panics = if has("silent_panics") { quote!() } else { quote!(::weft_sdk::__private::log_panics();) };
    Ok(quote! {
        #implementation
        // Off wasm nobody exports it, but it is not dead code.
        const _: fn(::std::vec::Vec<::weft_sdk::hyper::Setting>) -> ::weft_sdk::Result<()> =
            |settings| ::weft_sdk::trainer::Instance::<#trainer>::new().init(settings);
        // Elsewhere these would be symbols that nobody calls, and that clash when two functions meet in one program.
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use ::weft_sdk::bindings::weft::train::{tensor, training};

            mod world {
                ::weft_sdk::__private::wit_bindgen::generate!({
                    inline: #contract,
                    world: "weft:train/trainer",
                    with: {
                        "weft:train/types@0.1.0/error": ::weft_sdk::Error,
                        "weft:train/job@0.1.0": ::weft_sdk::bindings::weft::train::job,
                        "weft:train/tensor@0.1.0": ::weft_sdk::bindings::weft::train::tensor,
                        "weft:train/kernels@0.1.0": ::weft_sdk::bindings::weft::train::kernels,
                        "weft:train/model@0.1.0": ::weft_sdk::bindings::weft::train::model,
                        "weft:train/data@0.1.0": ::weft_sdk::bindings::weft::train::data,
                        "weft:train/training@0.1.0": ::weft_sdk::bindings::weft::train::training,
                    },
                    runtime_path: "::weft_sdk::__private::wit_bindgen::rt",
                });
            }

            use ::weft_sdk::trainer::{Instance, Trainer, describe, export};

            ::std::thread_local! {
                static INSTANCE: Instance<#trainer> = const { Instance::new() };
            }

            fn call<R>(name: &str, call: impl FnOnce(&#trainer) -> ::weft_sdk::Result<R>) -> ::weft_sdk::Result<R> {
                #log_panics
                INSTANCE.with(|instance| instance.call(name, call))
            }

            struct Component;
            impl world::Guest for Component {
                fn describe() -> training::Description {
                    #log_panics
                    describe::<#trainer>()
                }
                fn init(settings: ::std::vec::Vec<training::Setting>) -> ::weft_sdk::Result<()> {
                    #log_panics
                    INSTANCE.with(|instance| instance.init(settings))
                }
                fn step() -> ::weft_sdk::Result<training::StepReport> {
                    call("step", |trainer| export::report(trainer.step()?))
                }
                fn update() -> ::weft_sdk::Result<()> {
                    call("update", Trainer::update)
                }
                fn evaluate() -> ::weft_sdk::Result<::std::vec::Vec<training::Metric>> {
                    call("evaluate", |trainer| export::metrics(trainer.evaluate()?))
                }
                fn infer() -> ::weft_sdk::Result<tensor::Tensor> {
                    call("infer", |trainer| export::tensor(trainer.infer()?))
                }
            }
            world::export!(Component with_types_in world);
        };
    })
}

fn parse_implementation(item: Tokens) -> syn::Result<ItemImpl> {
    let message = "`#[weft_sdk::trainer]` goes on an implementation: `impl Trainer for MyModel { … }`";
    let implementation = match syn::parse2::<Item>(item)? {
        Item::Impl(implementation) => implementation,
        other => return Err(Error::new(other.span(), message)),
    };
    let is_trainer = |path: &syn::Path| path.segments.last().is_some_and(|last| last.ident == "Trainer");
    match &implementation.trait_ {
        Some((_, path, _)) if is_trainer(path) => {}
        _ => return Err(Error::new(implementation.self_ty.span(), message)),
    }
    if !implementation.generics.params.is_empty() {
        return Err(Error::new(
            implementation.generics.span(),
            "a trainer is not generic: a component exports one model; let a hyper-parameter choose",
        ));
    }
    Ok(implementation)
}

fn declares(implementation: &ItemImpl, name: &str) -> bool {
    implementation.items.iter().any(|item| matches!(item, ImplItem::Const(item) if item.ident == name))
}
