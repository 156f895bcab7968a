//! `turnwise duplicates`: finds exact and near duplicates.

use std::time::Instant;

use crate::cli::{
    args::{DuplicatesArgs, UnitArg},
    commands::vectors,
    prelude::*,
};
use turnwise_index::{
    dense::DenseReader,
    vectors::{Kind, VectorReader},
};
use turnwise_search::duplicates::{DuplicateOptions, Duplicates, Group, Member, duplicates};
use turnwise_store::Snapshot;

/// If more dialogues than this are newer than the graph, a warning about slow comparison is printed.
const LONG_TAIL: usize = 10_000;

/// Result of the command. `schema` names the JSON shape.
#[derive(Serialize)]
struct Found {
    schema: &'static str,
    of: &'static str,
    threshold: f32,
    #[serde(flatten)]
    duplicates: Duplicates,
    milliseconds: f64,
}

pub(super) fn run(args: &DuplicatesArgs, context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    let snapshot = Snapshot::open(&root)?;
    let kind = match args.of {
        UnitArg::Utterances => Kind::Utterances,
        UnitArg::Dialogues => Kind::Dialogues,
    };
    let reader = DenseReader::open(&root, &snapshot)?.ok_or_else(|| VectorReader::missing_error(&root))?;
    vectors::report_missing(reader.without(kind), kind, &root, context.printer);
    if reader.tail() > LONG_TAIL && !args.exact {
        context.printer.warn(format!(
            "the vectors of {} are compared pair by pair; `turnwise index build -i {}` makes that faster",
            counted(reader.tail() as u64, "dialogue"),
            root.display()
        ));
    }
    let wanted = DuplicateOptions {
        kind,
        threshold: args.threshold,
        limit: args.limit,
        shown: args.members,
        exact: args.exact,
        filter: args.filter.as_ref(),
    };
    let started = Instant::now();
    let duplicates = duplicates(&snapshot, &reader, &wanted, &signals::stopped)?;
    let found = Found {
        schema: "turnwise/duplicates/1",
        of: kind.name(),
        threshold: args.threshold,
        duplicates,
        milliseconds: started.elapsed().as_secs_f64() * 1e3,
    };
    context.printer.result(&found, |out| found.write(out))
}

impl Found {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let d = &self.duplicates;
        let one = self.of.trim_end_matches('s');
        for (n, group) in d.groups.iter().enumerate() {
            write_group(n + 1, group, one, out)?;
        }
        let (among, threshold) = (counted(d.looked_at, one), self.threshold);
        if d.groups_found == 0 {
            return writeln!(out, "no pairs among {among} have a cosine of {threshold} or more");
        }
        let shown = match d.groups.len() as u64 {
            shown if shown < d.groups_found => format!(", {} of them shown", grouped(shown)),
            _ => String::new(),
        };
        writeln!(
            out,
            "{} with {} of {among}{shown} {DIM}(cosine of {threshold} or more{}, in {:.1} s){DIM:#}",
            counted(d.groups_found, "group"),
            grouped(d.in_groups),
            if d.exact { ", all pairs compared" } else { ", using the graph" },
            self.milliseconds / 1e3
        )
    }
}

fn write_group(n: usize, group: &Group, one: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut about = Vec::new();
    if one != "dialogue" {
        about.push(format!("in {}", counted(group.dialogues, "dialogue")));
    }
    if group.different > 1 {
        about.push(format!("{} different", grouped(group.different)));
    }
    writeln!(
        out,
        "{DIM}{n:>2}.{DIM:#} {BOLD}{}{BOLD:#}  {DIM}{}{DIM:#}",
        counted(group.size, one),
        about.join(" · ")
    )?;
    for member in &group.members {
        write_member(member, out)?;
    }
    let more = group.different - (group.members.len() as u64).min(group.different);
    if more > 0 {
        writeln!(out, "            {DIM}and {} more{DIM:#}", grouped(more))?;
    }
    writeln!(out)
}

fn write_member(member: &Member, out: &mut dyn Write) -> io::Result<()> {
    let turns = member.turns.map(|turns| counted(turns as u64, "turn"));
    let about: Vec<&str> =
        [member.title.as_deref(), turns.as_deref()].into_iter().flatten().filter(|s| !s.is_empty()).collect();
    // An utterance is shown whole. For a dialogue, the number of turns is shown next to its first text.
    let about = match member.turns {
        Some(_) => format!("{DIM}{}{DIM:#}  ", about.join(" · ")),
        None => String::new(),
    };
    let more = member.count - (member.ids.len() as u64).min(member.count);
    let ids = member.ids.iter().map(|id| format!("{NAME}{id}{NAME:#}")).collect::<Vec<_>>().join(" ");
    let more = if more > 0 { format!(" {DIM}and {} more{DIM:#}", grouped(more)) } else { String::new() };
    writeln!(
        out,
        "    {:>6}× {DIM}{:.2}{DIM:#}  {about}{}",
        grouped(member.count),
        member.similarity,
        vectors::shortened(&member.text)
    )?;
    writeln!(out, "                   {ids}{more}")
}
