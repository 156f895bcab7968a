//! `turnwise migrate`: copies an index to Milvus, or back.

use crate::cli::{args::MigrateArgs, prelude::*, progress::TaskProgress};
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
    let Migration { to, checksum, sampled, seconds, .. } = migration;
    let totals = totals(migration.dialogues, migration.turns);
    let vectors = counted(migration.vectors, "vector");
    writeln!(out, "{BOLD}{totals}{BOLD:#} and {vectors} are now in {to} {DIM}({seconds:.1} s){DIM:#}")?;
    if migration.already_there > 0 {
        writeln!(out, "{:>9}  already copied", grouped(migration.already_there))?;
    }
    writeln!(out, "  checked  all records and vectors read back, checksum {checksum}")?;
    let same = |(part, mode): (Option<f64>, &str)| {
        part.map(|part| format!("{:.0}% of the {mode} hits are the same", part * 100.0))
    };
    let same: Vec<String> =
        [(sampled.dense, "dense"), (sampled.lexical, "lexical")].into_iter().filter_map(same).collect();
    if same.is_empty() {
        return Ok(());
    }
    let searches = counted(sampled.searches as u64, "search");
    writeln!(out, "           {searches} in both places: {}", same.join(", "))
}
