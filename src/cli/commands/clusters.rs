//! `turnwise clusters`: groups the dialogues of an index by topic.

use std::time::Instant;

use crate::cli::{args::ClustersArgs, commands::vectors, prelude::*};
use turnwise_index::{
    lexical::Lexical,
    vectors::{Kind, VectorReader},
};
use turnwise_search::clusters::{Central, Cluster, ClusterOptions, Clusters, clusters};
use turnwise_store::Snapshot;
use turnwise_text::Analyzer;

/// Result of `turnwise clusters`, printed as text or JSON. `schema` names the JSON format.
#[derive(Serialize)]
struct ClustersReport {
    schema: &'static str,
    seed: u64,
    analyzer: String,
    #[serde(flatten)]
    clusters: Clusters,
    milliseconds: f64,
}

pub(super) fn run(args: &ClustersArgs, context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    let snapshot = Snapshot::open(&root)?;
    let reader = VectorReader::open(&root)?.ok_or_else(|| VectorReader::missing_error(&root))?;
    // Clustering works without a lexical index, so an unreadable lexical index is ignored.
    let analyzer: Option<Analyzer> =
        Lexical::analyzer_name(&root).ok().flatten().and_then(|name| name.parse().ok());
    let wanted = ClusterOptions {
        k: args.k.map(|k| k as usize),
        seed: context.settings.seed,
        terms: args.top_terms,
        central: args.top_dialogues,
        drawn: args.map_points,
        // Users read the terms, and a stem is often not a word.
        analyzer: analyzer.unwrap_or_default().without_stemming(),
        filter: args.filter.as_ref(),
    };
    let started = Instant::now();
    let clusters = clusters(&snapshot, &reader, &wanted, &signals::stopped)?;
    vectors::report_missing(clusters.without, Kind::Dialogues, &root, context.printer);
    let map = ClustersReport {
        schema: "turnwise/clusters/1",
        seed: wanted.seed,
        analyzer: wanted.analyzer.to_string(),
        clusters,
        milliseconds: started.elapsed().as_secs_f64() * 1e3,
    };
    context.printer.result(&map, |out| map.write(out))
}

impl ClustersReport {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let map = &self.clusters;
        for (n, cluster) in map.clusters.iter().enumerate() {
            write_cluster(n + 1, cluster, out)?;
        }
        let dialogues = counted(map.dialogues, "dialogue");
        if map.clusters.is_empty() {
            return writeln!(out, "no dialogues to cluster");
        }
        let purity = map.purity.as_ref().map_or_else(String::new, |p| {
            let (domains, dialogues) = (counted(p.domains, "domain"), counted(p.dialogues, "dialogue"));
            format!(", purity {:.1}% over {dialogues} of one domain ({domains})", p.purity * 100.0)
        });
        let chosen = match map.tried.as_slice() {
            [] => "",
            _ => "; the number of clusters was chosen automatically, -k N sets it",
        };
        let clusters = counted(map.clusters.len() as u64, "cluster");
        let mean = format!("mean cosine with the center {:.2}", map.cohesion);
        let seconds = self.milliseconds / 1e3;
        writeln!(out, "{clusters} of {dialogues}{purity} {DIM}({mean}{chosen}, in {seconds:.1} s){DIM:#}")
    }
}

fn write_cluster(n: usize, cluster: &Cluster, out: &mut dyn Write) -> io::Result<()> {
    let domains = cluster.domains.iter().map(|d| format!("{} {:.0}%", d.name, d.share * 100.0));
    let domains = domains.collect::<Vec<_>>().join(", ");
    let (size, dot) = (counted(cluster.size, "dialogue"), if domains.is_empty() { "" } else { " · " });
    let shape = format!("{:.1}% · {:.2} to the center", cluster.share * 100.0, cluster.cohesion);
    writeln!(out, "{DIM}{n:>2}.{DIM:#} {BOLD}{size}{BOLD:#}  {DIM}{shape}{dot}{domains}{DIM:#}")?;
    let terms: Vec<&str> = cluster.terms.iter().map(|term| term.term.as_str()).collect();
    if !terms.is_empty() {
        writeln!(out, "    {}", terms.join(", "))?;
    }
    for Central { id, similarity, title, turns, text } in &cluster.central {
        let turns = counted(*turns as u64, "turn");
        let title = title.as_deref().filter(|title| !title.is_empty());
        let about = title.map_or_else(|| turns.clone(), |title| format!("{title} · {turns}"));
        let text = vectors::shortened(text, 100);
        writeln!(out, "      {NAME}{id}{NAME:#}  {DIM}{similarity:.2}  {about}{DIM:#}  {text}")?;
    }
    writeln!(out)
}
