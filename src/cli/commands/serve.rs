//! `turnwise serve`: runs the HTTP server or, with `--mcp`, an MCP server on standard input and output.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use crate::cli::{Owned, args::ServeArgs, commands::search, encoders, env_vars::KEYS, indexes, prelude::*};
use turnwise_encoder::{DeviceChoice, Encoder, selector::Selector};
use turnwise_index::{embedded::Folder, location::Location, vectors::Recipe};
use turnwise_serve::{App, Keys, Limits, Options, ServerHooks, Tls, bind};

pub(super) fn run(args: &ServeArgs, context: &Context<'_>) -> Result<()> {
    let options = options(args)?;
    options.check()?;
    let indexes = served(args, context)?;
    let selector = args
        .selector
        .as_deref()
        .map(|name| encoders::selector(context, name, DeviceChoice::default(), None).map(Arc::new));
    let selector = selector.transpose()?;
    if let Some(selector) = &selector {
        context.printer.say(format!("selector {} ({})", selector.name(), selector.describe()));
    }
    let (owned, results) = (Owned::of(context), args.results.clone());
    let hooks: Arc<dyn ServerHooks> = Arc::new(Hooks { owned, results, selector });
    let app = App::open(indexes, &hooks, &options)?;
    let printer = context.printer;
    for (name, opened) in app.opened() {
        let totals = opened.searcher.engine().totals();
        let how = match (&opened.encoder, &opened.without_encoder) {
            (Some(e), _) => format!("lexical and dense search ({}, {})", e.name(), e.describe()),
            (None, Some(_)) => "lexical search only".to_owned(),
            (None, None) => "lexical search".to_owned(),
        };
        printer.say(format!("{name}: {}, {how}", self::totals(totals.dialogues, totals.turns)));
        if let Some(why) = &opened.without_encoder {
            printer.warn(format!("dense search is not available for {name}: {why}"));
            why.hint().into_iter().for_each(|hint| printer.hint(hint));
        }
    }
    if args.mcp {
        return app.mcp(std::io::stdin().lock(), std::io::stdout().lock());
    }
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let keys = options.keys.len();
    let server = bind(app, options)?;
    let who = match keys {
        0 => "no API key required".to_owned(),
        n => counted(n as u64, "key"),
    };
    printer.say(format!("{NAME}{scheme}://{}{NAME:#}  ({who}; Ctrl-C to stop)", server.address));
    signals::stop();
    server.run(|| {
        let stopped = signals::stopped();
        if stopped {
            printer.say("stopping: waiting for running requests to finish");
        }
        stopped
    })
}

fn options(args: &ServeArgs) -> Result<Options> {
    let mut keys = match &args.keys {
        Some(file) => Keys::read(file)?,
        None => Keys::none(),
    };
    match std::env::var(KEYS) {
        Ok(text) => keys = keys.and(Keys::from_env(&text)?)?,
        Err(std::env::VarError::NotPresent) => {}
        Err(_) => return Err(Error::input(format!("{KEYS} is not UTF-8"))),
    }
    let tls = args.tls_cert.clone().zip(args.tls_key.clone());
    if args.max_concurrent == 0 {
        return Err(Error::input("--max-concurrent must be at least 1"));
    }
    Ok(Options {
        listen: SocketAddr::new(args.host, args.port),
        keys,
        allow_without_keys: args.without_keys,
        tls: tls.map(|(certificate, key)| Tls { certificate, key }),
        limits: Limits {
            max_concurrent: args.max_concurrent,
            max_queue: args.max_queue,
            max_body: args.max_body_mib << 20,
            timeout: Duration::from_secs(args.timeout.max(1)),
            ..Limits::default()
        },
    })
}

/// Returns the names and locations of all indexes to serve. The index given by `--engine` or `-i` is first; the indexes
/// given by `--also` or `--all` follow.
fn served(args: &ServeArgs, context: &Context<'_>) -> Result<Vec<(String, Box<dyn Location>)>> {
    let mut all: Vec<Box<dyn Location>> = Vec::new();
    let mut roots = Vec::new();
    if context.settings.engine.is_some() {
        all.push(context.location()?);
    } else if context.settings.index.is_some() || !args.all {
        roots.push(context.existing_index()?);
    }
    for name in &args.also {
        roots.push(context.existing(name)?);
    }
    if args.all {
        let folder = &context.settings.indexes_dir;
        for name in indexes::list(folder) {
            let root = folder.join(name);
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
    }
    all.extend(roots.into_iter().map(|root| Box::new(Folder::new(root)) as Box<dyn Location>));
    Ok(all.into_iter().map(|location| (location.name(), location)).collect())
}

/// Callbacks of the server. They open models, update indexes and render the benchmark report in the same way as the
/// commands.
struct Hooks {
    owned: Owned,
    results: PathBuf,
    selector: Option<Arc<Selector>>,
}

impl ServerHooks for Hooks {
    fn encoder(&self, recipe: &Recipe, place: &str) -> Result<Arc<dyn Encoder>> {
        search::encoder_of(recipe, place, &self.owned.context())
    }

    fn selector(&self) -> Option<Arc<Selector>> {
        self.selector.clone()
    }

    fn derive(&self, index: &Path) {
        let context = self.owned.context();
        if let Err(e) = super::ingest::derive_all(index, &context) {
            context
                .printer
                .warn(format!("{}: the new dialogues cannot be searched yet: {e}", index.display()));
        }
    }

    fn report(&self) -> Result<Option<String>> {
        super::bench::report_page(&self.results)
    }
}
