//! The attribute macros of `weft-sdk`.
//!
//! Only what the compiler could not say well is checked here; that the argument is a `Request` and the answer a
//! `Result<Response>` is left to the type checker, which points at the types themselves.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, FnArg, Ident, Item, ItemFn, ReturnType, Token};

/// Exports a plain function as a task; see `weft_sdk::function`.
#[proc_macro_attribute]
pub fn function(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let original = Tokens::from(item.clone());
    let exported = Options::parse(arguments)
        .and_then(|options| Ok((options, parse_function(item)?)))
        .and_then(|(options, function)| export(&options, &function));
    match exported {
        Ok(exported) => quote!(#original #exported),
        // With the function left in place, the rest of the crate does not fail for want of it.
        Err(error) => {
            let error = error.to_compile_error();
            quote!(#original #error)
        }
    }
    .into()
}

/// What stands in the attribute's parentheses.
#[derive(Default)]
struct Options {
    silent_panics: bool,
}

impl Options {
    fn parse(arguments: TokenStream) -> syn::Result<Self> {
        let mut options = Self::default();
        let words = syn::parse::Parser::parse(Punctuated::<Ident, Token![,]>::parse_terminated, arguments)?;
        for word in words {
            if word == "silent_panics" {
                options.silent_panics = true;
            } else {
                return Err(Error::new(word.span(), format!("no option `{word}`; there is `silent_panics`")));
            }
        }
        Ok(options)
    }
}

fn parse_function(item: TokenStream) -> syn::Result<ItemFn> {
    match syn::parse::<Item>(item)? {
        Item::Fn(function) => Ok(function),
        other => Err(Error::new(
            other.span(),
            "`#[weft_sdk::function]` goes on a function: `fn name(request: Request) -> Result<Response>`",
        )),
    }
}

fn export(options: &Options, function: &ItemFn) -> syn::Result<Tokens> {
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
    let log_panics = if options.silent_panics { quote!() } else { quote!(::weft_sdk::__private::log_panics();) };
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
