use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("compile-child") {
        let mut number = || args.next().and_then(|text| text.parse().ok()).unwrap_or(0);
        return weft::sandbox::run_compile_child(number(), number(), number());
    }
    let options = weft::config::Options::default();
    let mut settings = weft::config::Settings::resolve(options, Default::default()).unwrap();
    settings.data_dir = std::env::var("WEFT_DATA_DIR").unwrap().into();
    weft::server::serve(settings, true).unwrap();
    ExitCode::SUCCESS
}
