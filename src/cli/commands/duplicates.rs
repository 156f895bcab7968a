//! `turnwise duplicates`: finds exact and near duplicates.

use std::time::Instant;

use crate::cli::{args::DuplicatesArgs, commands::vectors, prelude::*};
use turnwise_index::{
    dense::DenseReader,
    vectors::{Kind, VectorReader},
};
use turnwise_search::duplicates::{DuplicateOptions, Duplicates, Group, Member, duplicates};
use turnwise_store::Snapshot;

/// If more dialogues than this are newer than the vector graph, a warning says how to make the command faster.
const LONG_TAIL: usize = 10_000;

/// Result of `turnwise duplicates`, printed as text or JSON. `schema` names the JSON format.
#[derive(Serialize)]
struct DuplicatesReport {
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
    let kind = Kind::from(args.of);
    let reader = DenseReader::open(&root, &snapshot)?.ok_or_else(|| VectorReader::missing_error(&root))?;
    vectors::report_missing(reader.without(kind), kind, &root, context.printer);
    if reader.tail() > LONG_TAIL && !args.exact {
        let (new, root) = (counted(reader.tail() as u64, "dialogue"), root.display());
        context.printer.warn(format!(
            "the vectors of {new} are compared pair by pair; `turnwise index build -i {root}` makes that faster"
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
    let found = DuplicatesReport {
        schema: "turnwise/duplicates/1",
        of: kind.name(),
        threshold: args.threshold,
        duplicates,
        milliseconds: started.elapsed().as_secs_f64() * 1e3,
    };
    context.printer.result(&found, |out| found.write(out))
}

impl DuplicatesReport {
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
        let (groups, items) = (counted(d.groups_found, "group"), grouped(d.in_groups));
        let method = if d.exact { "all pairs compared" } else { "using the graph" };
        let method = format!("cosine of {threshold} or more, {method}, in {:.1} s", self.milliseconds / 1e3);
        writeln!(out, "{groups} with {items} of {among}{shown} {DIM}({method}){DIM:#}")
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
    let (size, about) = (counted(group.size, one), about.join(" · "));
    writeln!(out, "{DIM}{n:>2}.{DIM:#} {BOLD}{size}{BOLD:#}  {DIM}{about}{DIM:#}")?;
    group.members.iter().try_for_each(|member| write_member(member, out))?;
    let more = group.different.saturating_sub(group.members.len() as u64);
    if more > 0 {
        writeln!(out, "            {DIM}and {} more{DIM:#}", grouped(more))?;
    }
    writeln!(out)
}

fn write_member(member: &Member, out: &mut dyn Write) -> io::Result<()> {
    let title = member.title.as_deref().filter(|title| !title.is_empty());
    let title = title.map(|title| format!("{title} · ")).unwrap_or_default();
    // Only dialogues have a number of turns.
    let about = member.turns.map(|turns| format!("{DIM}{title}{}{DIM:#}  ", counted(turns as u64, "turn")));
    let about = about.unwrap_or_default();
    let (count, text) = (grouped(member.count), vectors::shortened(&member.text, 100));
    writeln!(out, "    {count:>6}× {DIM}{:.2}{DIM:#}  {about}{text}", member.similarity)?;
    let ids: Vec<String> = member.ids.iter().map(|id| format!("{NAME}{id}{NAME:#}")).collect();
    let more = match member.count.saturating_sub(ids.len() as u64) {
        0 => String::new(),
        more => format!(" {DIM}and {} more{DIM:#}", grouped(more)),
    };
    writeln!(out, "                   {}{more}", ids.join(" "))
}
