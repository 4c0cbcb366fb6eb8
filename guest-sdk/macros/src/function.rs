//! `#[function]`: a plain function as the export of a task.

use proc_macro2::TokenStream as Tokens;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, FnArg, Item, ItemFn, ReturnType};

use crate::words;

pub fn export(arguments: Tokens, item: Tokens) -> syn::Result<Tokens> {
    let silent_panics = !words(arguments, &["silent_panics"])?.is_empty();
    let function = parse_function(item)?;
    let signature = &function.sig;
    if let Some(keyword) = &signature.asyncness {
        return Err(Error::new(keyword.span(), "a task is not `async`: it has the instance to itself, and may wait"));
    }
    if let Some(keyword) = &signature.unsafety {
        return Err(Error::new(keyword.span(), "a task is not `unsafe`: the host calls it with any request"));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new(
            signature.generics.span(),
            "a task is not generic: its export is one function of fixed types",
        ));
    }
    let request = match signature.inputs.iter().collect::<Vec<_>>()[..] {
        [FnArg::Typed(argument)] => &argument.ty,
        [FnArg::Receiver(receiver), ..] => {
            return Err(Error::new(
                receiver.span(),
                "a task is a free function, not a method: each request meets a fresh instance, so there is no `self`",
            ));
        }
        _ => {
            return Err(Error::new(
                signature.paren_token.span.join(),
                format!("a task takes one argument, a `Request`; this has {}", signature.inputs.len()),
            ));
        }
    };
    let ReturnType::Type(_, answer) = &signature.output else {
        return Err(Error::new(signature.span(), "a task returns `Result<Response>`"));
    };

    let name = &signature.ident;
    // Spanned, so that a wrong type is reported where it was written.
    let request = quote_spanned!(request.span()=> let _: fn(::weft_sdk::Request) -> _ = #name;);
    let answer = quote_spanned!(answer.span()=> let _: fn(_) -> ::weft_sdk::Result<::weft_sdk::Response> = #name;);
    let log_panics = if silent_panics { quote!() } else { quote!(::weft_sdk::__private::log_panics();) };
    Ok(quote! {
        const _: () = {
            #request
            #answer
            // Elsewhere these would be symbols that nobody calls, and that clash when two functions meet in one program.
            #[cfg(target_arch = "wasm32")]
            const _: () = {
                struct Task;
                impl ::weft_sdk::bindings::task::Guest for Task {
                    fn handle(request: ::weft_sdk::Request) -> ::weft_sdk::Result<::weft_sdk::Response> {
                        #log_panics
                        #name(request)
                    }
                }
                ::weft_sdk::bindings::task::export_task!(Task);
            };
        };
    })
}

fn parse_function(item: Tokens) -> syn::Result<ItemFn> {
    match syn::parse2::<Item>(item)? {
        Item::Fn(function) => Ok(function),
        other => Err(Error::new(
            other.span(),
            "`#[weft_sdk::function]` goes on a function: `fn name(request: Request) -> Result<Response>`",
        )),
    }
}
