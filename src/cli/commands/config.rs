//! `turnwise config`: shows the settings and creates a settings file.

use std::{collections::BTreeMap, fs::OpenOptions};

use crate::cli::{
    prelude::*,
    settings::{DEFINITIONS, LOCAL_FILE, Origin, template},
};

#[derive(Serialize)]
struct Shown<'a> {
    value: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<&'a Origin>,
}

pub(super) fn show(origin: bool, context: &Context<'_>) -> Result<()> {
    let settings = &context.settings;
    let shown: BTreeMap<&str, Shown<'_>> = settings
        .origins
        .iter()
        .map(|(key, (value, from))| (*key, Shown { value, origin: origin.then_some(from) }))
        .collect();
    context.printer.result(&shown, |out| {
        for definition in &DEFINITIONS {
            let Some((value, from)) = settings.origins.get(definition.key) else { continue };
            let key = definition.key;
            match origin {
                true => writeln!(out, "{BOLD}{key}{BOLD:#} = {value:?}  {DIM}{from}{DIM:#}")?,
                false => writeln!(out, "{BOLD}{key}{BOLD:#} = {value:?}  {DIM}{}{DIM:#}", definition.about)?,
            }
        }
        if origin {
            for (path, found) in &settings.files {
                let state = if *found { "read" } else { "not found" };
                writeln!(out, "{DIM}{}: {state}{DIM:#}", path.display())?;
            }
        }
        Ok(())
    })
}

pub(super) fn init(context: &Context<'_>) -> Result<()> {
    let path = Path::new(LOCAL_FILE);
    let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Error::input(format!("{LOCAL_FILE} exists already"))
                .with_hint("`turnwise config show --origin` shows its settings"));
        }
        other => other.at("create", path)?,
    };
    file.write_all(template().as_bytes()).at("write", path)?;
    context.printer.say(format!("created {LOCAL_FILE}; every setting is in it, explained and commented out"));
    Ok(())
}
