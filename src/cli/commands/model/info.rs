//! `turnwise model info`: describes a model.

use std::{collections::BTreeMap, fs};

use crate::cli::prelude::*;
use turnwise_encoder::{
    folder::{ModelFolder, Step},
    hub::{Resolved, files},
    statics,
};

#[derive(Serialize)]
struct Info {
    #[serde(flatten)]
    model: Resolved,
    architecture: &'static str,
    layers: usize,
    hidden: usize,
    heads: usize,
    intermediate: usize,
    vocabulary: usize,
    parameters: usize,
    max_tokens: usize,
    dim: usize,
    pooling: Vec<&'static str>,
    steps: Vec<String>,
    normalizes: bool,
    similarity: Option<String>,
    prompts: BTreeMap<String, String>,
    default_prompt: Option<String>,
    fingerprint: String,
    files: BTreeMap<String, u64>,
    notices: Vec<String>,
}

/// Description of a static encoder, which has no neural network.
#[derive(Serialize)]
struct StaticInfo {
    #[serde(flatten)]
    model: Resolved,
    encoder: String,
    dim: usize,
    fingerprint: String,
    files: BTreeMap<String, u64>,
}

pub(super) fn run(spec: &str, context: &Context<'_>) -> Result<()> {
    let model = context.model(spec)?;
    if statics::is_static(&model.path) {
        let info = of_static(model)?;
        return context.printer.result(&info, |out| print_static(&info, out));
    }
    let folder = ModelFolder::open(&model.path)?;
    let info = of(&folder, model)?;
    context.printer.result(&info, |out| print(&info, out))
}

fn of_static(model: Resolved) -> Result<StaticInfo> {
    let encoder = statics::open(&model.path)?;
    Ok(StaticInfo {
        encoder: encoder.name().to_owned(),
        dim: encoder.dim(),
        fingerprint: encoder.fingerprint().to_string(),
        files: sizes(&model.path)?,
        model,
    })
}

/// Returns the files of a folder with their sizes in bytes.
fn sizes(folder: &Path) -> Result<BTreeMap<String, u64>> {
    let size = |path: String| Some((path.clone(), fs::metadata(folder.join(path)).ok()?.len()));
    Ok(files::walk(folder)?.into_iter().filter_map(size).collect())
}

fn of(folder: &ModelFolder, model: Resolved) -> Result<Info> {
    let pipeline = folder.pipeline();
    let config = folder.config();
    Ok(Info {
        architecture: folder.config().architecture.name(),
        layers: config.layers,
        hidden: config.shape.hidden,
        heads: config.shape.heads,
        intermediate: config.shape.intermediate,
        vocabulary: folder.tokenizer()?.vocabulary(),
        parameters: folder.network()?.parameters() + pipeline.steps.iter().map(parameters).sum::<usize>(),
        max_tokens: folder.pipeline().max_tokens,
        dim: folder.dim(),
        pooling: pipeline.pooling.modes.iter().map(|mode| mode.name()).collect(),
        steps: pipeline.steps.iter().map(step).collect(),
        normalizes: pipeline.normalizes(),
        similarity: pipeline.similarity.clone(),
        // Empty prompts are not shown.
        prompts: pipeline.prompts.texts.clone().into_iter().filter(|(_, text)| !text.is_empty()).collect(),
        default_prompt: pipeline.prompts.default.clone(),
        fingerprint: folder.fingerprint()?.to_string(),
        files: sizes(folder.path())?,
        notices: folder.notices().to_vec(),
        model,
    })
}

fn parameters(step: &Step) -> usize {
    match step {
        Step::Dense(dense) => dense.weight.len() + dense.bias.as_ref().map_or(0, Vec::len),
        Step::Normalize => 0,
    }
}

fn step(step: &Step) -> String {
    match step {
        Step::Dense(dense) => {
            format!("dense {} → {} ({:?})", dense.inputs, dense.outputs, dense.activation).to_lowercase()
        }
        Step::Normalize => "normalize".to_owned(),
    }
}

fn print_static(info: &StaticInfo, out: &mut dyn Write) -> io::Result<()> {
    print_model(&info.model, out)?;
    print_line(out, "encoder", &info.encoder)?;
    print_line(out, "vectors", &format!("{} dimensions", info.dim))?;
    print_line(out, "fingerprint", &info.fingerprint)?;
    print_files(&info.files, out)
}

fn print_line(out: &mut dyn Write, what: &str, is: &str) -> io::Result<()> {
    writeln!(out, "{DIM}{what:<12}{DIM:#}  {is}")
}

fn print_model(model: &Resolved, out: &mut dyn Write) -> io::Result<()> {
    let revision = model.revision.as_ref().map(|r| format!(" (revision {r})")).unwrap_or_default();
    print_line(out, "model", &format!("{BOLD}{}{BOLD:#}{revision}", model.name))?;
    print_line(out, "folder", &model.path.display().to_string())
}

fn print_files(files: &BTreeMap<String, u64>, out: &mut dyn Write) -> io::Result<()> {
    files.iter().try_for_each(|(path, size)| print_line(out, "file", &format!("{path} ({})", bytes(*size))))
}

fn print(info: &Info, out: &mut dyn Write) -> io::Result<()> {
    print_model(&info.model, out)?;
    let mut line = |what: &str, is: String| print_line(out, what, &is);
    let Info { architecture, layers, hidden, heads, intermediate, .. } = info;
    let shape = match layers {
        0 => format!("static embeddings of width {hidden}, without layers"),
        _ => {
            format!("{layers} layers of width {hidden} with {heads} heads, feed-forward width {intermediate}")
        }
    };
    line("network", format!("{architecture}: {shape}; {} parameters", grouped(info.parameters as u64)))?;
    line("vocabulary", grouped(info.vocabulary as u64))?;
    line("max tokens", info.max_tokens.to_string())?;
    let path: Vec<String> =
        info.pooling.iter().map(|p| format!("{p} pooling")).chain(info.steps.clone()).collect();
    line("vectors", format!("{} dimensions: {}", info.dim, path.join(", then ")))?;
    if let Some(similarity) = &info.similarity {
        line("similarity", similarity.clone())?;
    }
    for (name, text) in &info.prompts {
        let by_default = if info.default_prompt.as_ref() == Some(name) { " (default)" } else { "" };
        line("prompt", format!("{name}{by_default}: {text:?}"))?;
    }
    line("fingerprint", info.fingerprint.clone())?;
    print_files(&info.files, out)?;
    info.notices.iter().try_for_each(|notice| print_line(out, "note", notice))
}
