//! `#[derive(HyperParameters)]`: a struct that describes its fields to a tuner and parses a caller's settings.

use proc_macro2::TokenStream as Tokens;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Expr, ExprArray, ExprLit, Field, Fields, Ident, Lit, LitStr, Type};

use crate::summary;

pub fn derive(item: Tokens) -> syn::Result<Tokens> {
    let item: DeriveInput = syn::parse2(item)?;
    let message = "hyper-parameters are a struct with named fields";
    let fields = match &item.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => &fields.named,
            _ => return Err(Error::new(item.ident.span(), message)),
        },
        _ => return Err(Error::new(item.ident.span(), message)),
    };
    if !item.generics.params.is_empty() {
        return Err(Error::new(item.generics.span(), "hyper-parameters are not generic: a caller cannot choose types"));
    }
    let parameters = fields.iter().map(Parameter::parse).collect::<syn::Result<Vec<_>>>()?;
    let descriptions = parameters.iter().map(Parameter::description);
    let bounds = parameters.iter().map(Parameter::check_bounds);
    let names = parameters.iter().map(|parameter| &parameter.name);
    let idents: Vec<&Ident> = parameters.iter().map(|parameter| &parameter.ident).collect();
    let defaults = parameters.iter().map(Parameter::default_value);
    let name = &item.ident;
    Ok(quote! {
        impl ::weft_sdk::hyper::HyperParameters for #name {
            fn describe() -> ::std::vec::Vec<::weft_sdk::hyper::HyperParameter> {
                ::std::vec![#(#descriptions),*]
            }

            fn parse(settings: ::std::vec::Vec<::weft_sdk::hyper::Setting>) -> ::weft_sdk::Result<Self> {
                let declared = <Self as ::weft_sdk::hyper::HyperParameters>::describe();
                let mut settings = ::weft_sdk::hyper::Settings::new(settings, declared)?;
                ::std::result::Result::Ok(Self { #(#idents: settings.take(#names)?),* })
            }
        }

        impl ::std::default::Default for #name {
            fn default() -> Self {
                Self { #(#idents: #defaults),* }
            }
        }

        #(#bounds)*
    })
}

/// A field and what its attribute says.
struct Parameter {
    ident: Ident,
    name: String,
    summary: String,
    ty: Type,
    default: Expr,
    low: Option<Expr>,
    high: Option<Expr>,
    choices: Vec<LitStr>,
    logarithmic: bool,
}

impl Parameter {
    fn parse(field: &Field) -> syn::Result<Self> {
        let ident = field.ident.clone().ok_or_else(|| Error::new(field.span(), "a hyper-parameter has a name"))?;
        let name = ident.to_string().replace('_', "-");
        let (mut default, mut low, mut high, mut choices, mut logarithmic) = (None, None, None, Vec::new(), false);
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("hyper")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("default") {
                    default = Some(meta.value()?.parse::<Expr>()?);
                } else if meta.path.is_ident("low") {
                    low = Some(meta.value()?.parse::<Expr>()?);
                } else if meta.path.is_ident("high") {
                    high = Some(meta.value()?.parse::<Expr>()?);
                } else if meta.path.is_ident("choices") {
                    choices = parse_choices(&meta.value()?.parse::<Expr>()?)?;
                } else if meta.path.is_ident("log") {
                    logarithmic = true;
                } else {
                    return Err(meta.error("a hyper-parameter has `default`, `low`, `high`, `choices` and `log`"));
                }
                Ok(())
            })?;
        }
        let Some(default) = default else {
            return Err(Error::new(
                ident.span(),
                format!("hyper-parameter `{name}` has no default; add `#[hyper(default = …)]`"),
            ));
        };
        if let Some(text) = text(&default)
            && !choices.is_empty()
            && !choices.iter().any(|choice| choice.value() == text.value())
        {
            return Err(Error::new(text.span(), format!("the default of `{name}` is not one of its choices")));
        }
        let summary = summary(&field.attrs);
        Ok(Self { ident, name, summary, ty: field.ty.clone(), default, low, high, choices, logarithmic })
    }

    fn default_value(&self) -> Tokens {
        let default = &self.default;
        match text(default) {
            Some(_) => quote!(::std::string::String::from(#default)),
            None => quote!(#default),
        }
    }

    fn description(&self) -> Tokens {
        let Self { name, summary, ty, choices, logarithmic, .. } = self;
        // Spanned, so that a type which cannot be a hyper-parameter is reported where it was written.
        let value =
            |value: Tokens| quote_spanned!(ty.span()=> <#ty as ::weft_sdk::hyper::HyperValue>::into_value(#value));
        let bound = |bound: &Option<Expr>| match bound {
            Some(bound) => {
                let bound = value(quote!(#bound));
                quote!(::std::option::Option::Some(#bound))
            }
            None => quote!(::std::option::Option::None),
        };
        let (default, low, high) = (value(self.default_value()), bound(&self.low), bound(&self.high));
        quote! {
            ::weft_sdk::hyper::HyperParameter {
                name: ::std::string::String::from(#name),
                summary: ::std::string::String::from(#summary),
                default: #default,
                low: #low,
                high: #high,
                choices: ::std::vec![#(::std::string::String::from(#choices)),*],
                logarithmic: #logarithmic,
            }
        }
    }

    /// A default out of bounds does not compile.
    fn check_bounds(&self) -> Tokens {
        let Self { name, ty, default, low, high, .. } = self;
        let check = |holds: Tokens, span, which: &str| {
            let message = format!("the default of hyper-parameter `{name}` is {which}");
            quote_spanned!(span=> const _: () = ::std::assert!(#holds, #message);)
        };
        let low = low.as_ref().map(|low| {
            check(
                quote!({ let low: #ty = #low; let default: #ty = #default; low <= default }),
                low.span(),
                "below its lowest",
            )
        });
        let high = high.as_ref().map(|high| {
            check(
                quote!({ let high: #ty = #high; let default: #ty = #default; default <= high }),
                high.span(),
                "above its highest",
            )
        });
        quote!(#low #high)
    }
}

fn text(value: &Expr) -> Option<&LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text),
        _ => None,
    }
}

fn parse_choices(value: &Expr) -> syn::Result<Vec<LitStr>> {
    let message = "`choices` is a list of texts: `choices = [\"small\", \"large\"]`";
    match value {
        Expr::Array(ExprArray { elems, .. }) => {
            elems.iter().map(|choice| text(choice).cloned().ok_or_else(|| Error::new(choice.span(), message))).collect()
        }
        other => Err(Error::new(other.span(), message)),
    }
}
