//! The macros of `weft-sdk`.
//!
//! Only what the compiler could not say well is checked here; that an argument is a `Request` and an answer a
//! `Result<Response>` is left to the type checker, which points at the types themselves.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Expr, ExprLit, Ident, Lit, Meta, Token};

mod function;
mod hyper;
mod trainer;

/// Exports a plain function as a task; see `weft_sdk::function`.
#[proc_macro_attribute]
pub fn function(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let original = Tokens::from(item.clone());
    match function::export(arguments.into(), item.into()) {
        Ok(exported) => quote!(#original #exported),
        // With the item left in place, the rest of the crate does not fail for want of it.
        Err(error) => {
            let error = error.to_compile_error();
            quote!(#original #error)
        }
    }
    .into()
}

/// Exports an `impl Trainer for …`; see `weft_sdk::trainer`.
#[proc_macro_attribute]
pub fn trainer(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let original = Tokens::from(item.clone());
    match trainer::export(arguments.into(), item.into()) {
        Ok(exported) => exported,
        Err(error) => {
            let error = error.to_compile_error();
            quote!(#original #error)
        }
    }
    .into()
}

/// Makes a struct describe and parse itself; see `weft_sdk::hyper`.
#[proc_macro_derive(HyperParameters, attributes(hyper))]
pub fn hyper_parameters(item: TokenStream) -> TokenStream {
    hyper::derive(item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// The words in an attribute's parentheses, each of them one that there is.
fn words(arguments: Tokens, known: &[&str]) -> syn::Result<Vec<String>> {
    let words = syn::parse::Parser::parse2(Punctuated::<Ident, Token![,]>::parse_terminated, arguments)?;
    words
        .into_iter()
        .map(|word| {
            if known.iter().any(|known| word == known) {
                return Ok(word.to_string());
            }
            let known: Vec<String> = known.iter().map(|known| format!("`{known}`")).collect();
            let verb = if known.len() == 1 { "is" } else { "are" };
            Err(Error::new(word.span(), format!("no option `{word}`; there {verb} {}", known.join(", "))))
        })
        .collect()
}

/// The first paragraph of a doc comment, as one line.
fn summary(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    lines.skip_while(String::is_empty).take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
