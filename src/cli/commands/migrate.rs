//! `turnwise migrate`: copies an index to Milvus, or back.

use crate::cli::{Context, args::MigrateArgs};
use turnwise_core::error::Result;

#[cfg(feature = "milvus")]
pub(super) fn run(args: &MigrateArgs, context: &Context<'_>) -> Result<()> {
    with_milvus::run(args, context)
}

#[cfg(not(feature = "milvus"))]
pub(super) fn run(_: &MigrateArgs, context: &Context<'_>) -> Result<()> {
    match context.milvus_target()? {}
}

#[cfg(feature = "milvus")]
mod with_milvus {
    use std::io::{self, Write};

    use crate::cli::{
        Context,
        args::MigrateArgs,
        printer::{BOLD, DIM, counted, grouped},
        watching::TaskProgress,
    };
    use turnwise_core::error::{Error, Result};
    use turnwise_milvus::Target;
    use turnwise_shards::migrate::{Migration, MigrationSettings, from_milvus, to_milvus};

    pub(super) fn run(args: &MigrateArgs, context: &Context<'_>) -> Result<()> {
        let settings = MigrationSettings {
            replace: args.replace,
            samples: args.samples,
            command_line: context.command_line,
        };
        let progress = TaskProgress::new(context.printer);
        let (migration, option) = match (&context.settings.engine, Target::is_address(&args.to)) {
            (None, true) => {
                let (root, target) = (context.existing_index()?, context.milvus_target_at(&args.to)?);
                (to_milvus(&root, &target, &settings, &progress)?, "--engine")
            }
            (Some(_), false) if args.replace => {
                return Err(Error::input("--replace works only when the target is Milvus")
                    .with_hint("use a name that does not exist yet"));
            }
            (Some(_), false) => (
                from_milvus(&context.milvus_target()?, &context.folder_of(&args.to), &settings, &progress)?,
                "-i",
            ),
            // A malformed address gets the error of the address parser.
            (None, false) if args.to.contains(":/") => return args.to.parse::<Target>().map(drop),
            (None, false) => {
                return Err(Error::input(format!("both {} and the index are on this machine", args.to))
                    .with_hint("`turnwise backup` and `turnwise restore` copy an index"));
            }
            (Some(from), true) => {
                return Err(Error::input(format!("cannot migrate directly from {from} to {}", args.to))
                    .with_hint("migrate to an index first, then from there to the other address"));
            }
        };
        drop(progress);
        context.printer.result(&migration, |out| write(&migration, out))?;
        context.printer.suggest(format!("`turnwise search {option} {} \"…\"` searches it", migration.to));
        Ok(())
    }

    fn write(migration: &Migration, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{BOLD}{}{BOLD:#} with {} and {} are now in {} {DIM}({:.1} s){DIM:#}",
            counted(migration.dialogues, "dialogue"),
            counted(migration.turns, "turn"),
            counted(migration.vectors, "vector"),
            migration.to,
            migration.seconds
        )?;
        if migration.already_there > 0 {
            writeln!(out, "{:>9}  already copied", grouped(migration.already_there))?;
        }
        writeln!(out, "  checked  all records and vectors read back, checksum {}", migration.checksum)?;
        let percent = |part: Option<f64>, how: &str| {
            part.map(|part| format!("{:.0}% of the {how} hits are the same", part * 100.0))
        };
        let alike: Vec<String> =
            [percent(migration.sampled.dense, "dense"), percent(migration.sampled.lexical, "lexical")]
                .into_iter()
                .flatten()
                .collect();
        if alike.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "           {} in both places: {}",
            counted(migration.sampled.searches as u64, "search").replace("searchs", "searches"),
            alike.join(", ")
        )
    }
}
